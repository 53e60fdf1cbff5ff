//! The coordination server: etcd's v3 gRPC on one node, in memory or on disk.
//!
//! - `engine`: the store with its lock, clock, log and the watch streams to wake.
//! - `grpc`: the router, the response header, and the services, a file each.
//! - `listener`, `tls`: connections and certificates.
//! - `local`: the server for readers in its own process.
//! - `metrics`: what the server counts, under etcd's names.
//! - `wal`: the write-ahead log in the data directory.
//! - `right`: whether the server may grant and renew leases, where hosts succeed each other as servers.
//! - `predecessor`: what a server in memory knows of the server before it on the same port.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rallypoint::server::{ServerOptions, serve};
//!
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let server = tokio::spawn(serve(listener, ServerOptions::default(), async {
//!     let _ = stopped.await;
//! }));
//! // Any etcd client can use it now.
//! drop(stop);
//! server.await??;
//! # Ok(())
//! # }
//! ```

mod engine;
mod grpc;
mod hash;
mod listener;
#[cfg(feature = "cli")]
mod local;
mod metrics;
mod predecessor;
mod right;
mod tls;
pub(crate) mod wal;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rallypoint_core::kv::Time;
use rallypoint_core::mvcc::{Mvcc, MvccOptions, OutOfOrder};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "cli")]
pub(crate) use self::grpc::dial_back_greeting;
#[cfg(feature = "cli")]
pub(crate) use self::local::{LocalChanges, LocalServer};
pub(crate) use self::metrics::ServerMetrics;
pub use self::tls::{ServerTls, TlsError};
pub(crate) use self::tls::{TlsUse, acceptor};
pub use self::wal::WalError;
pub use crate::credentials::Credentials;

use self::engine::{Engine, LogThread};
use self::grpc::router;
use self::listener::Listener;
use self::predecessor::Note;
use self::wal::Wal;
use crate::log_target::SERVER;
use crate::succession::HostRole;
use crate::util::blocking::blocking;

/// The options of a server. The default is a server in memory without authentication and with etcd's limits.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// The name of the server in the list of members.
    pub name: String,
    /// The directory of the write-ahead log. Without it, all data is lost when the server ends.
    pub data_dir: Option<PathBuf>,
    /// Without a data directory: the directory of a file that holds the time of the last lease renewal, from which the
    /// next server on the same port knows that nodes may hold leases of this one. Without it, that server does not know.
    pub notes: Option<PathBuf>,
    /// The TLS certificates. Without them, connections are not encrypted.
    pub tls: Option<ServerTls>,
    /// The user that clients must authenticate as. Without it, no authentication is required.
    pub credentials: Option<Credentials>,
    /// The limits of the store.
    pub store: MvccOptions,
    /// Limit of the size of a request that writes. etcd: 1.5 MiB.
    pub max_request_bytes: usize,
    /// Limit of connections at one time.
    pub max_connections: usize,
    /// The interval of progress notifications to idle watches that requested them, so that such a watch can
    /// resume from there when the revision it began at is compacted. At least 100 ms. etcd: 10 minutes.
    pub progress_interval: Duration,
    /// How long requests under way may take to finish when the server stops.
    pub drain: Duration,
    /// The part of the server where hosts succeed each other.
    pub(crate) role: Option<HostRole>,
}

impl ServerOptions {
    /// These options after `change`, so that a single expression can set several of them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            name: "rallypoint".to_owned(),
            data_dir: None,
            notes: None,
            tls: None,
            credentials: None,
            store: MvccOptions::default(),
            max_request_bytes: 1536 << 10,
            max_connections: 100_000,
            progress_interval: Duration::from_secs(60),
            drain: Duration::from_secs(5),
            role: None,
        }
    }
}

/// Why a server did not start, or stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The data directory cannot be used, or the disk failed.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The log is intact but its records do not follow each other, which only a bug can cause.
    #[error("the log in {dir} contradicts itself")]
    Log {
        /// The data directory.
        dir: PathBuf,
        /// The contradiction.
        source: OutOfOrder,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
    /// The listener or a thread of the server could not be started.
    #[error("the listener or a thread of the server cannot be started")]
    Io(#[from] std::io::Error),
    /// A panic has left the store half changed. The log on disk is intact.
    #[error("a panic has left the store half changed; this is a bug, and the log says where")]
    Broken,
}

/// Serves on `listener` until `shutdown` is ready, then lets requests under way finish.
///
/// This combines [`Server::open`] and [`Server::run`]; see there.
pub async fn serve(
    listener: TcpListener,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    Server::open(options).await?.run(listener, shutdown).await
}

/// A server that has read its log and does not listen yet.
pub struct Server {
    options: ServerOptions,
    acceptor: Option<TlsAcceptor>,
    log: Option<LogThread>,
    engine: CloseOnDrop,
}

impl Server {
    /// Checks the options and restores the store from the log. Clients cannot connect yet.
    ///
    /// Must be called on a tokio runtime.
    pub async fn open(options: ServerOptions) -> Result<Self, ServeError> {
        let acceptor = options.tls.as_ref().map(|tls| acceptor(tls, TlsUse::Calls)).transpose()?;
        let mut store = Mvcc::new(options.store.clone());
        let Some(dir) = options.data_dir.clone() else {
            let engine = CloseOnDrop(Arc::new(Engine::new(store, None)));
            if let Some(HostRole { host, serves: true }) = &options.role {
                engine.0.needs_right(host.keys(), host.lease_ttl());
            }
            return Ok(Self { options, acceptor, log: None, engine });
        };
        let reading = move || {
            let (log, records) = Wal::open(&dir)?;
            // The engine's clock starts when the log is read, and leases start with their full time to
            // live, so that their owners can reconnect.
            for record in records {
                store
                    .restore(Time::ZERO, &record)
                    .map_err(|source| ServeError::Log { dir: dir.clone(), source })?;
            }
            tracing::info!(
                target: SERVER,
                dir = %dir.display(), revision = store.revision(), "log read"
            );
            store.start_journal();
            Ok::<_, ServeError>((store, log))
        };
        let (store, log) = blocking(reading).await?;
        let engine = CloseOnDrop(Arc::new(Engine::new(store, Some(&log))));
        let log = Some(engine.0.start_log(log)?);
        Ok(Self { options, acceptor, log, engine })
    }

    /// The metrics of this server, which outlast it without keeping it.
    pub(crate) fn metrics(&self) -> ServerMetrics {
        ServerMetrics::new(&self.engine.0)
    }

    /// The right of this server to grant and renew leases. It does not keep the server.
    pub(crate) fn right(&self) -> ServerRight {
        ServerRight(Arc::downgrade(&self.engine.0))
    }

    /// The server for readers in this process, which outlast it without keeping it.
    #[cfg(feature = "cli")]
    pub(crate) fn local(&self) -> LocalServer {
        LocalServer::new(&self.engine.0)
    }

    /// Serves on `listener` until `shutdown` is ready, then lets requests under way finish.
    ///
    /// With a data directory, everything that was acknowledged is on disk at any moment, even if the process
    /// is killed. When the server stops, watches and keep-alives are ended with
    /// `etcdserver: server stopped`, on which clients try another server.
    ///
    /// Dropping the future ends the server at once: connections are closed, and accepted writes still go to
    /// the disk in the background.
    pub async fn run(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServeError> {
        let Self { options, acceptor, mut log, engine: closing } = self;
        let engine = closing.0.clone();
        let stopping = CancellationToken::new();
        let directory = options.notes.as_deref().filter(|_| log.is_none());
        let note = directory.zip(listener.local_addr().ok()).map(|(at, port)| Note::new(at, port));
        if let Some(note) = &note {
            note.tell(&engine).await;
        }
        let noting = async {
            match &note {
                Some(note) => note.keep(&engine).await,
                None => std::future::pending().await,
            }
        };
        let listener = Listener {
            tcp: listener,
            tls: acceptor,
            max_connections: options.max_connections,
            router: Arc::new(router(&engine, &options, &stopping)),
            stopping: stopping.clone(),
        };
        let stop = async {
            tokio::select! {
                () = shutdown => {}
                () = engine.failed() => {}
            }
            tracing::info!(target: SERVER, "stopping");
            stopping.cancel();
            tokio::time::sleep(options.drain).await;
            tracing::warn!(target: SERVER, "some requests did not finish in time");
        };
        let answer = async {
            if let Some(log) = &mut log {
                log.answer().await;
            }
            // If the log has failed, connected clients still get an error.
            std::future::pending().await
        };
        tokio::select! {
            () = listener.run() => {}
            () = stop => {}
            // This runs for as long as writes are accepted: longer than the other futures, or until the nodes of the run
            // go on at another host.
            () = engine.expire_leases() => {}
            () = answer => {}
            () = noting => {}
        }
        if let Some(note) = &note {
            note.end(&engine).await;
        }
        engine.close();
        if engine.is_broken() {
            return Err(ServeError::Broken);
        }
        if let Some(log) = log {
            log.join().await?;
        }
        Ok(())
    }
}

/// The right of a server to grant and renew leases, where hosts succeed each other as servers. A server that has ended has
/// none.
#[derive(Clone)]
pub(crate) struct ServerRight(Weak<Engine>);

impl std::fmt::Debug for ServerRight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerRight").finish_non_exhaustive()
    }
}

impl ServerRight {
    fn engine(&self) -> Option<Arc<Engine>> {
        self.0.upgrade().filter(|engine| engine.is_open())
    }

    /// Whether the server may grant and renew leases now.
    pub(crate) fn holds(&self) -> bool {
        self.engine().is_some_and(|engine| engine.has_right())
    }

    /// Whether the right is lost for so long that the server ends.
    pub(crate) fn is_over(&self) -> bool {
        self.engine().is_none_or(|engine| engine.right_is_over())
    }

    /// The node of this server has left. If `retires`, the server ends as soon as the others can go on at another host.
    /// Returns what is cancelled then; nothing if it has ended.
    pub(crate) fn retires(&self, retires: bool) -> Option<CancellationToken> {
        self.engine()?.retires(retires)
    }

    /// The last round that formed a group at this server; 0 if none did.
    pub(crate) fn formed(&self) -> u64 {
        self.engine().map_or(0, |engine| engine.formed())
    }
}

/// Closes the engine when it is dropped, however the server ends.
struct CloseOnDrop(Arc<Engine>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}
