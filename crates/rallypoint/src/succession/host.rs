//! A host that may serve: it listens from the start, answers that it stands by, and serves when its node decides so.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{net, sync::Arc};

use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::succession::order::HostAnswer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::embedded::Serving;
use crate::log_target::EMBEDDED;
use crate::server::{ServeError, Server, ServerOptions, ServerRight};
use crate::util::backoff::Backoff;

/// How often a server checks its right in the time to live of a lease.
const CHECKS_PER_TTL: u32 = 4;

/// How long a host that begins to serve answers the questions that were under way.
const LAST_ANSWERS: Duration = Duration::from_millis(300);

/// The pauses of a host that fails again and again to serve or to stand by. Most often no descriptor is left.
const RETRIES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));

/// A host that has answered for so long begins again with the shortest pause when it fails.
const LASTED: Duration = Duration::from_secs(10);

/// The part of a server in the succession.
#[derive(Debug, Clone)]
pub(crate) struct HostRole {
    /// The host.
    pub(crate) host: Arc<OwnHost>,
    /// Whether the host serves; otherwise it stands by.
    pub(crate) serves: bool,
}

/// The state of this host, which its server and its node share.
#[derive(Debug)]
pub(crate) struct OwnHost {
    run_id: String,
    keys: Keys,
    lease_ttl: Duration,
    /// The node in whose process the host answers.
    node_id: OnceLock<String>,
    /// Whether that node looks for its server. Until then it opens none.
    looks: AtomicBool,
    /// The latest group that the node of this process knows of.
    remembers: AtomicU64,
    /// The latest group that any node which asked knows of.
    told: AtomicU64,
    /// Whether the host is to serve.
    open: watch::Sender<bool>,
    /// The right of the present server.
    right: Mutex<Option<ServerRight>>,
}

impl OwnHost {
    pub(super) fn new(run_id: &str, keys: Keys, lease_ttl: Duration) -> Self {
        Self {
            run_id: run_id.to_owned(),
            keys,
            lease_ttl,
            node_id: OnceLock::new(),
            looks: AtomicBool::new(false),
            remembers: AtomicU64::new(0),
            told: AtomicU64::new(0),
            open: watch::Sender::new(false),
            right: Mutex::default(),
        }
    }

    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The node of this process; empty as long as it has no id.
    pub(crate) fn node_id(&self) -> &str {
        self.node_id.get().map_or("", String::as_str)
    }

    pub(crate) fn keys(&self) -> Keys {
        self.keys.clone()
    }

    pub(crate) fn lease_ttl(&self) -> Duration {
        self.lease_ttl
    }

    /// Another node asks, and tells which group it remembers. Returns the latest group that any node knows of.
    pub(crate) fn told(&self, remembers: u64) -> u64 {
        let told = self.told.fetch_max(remembers, Ordering::Relaxed).max(remembers);
        told.max(self.remembers.load(Ordering::Relaxed))
    }

    /// Sets the node of this process.
    pub(super) fn set_node(&self, id: &str) {
        let _ = self.node_id.set(id.to_owned());
    }

    /// The node of this process looks for its server from now on.
    pub(super) fn looks(&self) {
        self.looks.store(true, Ordering::Relaxed);
    }

    /// Whether the node of this process would open a server here if it is this host's turn.
    pub(crate) fn may_serve(&self) -> bool {
        self.looks.load(Ordering::Relaxed)
    }

    /// The answer to the node of this process, which remembers this group.
    pub(super) fn answer(&self, remembers: u64) -> HostAnswer {
        self.remembers.fetch_max(remembers, Ordering::Relaxed);
        match self.right() {
            Some(right) => HostAnswer::Serves { formed: right.formed() },
            None => HostAnswer::StandsBy { remembers: self.told(0) },
        }
    }

    /// Serves from now on.
    pub(super) fn open(&self) {
        self.open.send_if_modified(|open| !std::mem::replace(open, true));
    }

    /// Stands by from now on.
    pub(super) fn close(&self) {
        self.open.send_if_modified(|open| std::mem::replace(open, false));
    }

    /// Stands by from now on if the server has lost its right.
    pub(super) fn give_up_lost_right(&self) {
        if self.right().is_some_and(|right| !right.holds()) {
            self.close();
        }
    }

    pub(super) fn right(&self) -> Option<ServerRight> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_right(&self, right: Option<ServerRight>) {
        *self.right.lock().unwrap_or_else(PoisonError::into_inner) = right;
    }

    /// Answers on `listener` until `stop`, as a server or as a stand-by. `serving` has the server while there is one.
    pub(crate) async fn run(
        self: Arc<Self>,
        listener: net::TcpListener,
        options: ServerOptions,
        serving: Serving,
        stop: CancellationToken,
    ) {
        // The stand-by before, which answers the questions that were under way when the host began to serve.
        let mut draining = None;
        let mut retries = RETRIES;
        while !stop.is_cancelled() {
            let begun = Instant::now();
            let serves = *self.open.borrow();
            let phase = match serves {
                true => self.serve(&listener, &options, &serving, &stop).await,
                false => self.stand_by(&listener, &options, &stop).await.map(|ending| {
                    draining = Some(ending);
                }),
            };
            if let Err(error) = phase {
                let error = crate::error_chain(&error);
                tracing::error!(target: EMBEDDED, error, "this host of the order does not answer");
                if begun.elapsed() >= LASTED {
                    retries.reset();
                }
                let _ = stop.run_until_cancelled(retries.wait()).await;
            }
        }
        drop(draining);
    }

    /// Stands by until the host is to serve, or until `stop`. Returns the task that answers the questions under way.
    async fn stand_by(
        self: &Arc<Self>,
        listener: &net::TcpListener,
        options: &ServerOptions,
        stop: &CancellationToken,
    ) -> Result<AbortOnDropHandle<Result<(), ServeError>>, ServeError> {
        let server = Server::open(self.options(options, false)).await?;
        let (ends, listener) = (stop.child_token(), again(listener)?);
        let ended = ends.clone().cancelled_owned();
        let answered = {
            let ends = ends.clone();
            async move {
                ends.cancelled().await;
                sleep(LAST_ANSWERS).await;
            }
        };
        let mut task = AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::select! {
                ended = server.run(listener, ended) => ended,
                () = answered => Ok(()),
            }
        }));
        let mut open = self.open.subscribe();
        tokio::select! {
            ended = &mut task => match ended {
                Ok(Ok(())) if stop.is_cancelled() => {}
                Ok(Err(error)) => return Err(error),
                // It has panicked, or ended although nobody has ended it.
                Ok(Ok(())) | Err(_) => return Err(ServeError::Broken),
            },
            _ = open.wait_for(|open| *open) => ends.cancel(),
        }
        Ok(task)
    }

    async fn serve(
        self: &Arc<Self>,
        listener: &net::TcpListener,
        options: &ServerOptions,
        serving: &Serving,
        stop: &CancellationToken,
    ) -> Result<(), ServeError> {
        let server = Server::open(self.options(options, true)).await?;
        let (right, accepting) = (server.right(), again(listener)?);
        tracing::info!(
            target: EMBEDDED,
            address = ?listener.local_addr().ok(), "this process runs the server of the job"
        );
        self.set_right(Some(right.clone()));
        serving.begin(server.metrics());
        let mut open = self.open.subscribe();
        let ends = async {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = open.wait_for(|open| !*open) => {}
                () = self.right_over(&right) => tracing::warn!(
                    target: EMBEDDED,
                    "the server of this process has not heard half of its group for {:?}, and ends; the nodes \
                     form a group where more than half of the last one meet", self.lease_ttl
                ),
            }
        };
        let ended = server.run(accepting, ends).await;
        self.set_right(None);
        serving.end();
        self.close();
        ended
    }

    /// Waits until the server has lost its right for good.
    async fn right_over(&self, right: &ServerRight) {
        while !right.is_over() {
            sleep(self.lease_ttl / CHECKS_PER_TTL).await;
        }
    }

    fn options(self: &Arc<Self>, options: &ServerOptions, serves: bool) -> ServerOptions {
        let role = HostRole { host: self.clone(), serves };
        options.clone().with(|options| options.role = Some(role))
    }
}

/// Another handle of the same listening socket, so that connections are accepted from one phase to the next.
fn again(listener: &net::TcpListener) -> io::Result<TcpListener> {
    TcpListener::from_std(listener.try_clone()?)
}
