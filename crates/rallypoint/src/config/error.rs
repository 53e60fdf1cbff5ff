//! The error of everything that users configure: the field, its value, and the remedy.

use thiserror::Error;

use super::suggest::{did_you_mean, list};

/// A parameter, an option or a variable that cannot be used.
///
/// Every variant names the field and the remedy, in the words of the interface that the user has written in:
/// `lease_ttl` of a configuration, `--rdzv-endpoint` of a command line, `SLURM_NODEID` of an environment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The field has a value that it cannot have.
    #[error("{field} {value:?}: {fix}")]
    Invalid {
        /// The parameter, option or variable.
        field: String,
        /// Its value.
        value: String,
        /// The remedy.
        fix: String,
    },
    /// The field is required and was not given.
    #[error("{field} is missing: {fix}")]
    Missing {
        /// The parameter, option or variable.
        field: String,
        /// The remedy.
        fix: String,
    },
    /// Two fields exclude each other, or two names of one field have two values.
    #[error("{first} and {second} contradict each other: {fix}")]
    Conflict {
        /// One field, with its value where that matters.
        first: String,
        /// The other field.
        second: String,
        /// The remedy.
        fix: String,
    },
    /// The backend has no option of this name.
    #[error(
        "unknown option {option:?} of backend {backend:?}{}It knows: {}",
        did_you_mean(.suggestion.as_deref()),
        list(.known)
    )]
    UnknownOption {
        /// The name of the backend.
        backend: String,
        /// The name that was given.
        option: String,
        /// The known name that is most like it.
        suggestion: Option<String>,
        /// All names that the backend knows.
        known: Vec<&'static str>,
    },
}

impl ConfigError {
    /// An [`Invalid`](Self::Invalid) value.
    pub(crate) fn invalid(
        field: impl Into<String>,
        value: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Invalid { field: field.into(), value: value.into(), fix: fix.into() }
    }

    /// A [`Missing`](Self::Missing) field.
    pub(crate) fn missing(field: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Missing { field: field.into(), fix: fix.into() }
    }

    /// A [`Conflict`](Self::Conflict) of two fields.
    pub(crate) fn conflict(
        first: impl Into<String>,
        second: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Conflict { first: first.into(), second: second.into(), fix: fix.into() }
    }
}
