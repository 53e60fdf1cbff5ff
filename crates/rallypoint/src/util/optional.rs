//! Waits in a `select!` for what may not be there.

use futures_util::future::BoxFuture;
#[cfg(feature = "cli")]
use tokio::time::{Instant, sleep_until};

/// Waits for the future, or for ever if there is none.
pub(crate) async fn ready<T>(future: &mut Option<BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Waits until this time, or for ever if there is none.
#[cfg(feature = "cli")]
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
