//! One runtime for the process, and how Python waits for what happens on it.

use std::pin::pin;
use std::sync::OnceLock;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::errors::{fork_error, system_error};

/// How long Ctrl-C may have to wait.
const SLICE: Duration = Duration::from_millis(100);

/// Most of what happens is waiting; a server for many nodes has some work.
const THREADS: usize = 2;

static HOME: OnceLock<(u32, Runtime)> = OnceLock::new();

/// The runtime of this process. It begins with the first use, and lasts as long as the process.
fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    if HOME.get().is_none() {
        py.import("rallypoint._log")?.call_method0("start")?;
        let built = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("rallypoint")
            .enable_all()
            .build()
            .map_err(|error| system_error(py, &error))?;
        // Another thread may have been quicker, and then this one is not needed.
        let _ = HOME.set((std::process::id(), built));
    }
    match HOME.get() {
        Some((pid, runtime)) if *pid == std::process::id() => Ok(runtime),
        _ => Err(fork_error(py)),
    }
}

/// Waits for `future`, while other Python threads run. If a signal handler of Python raises, as that of
/// Ctrl-C does, the future is dropped, and with it whatever was under way. Handlers run in the main thread,
/// so that others need not look for signals.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    let mut future = pin!(future);
    loop {
        let waiting = future.as_mut();
        let done = py.detach(|| runtime.block_on(async { timeout(SLICE, waiting).await }));
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

/// Something that belongs to the process that made it. In a fork it cannot be used, and is not dropped:
/// its threads are not there, and what it would end is not the fork's to end.
#[derive(Debug)]
pub(crate) struct Tied<T> {
    pid: u32,
    value: Option<T>,
}

impl<T> Tied<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { pid: std::process::id(), value: Some(value) }
    }

    pub(crate) fn get(&self, py: Python<'_>) -> PyResult<&T> {
        self.here().ok_or_else(|| fork_error(py))
    }

    /// The same without an exception, for whoever holds a lock while it looks.
    pub(crate) fn here(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.pid == std::process::id())
    }

    pub(crate) fn here_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.pid == std::process::id())
    }

    /// What it was, if this is the process that made it.
    pub(crate) fn take(mut self) -> Option<T> {
        let value = self.value.take();
        if self.pid == std::process::id() {
            return value;
        }
        std::mem::forget(value);
        None
    }
}

impl<T> Drop for Tied<T> {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            std::mem::forget(self.value.take());
        }
    }
}
