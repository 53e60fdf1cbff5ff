//! The one retry loop above the client.
//!
//! The client retries by itself what was surely not executed, within the time limit of one request. This loop
//! is for operations that are idempotent and worth more patience than one request has.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use super::backoff::{Backoff, sleep};
use crate::client::ClientError;

/// The backoff of an operation on a server that cannot be reached.
pub(crate) const SERVER_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(1280));

/// Attempts an operation until it succeeds, or until `failed` returns the error that ends it.
///
/// `failed` sees each error, and the delay before the next attempt. It returns `Ok` for that attempt, and `Err` to give
/// up.
pub(crate) async fn retry<T, E, G, F>(
    mut backoff: Backoff,
    mut attempt: impl FnMut() -> F,
    mut failed: impl FnMut(E, Duration) -> Result<(), G>,
) -> Result<T, G>
where
    F: Future<Output = Result<T, E>>,
{
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let delay = backoff.next_delay();
        failed(error, delay)?;
        sleep(delay).await;
    }
}

/// Attempts an operation until it succeeds, whatever its error is. `failed` sees each error.
pub(crate) async fn retry_forever<T, E, F>(
    backoff: Backoff,
    attempt: impl FnMut() -> F,
    mut failed: impl FnMut(E),
) -> T
where
    F: Future<Output = Result<T, E>>,
{
    let done = retry(backoff, attempt, |error, _| {
        failed(error);
        Ok::<(), Infallible>(())
    });
    match done.await {
        Ok(done) => done,
        Err(never) => match never {},
    }
}

/// Passes on an error that a retry may overcome, and returns as `Err` one that the server would repeat.
pub(crate) fn transient(error: ClientError) -> Result<ClientError, ClientError> {
    if error.is_transient() { Ok(error) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(4));

    #[tokio::test]
    async fn an_operation_is_repeated_until_it_succeeds() {
        let (attempts, errors) = (Cell::new(0), Cell::new(0));
        let attempt = || async {
            attempts.set(attempts.get() + 1);
            if attempts.get() < 4 { Err("not yet") } else { Ok(attempts.get()) }
        };
        assert_eq!(retry_forever(BACKOFF, attempt, |_| errors.set(errors.get() + 1)).await, 4);
        assert_eq!(errors.get(), 3);
    }

    #[tokio::test]
    async fn an_attempt_that_would_come_too_late_is_not_waited_for() {
        let backoff =
            Backoff::new(Duration::from_millis(1), Duration::from_secs(600)).without_jitter();
        let failed = |error, delay| {
            if delay < Duration::from_millis(8) { Ok(()) } else { Err((error, delay)) }
        };
        let attempt = || std::future::ready(Err::<(), _>("not yet"));
        assert_eq!(
            retry(backoff, attempt, failed).await,
            Err(("not yet", Duration::from_millis(8)))
        );
    }

    #[tokio::test]
    async fn an_error_that_would_come_back_ends_it() {
        let attempts = Cell::new(0);
        let attempt = || async {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(attempts.get())
        };
        let failed = |error, _| if error < 3 { Ok(()) } else { Err(error) };
        assert_eq!(retry(BACKOFF, attempt, failed).await, Err(3));
    }
}
