//! A client of etcd, which stores and backends share.

use std::collections::BTreeMap;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rallypoint::client::{Client as Native, ClientOptions};
use rallypoint::rendezvous::{ConfigError, ConnectionOptions, RendezvousParameters};

use crate::arguments;
use crate::errors::OrRaise;
use crate::runtime::{ProcessBound, wait};

/// A connection to etcd, or to a `rallypoint.Server`, that stores and backends share.
///
/// It connects when it is first used.
///
/// Args:
///     endpoint: ``host:port``, or several of them with commas in between. The port is 2379 unless given.
///     options: ``protocol`` (``http`` or ``https``), ``cacert``, ``cert``, ``key``, ``user``, ``password``,
///         ``password_file``, ``read_timeout``: as in ``--rdzv-conf``.
///
/// >>> with rallypoint.Server() as server:
/// ...     client = rallypoint.Client(server.endpoint)
/// ...     store = rallypoint.EtcdStore(client, "/jobs/7")
/// ...     store.set("greeting", "hello")
/// ...     store.get("greeting")
/// b'hello'
#[pyclass(module = "rallypoint", frozen)]
pub(crate) struct Client {
    endpoint: String,
    native: ProcessBound<Native>,
}

impl Client {
    pub(crate) fn new(py: Python<'_>, endpoint: String, options: ClientOptions) -> PyResult<Self> {
        let connecting = Native::connect(options);
        let native = wait(py, connecting)?.or_raise(py)?;
        Ok(Self { endpoint, native: ProcessBound::new(native) })
    }

    /// Converts an argument to a client: a ``Client``, or the endpoint of a server.
    pub(crate) fn from_any<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        if let Ok(client) = given.cast::<Self>() {
            return Ok(client.clone());
        }
        let Ok(endpoint) = given.extract::<String>() else {
            let name = given.get_type().name()?;
            let text =
                format!("client: give a rallypoint.Client or the text host:port, not {name}");
            return Err(PyTypeError::new_err(text));
        };
        Bound::new(given.py(), Self::create(given.py(), &endpoint, None)?)
    }

    pub(crate) fn native(&self, py: Python<'_>) -> PyResult<Native> {
        self.native.get(py).cloned()
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (endpoint = "", **options), text_signature = "(endpoint='', **options)")]
    fn create(
        py: Python<'_>,
        endpoint: &str,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let checked = connection(endpoint, arguments::options(options)?);
        Self::new(py, endpoint.to_owned(), checked.or_raise(py)?.client_options())
    }

    /// The endpoint of the client.
    #[getter]
    fn endpoint(&self) -> &str {
        &self.endpoint
    }

    fn __repr__(&self) -> String {
        format!("Client({:?})", self.endpoint)
    }
}

fn connection(
    endpoint: &str,
    config: BTreeMap<String, String>,
) -> Result<ConnectionOptions, ConfigError> {
    let mut parameters = RendezvousParameters::new("client", endpoint, "client", 1, 1)?;
    parameters.config = config;
    ConnectionOptions::from_parameters(&parameters)
}
