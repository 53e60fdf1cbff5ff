//! A real etcd as a child process.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rallypoint::client::ClientOptions;
use rallypoint::etcd_server::{EtcdOutput, EtcdServer as Native, EtcdServerOptions};

use crate::arguments::Time;
use crate::client::Client;
use crate::errors::{OrRaise, stopped, wrong_argument};
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
    running: Mutex<Option<Tied<Native>>>,
}

impl EtcdServer {
    fn running(&self) -> MutexGuard<'_, Option<Tied<Native>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<T>(&self, py: Python<'_>, question: impl FnOnce(&Native) -> T) -> PyResult<T> {
        match &*self.running() {
            Some(native) => Ok(question(native.get(py)?)),
            None => Err(stopped(py, "EtcdServerError", "etcd is not running, or")),
        }
    }
}

#[pymethods]
impl EtcdServer {
    #[new]
    #[pyo3(signature = (data_dir = None))]
    fn create(data_dir: Option<PathBuf>) -> Self {
        Self { data_dir, running: Mutex::default() }
    }

    /// Starts etcd, and returns when it serves.
    ///
    /// Args:
    ///     timeout: how long one attempt may take, in seconds.
    ///     num_retries: how often to try.
    ///     stderr: where etcd's output goes: nowhere, unless it is the path of a file, or ``True`` for the
    ///         standard error of this process.
    #[pyo3(signature = (timeout = None, num_retries = 3, stderr = None))]
    fn start(
        &self,
        py: Python<'_>,
        timeout: Option<Time>,
        num_retries: u32,
        stderr: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if self.running().is_some() {
            return Err(wrong_argument(py, "this etcd runs already; stop it first".to_owned()));
        }
        let usual = EtcdServerOptions::default();
        let options = EtcdServerOptions {
            data_dir: self.data_dir.clone(),
            output: output(stderr)?,
            start_timeout: timeout.map_or(usual.start_timeout, |Time(timeout)| timeout),
            attempts: num_retries,
            ..usual
        };
        let started = wait(py, Native::start(options))?.or_raise(py)?;
        *self.running() = Some(Tied::new(started));
        Ok(())
    }

    /// Ends it, and removes its temporary directory. Once is enough.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running().take();
        let Some(mut native) = running.and_then(Tied::take) else { return Ok(()) };
        wait(py, native.stop())?.or_raise(py)
    }

    /// The port that it listens on.
    fn get_port(&self, py: Python<'_>) -> PyResult<u16> {
        self.ask(py, Native::port)
    }

    /// The address that it listens on.
    fn get_host(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, |native| native.host().to_string())
    }

    /// Where clients reach it: ``host:port``.
    fn get_endpoint(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Native::endpoint)
    }

    /// A client of it.
    fn get_client(&self, py: Python<'_>) -> PyResult<Client> {
        let endpoint = self.get_endpoint(py)?;
        Client::new(py, endpoint.clone(), ClientOptions::new([endpoint]))
    }

    fn __enter__(this: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if this.get().running().is_none() {
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
        // A negative number is PIPE or DEVNULL; what is piped is kept for errors as it is.
        let path = PathBuf::from(format!("/proc/self/fd/{descriptor}"));
        return Ok(if descriptor < 0 { EtcdOutput::Discard } else { EtcdOutput::File(path) });
    }
    if let Ok(path) = stderr.extract::<PathBuf>() {
        return Ok(EtcdOutput::File(path));
    }
    let descriptor: i32 = stderr.call_method0("fileno")?.extract()?;
    Ok(EtcdOutput::File(PathBuf::from(format!("/proc/self/fd/{descriptor}"))))
}
