//! Errors of the command line, and of the values that complete it.

use std::path::PathBuf;

use thiserror::Error;

use crate::config::ConfigError;

/// Why a command line has no job. The user can correct all of these, so the exit code is 2.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    /// The command line cannot be parsed; or it asks for help, which is a success.
    #[error(transparent)]
    Usage(Box<clap::Error>),
    /// An option of torchrun that `rallypoint run` does not have.
    #[error("{option} is an option of torchrun that there is no use for here: {instead}")]
    Refused { option: String, instead: &'static str },
    /// An abbreviation of several options.
    #[error("{option} may be any of {}; write one of them", .candidates.join(", "))]
    Ambiguous { option: String, candidates: Vec<String> },
    /// An option, a variable or a parameter is wrong, missing or contradicts another.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The secret file cannot be read.
    #[error("cannot read --secret-file {path}")]
    Secret { path: PathBuf, source: std::io::Error },
}

impl RunError {
    pub(super) fn invalid(
        name: impl Into<String>,
        value: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Config(ConfigError::invalid(name, value, fix))
    }

    pub(super) fn missing(name: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Config(ConfigError::missing(name, fix))
    }

    pub(super) fn conflict(
        first: impl Into<String>,
        second: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Config(ConfigError::conflict(first, second, fix))
    }
}
