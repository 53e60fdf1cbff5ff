//! Work that may wait for a disk, kept off the threads that must not.

/// Runs `work` on a thread of its own and waits for it. Its panic is ours.
///
/// If the future is dropped the work goes on to its end.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(join) => match join.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going away, and whoever waits here with it.
            Err(_) => std::future::pending().await,
        },
    }
}
