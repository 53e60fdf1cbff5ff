//! What can go wrong with a store.

use std::time::Duration;

use thiserror::Error;

use crate::client::{ClientError, WatchError};

/// Why a store did not do as asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Keys did not come into being in time.
    #[error("after {waited:.1?} these keys were still missing: {}", .missing.join(", "))]
    Timeout {
        /// How long it was waited.
        waited: Duration,
        /// The keys, as text as far as they are.
        missing: Vec<String>,
    },
    /// A value is not what it must be.
    #[error("the value of {key:?} is unusable: {what}")]
    Corrupt {
        /// Its key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// The server could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server could not be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
}
