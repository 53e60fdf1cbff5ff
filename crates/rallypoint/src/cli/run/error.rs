//! What is wrong with a command line, or with what it was to be completed from.

use std::path::PathBuf;

use thiserror::Error;

use crate::rendezvous::ParameterError;

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
    /// An option or a variable cannot be what it is.
    #[error("{name} {value:?}: {fix}")]
    Invalid { name: String, value: String, fix: String },
    /// It has to be there.
    #[error("{name} is missing: {fix}")]
    Missing { name: &'static str, fix: String },
    /// Two things exclude each other.
    #[error("{first} and {second} contradict each other: {fix}")]
    Conflict { first: String, second: String, fix: &'static str },
    /// The file is not there, or not readable.
    #[error("cannot read --secret-file {path}")]
    Secret { path: PathBuf, source: std::io::Error },
    /// What the nodes are to meet with makes no sense.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

impl RunError {
    pub(super) fn invalid(
        name: impl Into<String>,
        value: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Invalid { name: name.into(), value: value.into(), fix: fix.into() }
    }
}
