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
    /// Not everyone came to a barrier in time.
    #[error(
        "after {waited:.1?} the barrier {key:?} was not complete: {} of {world_size} had arrived",
        .arrived.map_or_else(|| "an unknown number".to_owned(), |arrived| arrived.to_string())
    )]
    Barrier {
        /// Its key.
        key: String,
        /// How long it was waited.
        waited: Duration,
        /// How many had come, if that could be asked.
        arrived: Option<i64>,
        /// How many it takes.
        world_size: u64,
    },
    /// A queue is empty, and waiting was not wanted.
    #[error("the queue {key:?} is empty")]
    QueueEmpty {
        /// Its key.
        key: String,
    },
    /// A value is not what it must be.
    #[error("the value of {key:?} is unusable: {what}")]
    Corrupt {
        /// Its key.
        key: String,
        /// What is wrong.
        what: String,
    },
    /// A value is larger than any server takes. Nothing was sent.
    #[error(
        "the value of {key:?} has {size} bytes, and a request may have {limit} in all; \
         split it up, or share the name of a file"
    )]
    TooLarge {
        /// Its key.
        key: String,
        /// The bytes of the value.
        size: usize,
        /// The bytes of the largest request.
        limit: usize,
    },
    /// A key is larger than any server takes. Nothing was sent.
    #[error("a key has {size} bytes, and may have {limit}; use a hash of it")]
    KeyTooLarge {
        /// The bytes of the key.
        size: usize,
        /// The bytes of the largest key.
        limit: usize,
    },
    /// No store could be reached in time.
    #[error("after {waited:.1?} there was no store to be reached at {address}: {source}")]
    Connect {
        /// Where it should be.
        address: String,
        /// How long it was tried.
        waited: Duration,
        /// Why the last attempt failed.
        source: std::io::Error,
    },
    /// The connection to a store was lost. A write may have been executed.
    #[error("the connection to the store at {address} was lost: {source}")]
    Connection {
        /// Where the store is, or was.
        address: String,
        /// What happened to the connection.
        source: std::io::Error,
    },
    /// The server could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The server could not be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
}
