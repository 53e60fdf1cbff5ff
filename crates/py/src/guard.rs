//! The guard of workers that another launcher, such as torchrun, starts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use rallypoint::process::{self, LivenessSocket, Mark};
use rallypoint_core::rendezvous::documents::LivenessAddress;

use crate::errors::system_error;
use crate::runtime::ProcessBound;

/// Kills marked processes when this process has ended or its fence has passed, and serves the liveness socket.
///
/// The liveness socket listens at ``local_addr`` if that is an address, on loopback if ``endpoint`` is, or else on all
/// addresses. The kernel refuses connections to it when this process and its guard have ended, and the guard ends
/// after it has killed all marked processes.
///
/// Args:
///     endpoint: the rendezvous endpoint.
///     local_addr: the address of this node, if it is known.
#[pyclass(module = "rallypoint._native", frozen)]
pub(crate) struct Guard {
    resources: Mutex<Option<ProcessBound<GuardResources>>>,
    address: (String, u16),
    token: String,
}

/// The resources of the guard that ``close`` releases.
struct GuardResources {
    _socket: LivenessSocket,
    marks: Vec<Mark>,
}

impl Guard {
    /// The address of the liveness socket, without the host, which is that of this node.
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
        let socket = opened.map_err(|error| system_error(py, "start the guard", &error))?;
        let address = (socket.address().ip().to_string(), socket.port());
        let token = socket.token().to_owned();
        let resources = ProcessBound::new(GuardResources { _socket: socket, marks: Vec::new() });
        Ok(Self { resources: Mutex::new(Some(resources)), address, token })
    }

    /// The address and port of the liveness socket. The address may be unspecified.
    #[getter]
    fn address(&self) -> (String, u16) {
        self.address.clone()
    }

    /// The token that clients of the liveness socket receive.
    #[getter]
    fn token(&self) -> &str {
        &self.token
    }

    /// Guards processes that started with this variable in their environment, and their descendants.
    fn mark(&self, py: Python<'_>, name: &str, value: &str) -> PyResult<()> {
        let mark = py.detach(|| Mark::new(name, value));
        let mark = mark.map_err(|error| system_error(py, "guard marked processes", &error))?;
        let mut resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resources) = resources.as_mut().and_then(ProcessBound::get_mut_unless_forked) {
            resources.marks.push(mark);
        }
        Ok(())
    }

    /// Sets the fence: workers are killed at this time, unless a later one is set before. Never blocks.
    ///
    /// Args:
    ///     nanoseconds: the time of ``time.CLOCK_BOOTTIME``; None for no fence.
    #[pyo3(signature = (nanoseconds))]
    fn fence_at(&self, py: Python<'_>, nanoseconds: Option<i128>) -> PyResult<()> {
        let moment = nanoseconds.map(u64::try_from).transpose();
        let moment = moment.map_err(|error| PyOverflowError::new_err(error.to_string()))?;
        py.detach(|| process::fence_at(moment.map(Duration::from_nanos)));
        Ok(())
    }

    /// The last fence at which the guard killed workers, in nanoseconds; None if there is none.
    #[getter]
    fn fenced(&self) -> Option<u128> {
        process::fenced().map(|moment| moment.as_nanos())
    }

    /// Stops guarding marked processes, which go on, and closes the liveness socket. Does nothing in a forked child.
    fn close(&self, py: Python<'_>) {
        let resources = self.resources.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(resources));
    }
}

/// Registers the command that starts this program again as a guard or a gate, in which it calls `helper`.
#[pyfunction]
pub(crate) fn register_helper(command: Vec<std::ffi::OsString>) {
    process::register(command);
}

/// Runs the guard or the gate, if the arguments ask for one. Returns the exit code; None for other arguments.
#[pyfunction]
pub(crate) fn helper(py: Python<'_>, arguments: Vec<std::ffi::OsString>) -> Option<u8> {
    py.detach(|| process::helper(arguments))
}
