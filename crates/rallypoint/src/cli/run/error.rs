//! What is wrong with a command line, or with what it was to be completed from.

use std::path::PathBuf;

use thiserror::Error;

use crate::config::ConfigError;

/// Why there is no plan. All of them are the user's to put right, so the exit code is 2.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    /// The command line cannot be read; or it asks for help, which is no failure.
    #[error(transparent)]
    Usage(Box<clap::Error>),
    /// torchrun has the option, and we do not.
    #[error("{option} is an option of torchrun that there is no use for here: {instead}")]
    Refused { option: String, instead: &'static str },
    /// It is the beginning of several options.
    #[error("{option} may be any of {}; write one of them", .candidates.join(", "))]
    Ambiguous { option: String, candidates: Vec<String> },
    /// An option, a variable or a parameter is wrong, missing or contradicts another.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file is not there, or not readable.
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
