//! The coordination server in this process, where the endpoint names this host.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::kv::{EventKind, KeyRange, Range, Watch};
use rallypoint_core::rendezvous::keys::Keys;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::name_lookup::Undecided;
use super::rendezvous_config::{RendezvousConfig, ServerPlacement};
use super::standby::StandBy;
use crate::client::{Client, ClientError, Pem, WatchError};
use crate::server::{ServeError, Server, ServerOptions, ServerTls};
use crate::util::blocking::blocking;

/// What a launcher's server is called in the list of its members begins with this, and the name of the run follows.
pub(super) const NAME: &str = "rallypoint run ";

/// How long a server has to answer what is under way when it stops.
const DRAIN: Duration = Duration::from_secs(1);

/// Why there is no server on this host.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EmbeddedServerError {
    /// The address cannot be had.
    #[error(
        "the server of this job cannot listen on {address}: {source}; name another host or port in \
         --rdzv-endpoint, or give --rdzv-conf is_host=false if the server is there already"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The server of another run is there.
    #[error(
        "the server at {address} is that of run {run:?}, and ends with it: give this run another port in \
         --rdzv-endpoint, or start a server for both (rallypoint serve)"
    )]
    OtherRun {
        /// Where.
        address: SocketAddr,
        /// Which.
        run: String,
    },
    /// Its certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] ClientError),
    /// It does not start.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The server, or one that stands by, as long as this is kept.
///
/// Several processes of one host may all be meant: the first to come serves, and the others stand by. If it
/// ends while they run, one of them takes its place. What was known is gone then, so the nodes meet anew.
///
/// Dropping it ends the server at once.
#[derive(Debug)]
pub struct EmbeddedServer {
    serves: Arc<AtomicBool>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl EmbeddedServer {
    /// Starts a server if this host shall have one. An endpoint that was left open is then known.
    ///
    /// # Errors
    /// [`EmbeddedServerError`] if it shall and cannot.
    pub async fn start(config: &mut RendezvousConfig) -> Result<Option<Self>, EmbeddedServerError> {
        let (stop, serves) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (address, required) = match config.server {
            ServerPlacement::Elsewhere => return Ok(None),
            ServerPlacement::Loopback => (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), true),
            ServerPlacement::Here { address, required } => (address, required),
            ServerPlacement::Undecided { .. } => {
                let standing_by = StandBy::new(config, serves.clone()).await?;
                let Ok(undecided) = Undecided::of(&config.parameters) else { return Ok(None) };
                let task = tokio::spawn(standing_by.until_meant(undecided, stop.clone()));
                return Ok(Some(Self { serves, stop, task: AbortOnDropHandle::new(task) }));
            }
        };
        let task = match TcpListener::bind(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                let server = Server::open(options(config).await?).await?;
                serves.store(true, Ordering::Relaxed);
                if config.server == ServerPlacement::Loopback {
                    config.parameters.sole = true;
                    config.parameters.endpoint = bound.to_string();
                } else {
                    tracing::info!(address = %bound, "this process runs the server of the job");
                }
                tokio::spawn(run(server, listener, stop.clone()))
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse && !required => {
                let standing_by = StandBy::new(config, serves.clone()).await?;
                if let Some(run) = standing_by.other_run().await {
                    return Err(EmbeddedServerError::OtherRun { address, run });
                }
                tokio::spawn(standing_by.until_free(address, stop.clone()))
            }
            Err(source) => return Err(EmbeddedServerError::Listen { address, source }),
        };
        Ok(Some(Self { serves, stop, task: AbortOnDropHandle::new(task) }))
    }

    /// Whether it is this process that serves.
    pub fn serves(&self) -> bool {
        self.serves.load(Ordering::Relaxed)
    }

    /// Lets what is under way finish, and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

/// Where processes of this user leave small files for each other, until the machine is started again.
pub(crate) fn runtime_directory() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    own.filter(|path| path.is_absolute() && path.is_dir()).unwrap_or_else(std::env::temp_dir)
}

pub(super) async fn options(
    config: &RendezvousConfig,
) -> Result<ServerOptions, EmbeddedServerError> {
    let identity = config.tls.as_ref().and_then(|tls| tls.identity.clone());
    let read = |(cert, key): (Pem, Pem)| {
        let (cert, key) = (cert.load("cert", "CERTIFICATE")?, key.load("key", "PRIVATE KEY")?);
        Ok::<_, ClientError>(ServerTls { cert, key, client_ca: None })
    };
    let tls = blocking(move || identity.map(read).transpose()).await?;
    let credentials = config.credentials.clone();
    let name = format!("{NAME}{}", config.parameters.run_id);
    // Where nobody else is to come, nobody follows either.
    let notes = (config.server != ServerPlacement::Loopback).then(runtime_directory);
    Ok(ServerOptions { name, tls, credentials, notes, drain: DRAIN, ..ServerOptions::default() })
}

pub(super) async fn run(server: Server, listener: TcpListener, stop: CancellationToken) {
    if let Err(error) = server.run(listener, stop.cancelled()).await {
        tracing::error!(%error, "the server of this job has ended");
    }
}

/// Waits until no node of the run is left, for they use the server of this process, and says who is. Nodes of another
/// run that use it too are not waited for.
///
/// # Errors
/// If nobody can tell, which is as good as nobody being there: the server is in this process.
pub async fn clients_gone(client: &Client, keys: &Keys) -> Result<(), WatchError> {
    let everything = Range { keys_only: true, ..Range::new(KeyRange::all()) };
    let found = client.range(everything).await?;
    let is_node = |key: &Bytes| Keys::node_of(key).is_some();
    let nodes = found.kvs.into_iter().map(|kv| kv.key).filter(is_node);
    let (mut left, strangers): (BTreeSet<Bytes>, BTreeSet<Bytes>) =
        nodes.partition(|key| key.starts_with(keys.root().as_bytes()));
    if !strangers.is_empty() {
        tracing::warn!(
            nodes = names(&strangers),
            "nodes of other runs use the server of this run, which ends with it; give each run a port of its own, or \
             start a server for all of them (rallypoint serve)"
        );
    }
    if left.is_empty() {
        return Ok(());
    }
    tracing::info!(
        nodes = names(&left),
        "other nodes use the server of this process; it stays until they end, or until a second signal"
    );
    let watch = Watch::new(keys.nodes()).from_revision(found.revision + 1);
    let mut watcher = client.watch([watch]).await?;
    while !left.is_empty() {
        for event in watcher.next().await?.events {
            match event.kind {
                EventKind::Put => left.insert(event.kv.key),
                EventKind::Delete => left.remove(&event.kv.key),
            };
        }
    }
    Ok(())
}

fn names(nodes: &BTreeSet<Bytes>) -> String {
    nodes.iter().filter_map(|key| Keys::node_of(key)).collect::<Vec<_>>().join(", ")
}
