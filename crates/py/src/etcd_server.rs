//! etcd as a child process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rallypoint::client::ClientOptions;
use rallypoint::etcd_server::{EtcdOutput, EtcdServer as Native, EtcdServerOptions};

use crate::arguments::Time;
use crate::client::Client;
use crate::errors::{OrRaise, fork_error, not_running, wrong_argument};
use crate::runtime::{ProcessBound, wait};

/// ``etcd`` as a child process: PyTorch's ``EtcdServer``, with etcd's v3 API.
///
/// The binary is the file that ``TORCHELASTIC_ETCD_BINARY_PATH`` names, or else ``etcd`` beside this program, or else
/// ``etcd`` in ``PATH``. The process and its temporary directory never outlive this process.
///
/// Args:
///     data_dir: the data directory, which is kept. By default, a temporary directory.
///
/// >>> etcd = rallypoint.EtcdServer()
/// >>> etcd.start()
/// >>> rallypoint.EtcdStore(etcd.get_client(), "/trial").add("visits", 1)
/// 1
/// >>> etcd.stop()
#[pyclass(module = "rallypoint", subclass, frozen)]
pub(crate) struct EtcdServer {
    data_dir: Option<PathBuf>,
    state: Mutex<EtcdState>,
}

/// The state of the child process. No Python code may run while it is locked: another thread that holds the
/// interpreter might wait for the lock.
#[derive(Debug, Default)]
enum EtcdState {
    #[default]
    Stopped,
    Starting,
    Running(ProcessBound<Box<Native>>),
}

impl EtcdServer {
    fn state(&self) -> MutexGuard<'_, EtcdState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the process as starting. Returns false if it starts or runs already.
    fn begin(&self) -> bool {
        let mut state = self.state();
        let begins = matches!(*state, EtcdState::Stopped);
        if begins {
            *state = EtcdState::Starting;
        }
        begins
    }

    /// Takes the running process out; `None` if it does not run.
    fn end(&self) -> Option<ProcessBound<Box<Native>>> {
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            EtcdState::Running(native) => Some(native),
            other => {
                *state = other;
                None
            }
        }
    }

    fn address(&self, py: Python<'_>) -> PyResult<SocketAddr> {
        let known = match &*self.state() {
            EtcdState::Running(native) => Some(
                native
                    .get_unless_forked()
                    .map(|native| SocketAddr::new(native.host(), native.port())),
            ),
            EtcdState::Stopped | EtcdState::Starting => None,
        };
        known.ok_or_else(|| not_running(py))?.ok_or_else(|| fork_error(py))
    }
}

#[pymethods]
impl EtcdServer {
    #[new]
    #[pyo3(signature = (data_dir = None))]
    fn create(data_dir: Option<PathBuf>) -> Self {
        Self { data_dir, state: Mutex::default() }
    }

    /// Starts etcd, and returns when it serves requests.
    ///
    /// Args:
    ///     timeout: the timeout of one attempt, in seconds.
    ///     num_retries: the number of attempts.
    ///     stderr: the destination of etcd's output: the path of a file, an open file or its descriptor (but not a
    ///         socket), or ``True`` for the standard error of this process. By default, the output is discarded.
    #[pyo3(signature = (timeout = None, num_retries = 3, stderr = None))]
    fn start(
        &self,
        py: Python<'_>,
        timeout: Option<Time>,
        num_retries: u32,
        stderr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let mut options = EtcdServerOptions::default();
        options.data_dir.clone_from(&self.data_dir);
        options.output = output(stderr)?;
        options.attempts = num_retries;
        if let Some(Time(timeout)) = timeout {
            options.start_timeout = timeout;
        }
        if !self.begin() {
            return Err(wrong_argument(py, "this etcd runs already; stop it first".to_owned()));
        }
        let started = wait(py, Native::start(options)).and_then(|started| started.or_raise(py));
        let (state, outcome) = match started {
            Ok(native) => (EtcdState::Running(ProcessBound::new(Box::new(native))), Ok(())),
            Err(error) => (EtcdState::Stopped, Err(error)),
        };
        *self.state() = state;
        outcome
    }

    /// Ends etcd and removes its temporary directory. A second call does nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut native) = self.end().and_then(ProcessBound::take) else { return Ok(()) };
        wait(py, native.stop())?.or_raise(py)
    }

    /// The port that etcd listens on.
    fn get_port(&self, py: Python<'_>) -> PyResult<u16> {
        self.address(py).map(|address| address.port())
    }

    /// The address that etcd listens on.
    fn get_host(&self, py: Python<'_>) -> PyResult<String> {
        self.address(py).map(|address| address.ip().to_string())
    }

    /// The endpoint for clients: ``host:port``.
    fn get_endpoint(&self, py: Python<'_>) -> PyResult<String> {
        self.address(py).map(|address| address.to_string())
    }

    /// Makes a client of this etcd.
    fn get_client(&self, py: Python<'_>) -> PyResult<Client> {
        let endpoint = self.get_endpoint(py)?;
        Client::new(py, endpoint.clone(), ClientOptions::new([endpoint]))
    }

    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let stopped = matches!(*this.get().state(), EtcdState::Stopped);
        if stopped {
            this.get().start(this.py(), None, 3, None)?;
        }
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyAny>) -> PyResult<()> {
        self.stop(py)
    }
}

/// Converts the argument ``stderr``. ``None`` and numbers (descriptors, and the constants of `subprocess`) mean the
/// same as in PyTorch.
fn output(stderr: Option<&Bound<'_, PyAny>>) -> PyResult<EtcdOutput> {
    let Some(stderr) = stderr else { return Ok(EtcdOutput::Discard) };
    if let Ok(shown) = stderr.extract::<bool>() {
        return Ok(if shown { EtcdOutput::Inherit } else { EtcdOutput::Discard });
    }
    if let Ok(descriptor) = stderr.extract::<i32>() {
        return Ok(opened(descriptor));
    }
    if let Ok(path) = stderr.extract::<PathBuf>() {
        return Ok(EtcdOutput::File(path));
    }
    stderr.call_method0("fileno")?.extract().map(opened)
}

/// Converts a descriptor. A negative number is PIPE or DEVNULL, for which the output is discarded; errors quote its
/// last lines in any case.
///
/// Other descriptors are opened again by their path, which sockets do not allow: using a descriptor by its number
/// would be `unsafe`. The standard error, which often is a socket, needs no descriptor.
fn opened(descriptor: i32) -> EtcdOutput {
    match descriptor {
        ..0 => EtcdOutput::Discard,
        2 => EtcdOutput::Inherit,
        _ => EtcdOutput::File(PathBuf::from(format!("/proc/self/fd/{descriptor}"))),
    }
}
