//! The errors of stores.

use std::time::Duration;

use thiserror::Error;

use crate::client::{ClientError, WatchError};

/// Why a call of a store failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Keys were not written in time.
    #[error("wait timeout after {waited:.1?}: these keys were still missing: {}", .missing.join(", "))]
    Timeout {
        /// How long the call waited.
        waited: Duration,
        /// The missing keys, as text.
        missing: Vec<String>,
    },
    /// Not all participants came to a barrier in time.
    #[error(
        "barrier timeout after {waited:.1?}: {key:?} was not complete: {} of {world_size} had arrived",
        .arrived.map_or_else(|| "an unknown number".to_owned(), |arrived| arrived.to_string())
    )]
    Barrier {
        /// The key.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// The number of arrivals, if it could be read.
        arrived: Option<i64>,
        /// The number of arrivals that the barrier waits for.
        world_size: u64,
    },
    /// A queue is empty, and the call does not wait.
    #[error("the queue {key:?} is empty")]
    QueueEmpty {
        /// The key.
        key: String,
    },
    /// A value has the wrong form.
    #[error("the value of {key:?} is unusable: {what}")]
    Corrupt {
        /// The key.
        key: String,
        /// The problem.
        what: String,
    },
    /// A value is larger than any server takes. Nothing was sent.
    #[error(
        "the value of {key:?} has {size} bytes, and the store takes {limit} at a time; \
         split it up, or share the name of a file"
    )]
    TooLarge {
        /// The key.
        key: String,
        /// The size of the value in bytes.
        size: usize,
        /// The limit in bytes: on etcd of a whole request, otherwise of a value.
        limit: usize,
    },
    /// A key is larger than any server takes. Nothing was sent.
    #[error("a key has {size} bytes, and may have {limit}; use a hash of it")]
    KeyTooLarge {
        /// The size of the key in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// No store could be reached in time.
    #[error("timeout after {waited:.1?}: there was no store to be reached at {address}: {source}")]
    Connect {
        /// The address of the store.
        address: String,
        /// How long the attempts took.
        waited: Duration,
        /// The failure of the last attempt.
        source: std::io::Error,
    },
    /// The connection to a store was lost. A write may have been executed.
    #[error("the connection to the store at {address} was lost: {source}")]
    Connection {
        /// The address of the store.
        address: String,
        /// The error of the connection.
        source: std::io::Error,
    },
    /// A request to the server failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A watch of the server failed.
    #[error(transparent)]
    Watch(#[from] WatchError),
}
