//! The guard of this process, for whoever starts workers by other means than ours.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use rallypoint::process::{self, LivenessSocket, Mark};
use rallypoint_core::rendezvous::documents::LivenessAddress;

use crate::errors::system_error;
use crate::runtime::Tied;

/// Ends marked processes when this one is gone or its fence has passed, and shows others that none is left.
///
/// It listens where the other nodes reach this one: at ``local_addr`` if that is an address, on loopback if
/// ``endpoint`` is, or else on all addresses. The kernel refuses connections there when neither this process nor
/// its guard is left, and the guard goes when it has ended all marked processes.
///
/// Args:
///     endpoint: where the nodes meet.
///     local_addr: the address of this node, if it is known.
#[pyclass(module = "rallypoint._native", frozen)]
pub(crate) struct Guard {
    life: Mutex<Option<Tied<Life>>>,
    address: (String, u16),
    token: String,
}

struct Life {
    _socket: LivenessSocket,
    marks: Vec<Mark>,
}

impl Guard {
    /// How the other nodes reach it, at the address of this one.
    pub(crate) fn liveness(&self) -> LivenessAddress {
        let (port, token) = (self.address.1, self.token.clone());
        LivenessAddress { host: String::new(), port, token }
    }
}

#[pymethods]
impl Guard {
    #[new]
    #[pyo3(signature = (endpoint, local_addr = None))]
    fn create(py: Python<'_>, endpoint: &str, local_addr: Option<&str>) -> PyResult<Self> {
        let opened = py.detach(|| {
            let socket = LivenessSocket::for_node(endpoint, local_addr)?;
            process::start_guard().map(|()| socket)
        });
        let socket = opened.map_err(|error| system_error(py, &error))?;
        let address = (socket.address().ip().to_string(), socket.port());
        let token = socket.token().to_owned();
        let life = Tied::new(Life { _socket: socket, marks: Vec::new() });
        Ok(Self { life: Mutex::new(Some(life)), address, token })
    }

    /// Where it listens: an address, which may stand for all of this host, and a port.
    #[getter]
    fn address(&self) -> (String, u16) {
        self.address.clone()
    }

    /// What it tells those who connect.
    #[getter]
    fn token(&self) -> &str {
        &self.token
    }

    /// From now on, processes that begin with this variable in their environment, and their descendants, are ended.
    fn mark(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        let mark =
            py.detach(|| Mark::new(name, value)).map_err(|error| system_error(py, &error))?;
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = life.as_mut().and_then(Tied::here_mut) {
            life.marks.push(mark);
        }
        Ok(())
    }

    /// Workers end at this moment, unless a later one is named before. Never waits.
    ///
    /// Args:
    ///     nanoseconds: of ``time.CLOCK_BOOTTIME``; None for never.
    #[pyo3(signature = (nanoseconds))]
    fn fence_at(&self, py: Python<'_>, nanoseconds: Option<i128>) -> PyResult<()> {
        let moment = nanoseconds.map(u64::try_from).transpose();
        let moment = moment.map_err(|error| PyOverflowError::new_err(error.to_string()))?;
        py.detach(|| process::fence_at(moment.map(Duration::from_nanos)));
        Ok(())
    }

    /// The fence at which the guard has last killed workers, in nanoseconds; None if it has not.
    #[getter]
    fn fenced(&self) -> Option<u128> {
        process::fenced().map(|moment| moment.as_nanos())
    }

    /// Lets all marked processes go on, and closes the socket. Not in a fork.
    fn close(&self, py: Python<'_>) {
        let life = self.life.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(life));
    }
}

/// How this program is started again for a guard or a gate, such that it comes to `helper`.
#[pyfunction]
pub(crate) fn register_helper(command: Vec<std::ffi::OsString>) {
    process::register(command);
}

/// What a process does that was started so. Its exit code; None if the arguments are others.
#[pyfunction]
pub(crate) fn helper(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> Option<u8> {
    py.detach(|| process::helper(arguments))
}
