//! Conversion of errors to Python exceptions. The classes are defined in Python, in `rallypoint.errors`.

use std::error::Error;

use pyo3::prelude::*;
use rallypoint::cli::SurroundingsError;
use rallypoint::client::ClientError;
use rallypoint::embedded::{EmbeddedServerError, SecretError};
use rallypoint::etcd_server::EtcdServerError;
use rallypoint::rendezvous::{ConfigError, CreateError, RendezvousError};
use rallypoint::server::ServeError;
use rallypoint::store::StoreError;

/// An error that becomes a Python exception.
pub(crate) trait Raise: Error + Sized {
    /// The name of the class.
    fn class(&self) -> &'static str;

    fn raise(self, py: Python<'_>) -> PyErr {
        exception(py, self.class(), rallypoint::error_chain(&self))
    }
}

/// Conversion of a result to a Python result.
pub(crate) trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T, E: Raise> OrRaise<T> for Result<T, E> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| error.raise(py))
    }
}

impl Raise for RendezvousError {
    fn class(&self) -> &'static str {
        match self {
            Self::Closed { .. } => "RendezvousClosedError",
            Self::Timeout { .. } => "RendezvousTimeoutError",
            Self::Connection { .. } | Self::ServerLost { .. } => "RendezvousConnectionError",
            Self::State { .. } => "RendezvousStateError",
            Self::GracefulExit { .. } | Self::Evicted { .. } => "RendezvousGracefulExitError",
            _ => "RendezvousError",
        }
    }
}

impl Raise for ConfigError {
    fn class(&self) -> &'static str {
        "ParameterError"
    }
}

impl Raise for SurroundingsError {
    fn class(&self) -> &'static str {
        "ParameterError"
    }
}

impl Raise for CreateError {
    fn class(&self) -> &'static str {
        match self {
            Self::Parameter(error) => error.class(),
            Self::Rendezvous(error) => error.class(),
            _ => "RendezvousError",
        }
    }
}

impl Raise for EmbeddedServerError {
    fn class(&self) -> &'static str {
        "RendezvousConnectionError"
    }
}

impl Raise for SecretError {
    fn class(&self) -> &'static str {
        "RendezvousConnectionError"
    }

    fn raise(self, py: Python<'_>) -> PyErr {
        let fix = "give all nodes of the job the same, by RALLYPOINT_SECRET";
        exception(py, self.class(), format!("{self}; {fix}"))
    }
}

impl Raise for ServeError {
    fn class(&self) -> &'static str {
        "ServerError"
    }
}

impl Raise for ClientError {
    fn class(&self) -> &'static str {
        "ClientError"
    }
}

impl Raise for StoreError {
    fn class(&self) -> &'static str {
        match self {
            Self::Timeout { .. } | Self::Barrier { .. } => "StoreTimeoutError",
            Self::QueueEmpty { .. } => "QueueEmptyError",
            Self::Connect { .. } | Self::Connection { .. } | Self::Client(_) | Self::Watch(_) => {
                "StoreConnectionError"
            }
            _ => "StoreError",
        }
    }
}

impl Raise for EtcdServerError {
    fn class(&self) -> &'static str {
        match self {
            Self::NotReady { .. } => "EtcdServerTimeoutError",
            _ => "EtcdServerError",
        }
    }
}

/// The exception for a value that is used in a forked child.
pub(crate) fn fork_error(py: Python<'_>) -> PyErr {
    let text = "rallypoint was in use when this process was forked, and its threads do not exist here; start \
                processes with the method 'spawn' or 'forkserver', or use rallypoint only after the fork";
    exception(py, "ForkError", text.to_owned())
}

/// The exception for an operation that the operating system refused.
pub(crate) fn system_error(py: Python<'_>, operation: &str, error: &std::io::Error) -> PyErr {
    exception(py, "RallypointError", format!("cannot {operation}: {error}"))
}

/// The exception for an invalid argument.
pub(crate) fn wrong_argument(py: Python<'_>, text: String) -> PyErr {
    exception(py, "ParameterError", text)
}

/// The exception for a call that needs a running etcd.
pub(crate) fn not_running(py: Python<'_>) -> PyErr {
    exception(py, "EtcdServerError", "this etcd is not running; start it first".to_owned())
}

fn exception(py: Python<'_>, class: &str, text: String) -> PyErr {
    let made = || py.import("rallypoint.errors")?.getattr(class)?.call1((text,));
    made().map_or_else(|error| error, PyErr::from_value)
}
