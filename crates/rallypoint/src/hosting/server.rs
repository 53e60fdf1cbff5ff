//! The coordination server in this process, where the endpoint names this host.
//!
//! Several launchers on one host may all be meant: the first to come serves, and the others stand by. If it
//! ends while they run, one of them takes its place. What was known is gone then, so the nodes meet anew;
//! a job that must outlive any host wants an etcd cluster. A server that somebody started by hand is nobody's
//! to replace.

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
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::meeting::{Hosting, Meeting};
use crate::blocking::blocking;
use crate::client::{Client, ClientError, ClientOptions, Pem, WatchError};
use crate::server::{ServeError, Server, ServerOptions, ServerTls};

/// What a launcher's server is called in the list of its members, which tells it from others.
const NAME: &str = "rallypoint run";

/// How long it may take to hear who serves.
const QUESTION: Duration = Duration::from_secs(5);

/// How often a stand-by that was too late to serve looks again at most.
const AGAIN: Duration = Duration::from_millis(50);

/// How long a server has to answer what is under way when it stops.
const DRAIN: Duration = Duration::from_secs(1);

/// Why there is no server on this host.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HostError {
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
    address: SocketAddr,
    serves: Arc<AtomicBool>,
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

impl EmbeddedServer {
    /// Starts a server if this host shall have one. An endpoint that was left open is then known.
    ///
    /// # Errors
    /// [`HostError`] if it shall and cannot.
    pub async fn start(meeting: &mut Meeting) -> Result<Option<Self>, HostError> {
        let (address, required) = match meeting.hosting {
            Hosting::Nowhere => return Ok(None),
            Hosting::Loopback => (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), true),
            Hosting::At { address, required } => (address, required),
        };
        let options = options(meeting).await?;
        let (stop, serves) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let (stopped, serving) = (stop.clone(), serves.clone());
        let (address, task) = match TcpListener::bind(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                let server = Server::open(options).await?;
                serves.store(true, Ordering::Relaxed);
                if meeting.hosting == Hosting::Loopback {
                    meeting.parameters.sole = true;
                    meeting.parameters.endpoint = bound.to_string();
                } else {
                    tracing::info!(address = %bound, "this process runs the server of the job");
                }
                (bound, tokio::spawn(run(server, listener, stopped)))
            }
            Err(source) if source.kind() == io::ErrorKind::AddrInUse && !required => {
                let client = ClientOptions {
                    tls: meeting.tls.clone(),
                    credentials: meeting.credentials.clone(),
                    timeout: QUESTION,
                    ..ClientOptions::new([&meeting.parameters.endpoint])
                };
                (address, tokio::spawn(stand_by(address, client, options, stopped, serving)))
            }
            Err(source) => return Err(HostError::Listen { address, source }),
        };
        Ok(Some(Self { address, serves, stop, task: AbortOnDropHandle::new(task) }))
    }

    /// Where it listens, or would.
    pub fn address(&self) -> SocketAddr {
        self.address
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

async fn options(meeting: &Meeting) -> Result<ServerOptions, HostError> {
    let identity = meeting.tls.as_ref().and_then(|tls| tls.identity.clone());
    let read = |(cert, key): (Pem, Pem)| {
        let (cert, key) = (cert.load("cert", "CERTIFICATE")?, key.load("key", "PRIVATE KEY")?);
        Ok::<_, ClientError>(ServerTls { cert, key, client_ca: None })
    };
    let tls = blocking(move || identity.map(read).transpose()).await?;
    let credentials = meeting.credentials.clone();
    let name = NAME.to_owned();
    // Where nobody else is to come, nobody follows either.
    let notes = (meeting.hosting != Hosting::Loopback).then(runtime_directory);
    Ok(ServerOptions { name, tls, credentials, notes, drain: DRAIN, ..ServerOptions::default() })
}

async fn run(server: Server, listener: TcpListener, stop: CancellationToken) {
    if let Err(error) = server.run(listener, stop.cancelled()).await {
        tracing::error!(%error, "the server of this job has ended");
    }
}

/// Serves as soon as no other launcher does.
async fn stand_by(
    address: SocketAddr,
    client: ClientOptions,
    options: ServerOptions,
    stop: CancellationToken,
    serves: Arc<AtomicBool>,
) {
    let listener = tokio::select! {
        listener = free(address, client) => listener,
        () = stop.cancelled() => return,
    };
    let Some(listener) = listener else { return };
    tracing::warn!(%address, "the process that served is gone; this one serves now, and the nodes meet anew");
    serves.store(true, Ordering::Relaxed);
    match Server::open(options).await {
        Ok(server) => run(server, listener, stop.clone()).await,
        Err(error) => tracing::error!(%error, "this process cannot serve either"),
    }
}

/// Waits until the launcher that serves there has ended, and takes its place. Nothing, if the server is not
/// a launcher's: whoever runs that one may start it again, and must find its port free.
async fn free(address: SocketAddr, client: ClientOptions) -> Option<TcpListener> {
    let mut said = false;
    loop {
        // It may end before it has answered.
        let answer = tokio::select! {
            answer = is_launchers(&client) => Some(answer),
            _ = ended(address) => None,
        };
        match answer {
            Some(Ok(true)) => {
                if !said {
                    tracing::info!(%address, "another process of this host serves already; standing by");
                    said = true;
                }
                let _ = ended(address).await;
            }
            Some(Ok(false)) => {
                tracing::info!(%address, "a server is there already");
                return None;
            }
            // This launcher is not let in at all, and will say so itself.
            Some(Err(error)) if error.is_stranger() => return None,
            Some(Err(error)) => tracing::debug!(%error, %address, "nobody says who serves there"),
            None => {}
        }
        if let Ok(listener) = TcpListener::bind(address).await {
            return Some(listener);
        }
        sleep(AGAIN).await;
    }
}

/// Whether the server there is one that a launcher brought along.
async fn is_launchers(client: &ClientOptions) -> Result<bool, ClientError> {
    let members = Client::connect(client.clone()).await?.members().await?;
    Ok(members.iter().all(|member| member.name == NAME))
}

/// Waits until the server there ends: it ends its connections with it. It also ends those that say nothing,
/// after a while, and then there is no harm in looking.
async fn ended(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut said = [0; 64];
    while stream.read(&mut said).await? > 0 {}
    Ok(())
}

/// Waits until no node is left that uses the server, of this job or another, and says who is.
///
/// # Errors
/// If nobody can tell, which is as good as nobody being there: the server is in this process.
pub async fn others_gone(client: &Client) -> Result<(), WatchError> {
    let found = client.range(Range { keys_only: true, ..Range::new(KeyRange::all()) }).await?;
    let is_node = |key: &Bytes| Keys::node_of(key).is_some();
    let mut left: BTreeSet<Bytes> =
        found.kvs.into_iter().map(|kv| kv.key).filter(is_node).collect();
    if left.is_empty() {
        return Ok(());
    }
    let nodes = left.iter().filter_map(|key| Keys::node_of(key)).collect::<Vec<_>>().join(", ");
    tracing::info!(
        nodes,
        "other nodes use the server of this process; it stays until they end, or until a second signal"
    );
    let watch = Watch::new(KeyRange::all()).from_revision(found.revision + 1);
    let mut watcher = client.watch([watch]).await?;
    while !left.is_empty() {
        for event in watcher.next().await?.events {
            match event.kind {
                EventKind::Put if is_node(&event.kv.key) => left.insert(event.kv.key),
                EventKind::Put => false,
                EventKind::Delete => left.remove(&event.kv.key),
            };
        }
    }
    Ok(())
}
