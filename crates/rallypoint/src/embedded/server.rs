//! Starts the embedded server in this process, or a stand-by for it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rallypoint_core::rendezvous::keys::Keys;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::clients::clients_gone;
use super::decide::{RendezvousConfig, ServerPlacement};
use super::name_lookup::LateName;
use super::order;
use super::standby::{Occupant, StandBy};
use crate::client::{Client, ClientError, Pem, WatchError};
use crate::config::ConfigError;
use crate::log_target::EMBEDDED;
use crate::server::{ServeError, Server, ServerMetrics, ServerOptions, ServerTls};
use crate::succession::HostOrder;
use crate::util::blocking::blocking;

/// The name of an embedded server in the list of its members begins with this, and the name of the run follows.
pub(crate) const RUN_NAME: &str = "rallypoint run ";

/// How long a server that stops may take to answer the requests in flight.
const DRAIN: Duration = Duration::from_secs(1);

/// Why this process cannot run the embedded server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EmbeddedServerError {
    /// The server cannot listen on its address.
    #[error(
        "the server of this job cannot listen on {address}: {source}; name another host or port in \
         --rdzv-endpoint, or give --rdzv-conf is_host=false if the server is there already"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The embedded server of another run listens there.
    #[error(
        "the server at {address} is that of run {run:?}, and ends with it: give this run another port in \
         --rdzv-endpoint, or start a server for both (rallypoint serve)"
    )]
    OtherRun {
        /// The address of that server.
        address: SocketAddr,
        /// The name of that run.
        run: String,
    },
    /// An option is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The certificate of the server cannot be used.
    #[error(transparent)]
    Certificate(#[from] ClientError),
    /// The server does not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The metrics of the server in this process, while there is one. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Serving(Arc<Mutex<Option<ServerMetrics>>>);

impl Serving {
    /// This process runs a server from now on.
    pub(crate) fn begin(&self, metrics: ServerMetrics) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(metrics);
    }

    /// This process runs no server from now on.
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The metrics of the server, if there is one.
    pub(crate) fn metrics(&self) -> Option<ServerMetrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The embedded server, or a stand-by for it, until this is dropped.
///
/// If several processes of one host may serve, the first one does, and each of the remaining ones stands by. When the
/// server ends, a stand-by takes its place. The state of the server is lost then, so the nodes form a new group.
///
/// Dropping it ends the server at once.
#[derive(Debug)]
pub struct EmbeddedServer {
    serving: Serving,
    /// The order of hosts, where other hosts may succeed this one.
    order: Option<HostOrder>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl EmbeddedServer {
    /// Starts the server if it is placed here. An endpoint that was left open is then known.
    ///
    /// # Errors
    /// [`EmbeddedServerError`] if the server cannot be started.
    pub async fn start(config: &mut RendezvousConfig) -> Result<Option<Self>, EmbeddedServerError> {
        let (stop, serving) = (CancellationToken::new(), Serving::default());
        let (address, required) = match config.server {
            ServerPlacement::Elsewhere => return Ok(None),
            ServerPlacement::Loopback => (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), true),
            ServerPlacement::Here { address, required } => (address, required),
            ServerPlacement::Order { .. } => {
                let task = order::start(config, serving.clone(), stop.clone()).await?;
                let task = task.map(AbortOnDropHandle::new);
                let order = config.parameters.succession.clone();
                return Ok(task.map(|task| Self { serving, order, stop, task }));
            }
            ServerPlacement::Undecided { .. } => {
                let standing_by = StandBy::new(config, serving.clone()).await?;
                let Ok(name) = LateName::of(&config.parameters) else { return Ok(None) };
                let task = tokio::spawn(standing_by.until_meant(name, stop.clone()));
                let task = AbortOnDropHandle::new(task);
                return Ok(Some(Self { serving, order: None, stop, task }));
            }
        };
        let task = match TcpListener::bind(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                let server = Server::open(options(config).await?).await?;
                serving.begin(server.metrics());
                if config.server == ServerPlacement::Loopback {
                    config.parameters.sole = true;
                    config.parameters.endpoint = bound.to_string();
                } else {
                    tracing::info!(
                        target: EMBEDDED,
                        address = %bound, "this process runs the server of the job"
                    );
                }
                tokio::spawn(run(server, listener, stop.clone()))
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse && !required => {
                let standing_by = StandBy::new(config, serving.clone()).await?;
                if let Occupant::OtherRun(run) = standing_by.occupant().await {
                    return Err(EmbeddedServerError::OtherRun { address, run });
                }
                tokio::spawn(standing_by.until_free(address, stop.clone()))
            }
            Err(source) => return Err(EmbeddedServerError::Listen { address, source }),
        };
        let task = AbortOnDropHandle::new(task);
        Ok(Some(Self { serving, order: None, stop, task }))
    }

    /// Waits until no node needs this server, whose own node has left: none is left ([`clients_gone`]), or the nodes have
    /// met and go on at another host, where other hosts may serve. In the second case the server refuses all writes.
    ///
    /// If it is dropped, the server may end in that way nevertheless.
    ///
    /// # Errors
    /// As for [`clients_gone`].
    pub async fn not_needed(&self, client: &Client, keys: &Keys) -> Result<(), WatchError> {
        let succeeded = async {
            match &self.order {
                Some(order) => order.succeeded().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The end of the server is an error of its clients.
            biased;
            () = succeeded => Ok(()),
            gone = clients_gone(client, keys) => gone,
        }
    }

    /// Whether this process runs the server at the moment.
    pub fn serves(&self) -> bool {
        self.serving.metrics().is_some()
    }

    /// The metrics of the server, from the moment that this process runs it.
    #[cfg(feature = "cli")]
    pub(crate) fn serving(&self) -> Serving {
        self.serving.clone()
    }

    /// Stops the server after it has answered the requests in flight.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

/// The directory in which processes of this user leave small files for each other, until the host restarts.
pub(crate) fn runtime_directory() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    own.filter(|path| path.is_absolute() && path.is_dir()).unwrap_or_else(std::env::temp_dir)
}

/// The certificate of this node, which a server in its process shows to clients.
pub(crate) async fn certificate(
    config: &RendezvousConfig,
) -> Result<Option<ServerTls>, ClientError> {
    let identity = config.tls.as_ref().and_then(|tls| tls.identity.clone());
    let read = |(cert, key): (Pem, Pem)| {
        let (cert, key) = (cert.load("cert", "CERTIFICATE")?, key.load("key", "PRIVATE KEY")?);
        Ok::<_, ClientError>(ServerTls { cert, key, client_ca: None })
    };
    blocking(move || identity.map(read).transpose()).await
}

pub(super) async fn options(
    config: &RendezvousConfig,
) -> Result<ServerOptions, EmbeddedServerError> {
    let tls = certificate(config).await?;
    let credentials = config.credentials.clone();
    let name = format!("{RUN_NAME}{}", config.parameters.run_id);
    // A server on loopback has no successor that would read its notes.
    let notes = (config.server != ServerPlacement::Loopback).then(runtime_directory);
    Ok(ServerOptions { name, tls, credentials, notes, drain: DRAIN, ..ServerOptions::default() })
}

pub(super) async fn run(server: Server, listener: TcpListener, stop: CancellationToken) {
    if let Err(error) = server.run(listener, stop.cancelled()).await {
        tracing::error!(target: EMBEDDED, %error, "the server of this job has ended");
    }
}
