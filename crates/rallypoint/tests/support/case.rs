//! A case of the test programs that have a harness of their own.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use libtest_mimic::Failed;

/// Runs a case to its end. It fails when it panics, and when it is not finished after `patience`.
///
/// # Errors
/// If it takes longer than that.
pub async fn finish(case: impl Future<Output = ()>, patience: Duration) -> Result<(), Failed> {
    match tokio::time::timeout(patience, AssertUnwindSafe(case).catch_unwind()).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(_) => Err(Failed::from(format!("not finished after {patience:?}"))),
    }
}
