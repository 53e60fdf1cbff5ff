//! Blocking work, kept off the threads of the runtime.

/// Runs `work` on a thread for blocking work and waits for it. A panic of `work` continues in the caller.
///
/// If the future is dropped, the work still runs to its end.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(join) => match join.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and the caller's task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
