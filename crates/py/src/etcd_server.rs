//! A real etcd as a child process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rallypoint::client::ClientOptions;
use rallypoint::etcd_server::{EtcdOutput, EtcdServer as Native, EtcdServerOptions};

use crate::arguments::Time;
use crate::client::Client;
use crate::errors::{OrRaise, fork_error, not_running, wrong_argument};
use crate::runtime::{Tied, wait};

/// A real ``etcd`` as a child process: PyTorch's ``EtcdServer``, with etcd's v3 API.
///
/// The binary is what ``TORCHELASTIC_ETCD_BINARY_PATH`` names, or else ``etcd`` beside this program, or else
/// in ``PATH``. It never outlives this process, and neither does its temporary directory.
///
/// Args:
///     data_dir: where the data lie. One that is given is kept.
///
/// >>> etcd = rallypoint.EtcdServer()
/// >>> etcd.start()
/// >>> rallypoint.EtcdStore(etcd.get_client(), "/trial").add("visits", 1)
/// 1
/// >>> etcd.stop()
#[pyclass(module = "rallypoint", subclass, frozen)]
pub(crate) struct EtcdServer {
    data_dir: Option<PathBuf>,
    life: Mutex<Life>,
}

/// How far it is. Nothing of Python's may run while this is locked: another thread might wait for it with the
/// interpreter in its hands.
#[derive(Debug, Default)]
enum Life {
    #[default]
    Stopped,
    Starting,
    Running(Tied<Box<Native>>),
}

impl EtcdServer {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is this call that starts it.
    fn begin(&self) -> bool {
        let mut life = self.life();
        let begins = matches!(*life, Life::Stopped);
        if begins {
            *life = Life::Starting;
        }
        begins
    }

    /// What is to be ended, if it runs.
    fn end(&self) -> Option<Tied<Box<Native>>> {
        let mut life = self.life();
        match std::mem::take(&mut *life) {
            Life::Running(native) => Some(native),
            other => {
                *life = other;
                None
            }
        }
    }

    fn address(&self, py: Python<'_>) -> PyResult<SocketAddr> {
        let known = match &*self.life() {
            Life::Running(native) => {
                Some(native.here().map(|native| SocketAddr::new(native.host(), native.port())))
            }
            Life::Stopped | Life::Starting => None,
        };
        known.ok_or_else(|| not_running(py))?.ok_or_else(|| fork_error(py))
    }
}

#[pymethods]
impl EtcdServer {
    #[new]
    #[pyo3(signature = (data_dir = None))]
    fn create(data_dir: Option<PathBuf>) -> Self {
        Self { data_dir, life: Mutex::default() }
    }

    /// Starts etcd, and returns when it serves.
    ///
    /// Args:
    ///     timeout: how long one attempt may take, in seconds.
    ///     num_retries: how often to try.
    ///     stderr: where etcd's output goes: nowhere, unless it is the path of a file, an open file or its
    ///         descriptor (but no socket), or ``True`` for the standard error of this process.
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
        let (life, outcome) = match started {
            Ok(native) => (Life::Running(Tied::new(Box::new(native))), Ok(())),
            Err(error) => (Life::Stopped, Err(error)),
        };
        *self.life() = life;
        outcome
    }

    /// Ends it, and removes its temporary directory. Once is enough.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut native) = self.end().and_then(Tied::take) else { return Ok(()) };
        wait(py, native.stop())?.or_raise(py)
    }

    /// The port that it listens on.
    fn get_port(&self, py: Python<'_>) -> PyResult<u16> {
        self.address(py).map(|address| address.port())
    }

    /// The address that it listens on.
    fn get_host(&self, py: Python<'_>) -> PyResult<String> {
        self.address(py).map(|address| address.ip().to_string())
    }

    /// Where clients reach it: ``host:port``.
    fn get_endpoint(&self, py: Python<'_>) -> PyResult<String> {
        self.address(py).map(|address| address.to_string())
    }

    /// A client of it.
    fn get_client(&self, py: Python<'_>) -> PyResult<Client> {
        let endpoint = self.get_endpoint(py)?;
        Client::new(py, endpoint.clone(), ClientOptions::new([endpoint]))
    }

    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let stopped = matches!(*this.get().life(), Life::Stopped);
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

/// Nothing and numbers, which are descriptors and `subprocess`'s own words, are PyTorch's.
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

/// A negative number is PIPE or DEVNULL; what is piped is kept for errors as it is.
///
/// Others are opened again, which sockets cannot be: to have one by its number alone would be `unsafe`. The
/// standard error, which often is one, needs neither.
fn opened(descriptor: i32) -> EtcdOutput {
    match descriptor {
        ..0 => EtcdOutput::Discard,
        2 => EtcdOutput::Inherit,
        _ => EtcdOutput::File(PathBuf::from(format!("/proc/self/fd/{descriptor}"))),
    }
}
