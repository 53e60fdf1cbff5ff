//! The tokio runtime of the process, and how Python waits for its futures.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::errors::{fork_error, system_error};

/// The interval at which a wait checks for signals such as Ctrl-C.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The number of worker threads. Most tasks only wait, but a server for many nodes has some work.
const THREADS: usize = 2;

static RUNTIME: OnceLock<(u32, Runtime)> = OnceLock::new();

/// The runtime of this process. It starts with the first use and never ends.
fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    if RUNTIME.get().is_none() {
        py.import("rallypoint._log")?.call_method0("start")?;
        let built = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("rallypoint")
            .enable_all()
            .build()
            .map_err(|error| system_error(py, "start the threads of the runtime", &error))?;
        // If another thread has set its runtime first, this one is dropped.
        let _ = RUNTIME.set((std::process::id(), built));
    }
    match RUNTIME.get() {
        Some((pid, runtime)) if *pid == std::process::id() => Ok(runtime),
        _ => Err(fork_error(py)),
    }
}

/// Waits for `future`, while other Python threads run. If a signal handler of Python raises, as that of Ctrl-C does,
/// the future is dropped and so cancelled. Python runs handlers in the main thread, so only that thread checks for
/// signals.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    let mut future = pin!(future);
    loop {
        let waiting = future.as_mut();
        let done =
            py.detach(|| runtime.block_on(async { timeout(SIGNAL_CHECK_INTERVAL, waiting).await }));
        match done {
            Ok(output) => return Ok(output),
            Err(_) if is_main_thread(py)? => py.check_signals()?,
            Err(_) => return Ok(py.detach(|| runtime.block_on(future))),
        }
    }
}

fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    threading.call_method0("get_ident")?.eq(main)
}

/// A value that belongs to the process that made it. In a forked child it cannot be used and is not dropped: its
/// threads do not exist there, and the child must not end resources of its parent.
#[derive(Debug)]
pub(crate) struct ProcessBound<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> ProcessBound<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: Some(value) }
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.get_unless_forked().ok_or_else(|| fork_error(py))
    }

    /// The value, or `None` in a forked child. Unlike [`get`](Self::get) it makes no exception, so it can be called
    /// with a lock held.
    pub(crate) fn get_unless_forked(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.pid == std::process::id())
    }

    pub(crate) fn get_mut_unless_forked(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.pid == std::process::id())
    }

    /// Takes the value out; `None` in a forked child.
    pub(crate) fn take(mut self) -> Option<T> {
        let value = self.value.take();
        if self.pid == std::process::id() {
            return value;
        }
        std::mem::forget(value);
        None
    }
}

impl<T> Drop for ProcessBound<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
