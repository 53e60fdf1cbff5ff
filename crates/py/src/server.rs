//! The coordination server, in this process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use rallypoint::server::{Credentials, ServeError, Server as Native, ServerOptions, ServerTls};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::errors::{OrRaise, wrong_argument};
use crate::runtime::{ProcessBound, wait};

/// The coordination server, in this process. It speaks etcd's v3 API; it runs until it is stopped or dropped.
///
/// Args:
///     listen: ``host:port``, on loopback at a free port unless given. The host is an IP address.
///     data_dir: the directory of the write-ahead log. Without it, all data are lost when the server ends.
///     user, password: the credentials of clients; by default, clients need none.
///     cert, key: files, for TLS.
///
/// >>> with rallypoint.Server() as server:
/// ...     rallypoint.EtcdStore(rallypoint.Client(server.endpoint), "/trial").num_keys()
/// 0
#[pyclass(module = "rallypoint", frozen)]
pub(crate) struct Server {
    address: SocketAddr,
    running: Mutex<Option<ProcessBound<Running>>>,
}

struct Running {
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<(), ServeError>>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (listen = "127.0.0.1:0", *, data_dir = None, user = None, password = None, cert = None,
                        key = None))]
    fn create(
        py: Python<'_>,
        listen: &str,
        data_dir: Option<PathBuf>,
        user: Option<String>,
        password: Option<String>,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> PyResult<Self> {
        let listen: SocketAddr = listen.parse().map_err(|_| {
            let fix =
                "give an IP address and a port, such as 127.0.0.1:2379; port 0 takes a free one";
            wrong_argument(py, format!("listen {listen:?}: {fix}"))
        })?;
        let credentials = match (user, password) {
            (Some(user), Some(password)) => Some(Credentials { user, password }),
            (None, None) => None,
            _ => return Err(wrong_argument(py, "give user and password, or neither".to_owned())),
        };
        let tls = match (cert, key) {
            (Some(cert), Some(key)) => Some(ServerTls {
                cert: read(py, "cert", &cert)?,
                key: read(py, "key", &key)?,
                client_ca: None,
            }),
            (None, None) => None,
            _ => return Err(wrong_argument(py, "give cert and key, or neither".to_owned())),
        };
        let options = ServerOptions::default().with(|options| {
            options.data_dir = data_dir;
            options.tls = tls;
            options.credentials = credentials;
        });
        let (address, running) = wait(py, start(listen, options))?.or_raise(py)?;
        Ok(Self { address, running: Mutex::new(Some(ProcessBound::new(running))) })
    }

    /// The endpoint for clients: ``host:port``.
    #[getter]
    fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// The address of the server: host and port.
    #[getter]
    fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// Ends the server after requests under way have finished. A second call does nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Running { stop, task }) = running.and_then(ProcessBound::take) else {
            return Ok(());
        };
        stop.cancel();
        match wait(py, task)? {
            Ok(ended) => ended.or_raise(py),
            // An error means that the server has ended already.
            Err(_) => Ok(()),
        }
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyAny>) -> PyResult<()> {
        self.stop(py)
    }

    fn __repr__(&self) -> String {
        format!("<Server at {}>", self.address)
    }
}

async fn start(
    listen: SocketAddr,
    options: ServerOptions,
) -> Result<(SocketAddr, Running), ServeError> {
    let listener = TcpListener::bind(listen).await?;
    let address = listener.local_addr()?;
    let server = Native::open(options).await?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let run = async move { server.run(listener, stopped.cancelled()).await };
    Ok((address, Running { stop, task: AbortOnDropHandle::new(tokio::spawn(run)) }))
}

fn read(py: Python<'_>, what: &str, path: &Path) -> PyResult<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        wrong_argument(
            py,
            format!("{what} {:?}: {error}; give a file in PEM form", path.display().to_string()),
        )
    })
}
