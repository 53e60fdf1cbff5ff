//! The process over HTTP, if its user asks for it: health, readiness, metrics, and the page of runs.
//!
//! - `listener`: connections and their limits.
//! - `access`: which pages need the secret or a certificate.
//! - `probes`, `metrics`: the pages for programs.
//! - `ui`: the page of runs, for people.
//!
//! The server has a thread and a runtime of its own: a client of it takes nothing from the job but processor time, and
//! a job that is stuck does not keep it from saying so. A page is a route of [`router`]; what it tells comes from
//! [`Told`].

mod access;
mod listener;
mod metrics;
mod probes;
mod stall;
#[cfg(test)]
mod tests;
mod ui;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use prometheus::proto::MetricFamily;
use thiserror::Error;
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

use self::access::{Access, authorize};
use self::listener::PageListener;
use self::ui::Feed;
pub(crate) use self::ui::RunSource;
pub(crate) use crate::config::values::http_address as address;
use crate::credentials::Credentials;
use crate::log_target::HTTP;
use crate::server::{ServerTls, TlsError, TlsUse, acceptor};

/// What the process tells. It is asked from threads that are not the job's.
pub(crate) trait Told: Send + Sync + 'static {
    /// Whether the process does its work; if not, a sentence that says what it waits for.
    fn readiness(&self) -> Result<(), String>;

    /// The metrics as they are now. May block.
    fn metrics(&self) -> Vec<MetricFamily>;
}

/// Where the process tells it, and whom.
#[derive(Debug, Clone)]
pub(crate) struct HttpOptions {
    /// The address to listen on; port 0 picks a free port.
    pub(crate) address: SocketAddr,
    /// The certificate. Without it, connections are not encrypted.
    pub(crate) tls: Option<ServerTls>,
    /// What a request must have, but for the probes.
    pub(crate) credentials: Option<Credentials>,
}

/// What the process tells, and to whom it shows runs.
pub(crate) struct Pages {
    /// What it tells of itself.
    pub(crate) told: Arc<dyn Told>,
    /// The runs that the page shows; without them there is no page.
    pub(crate) runs: Option<RunSource>,
}

/// Why the process does not tell anything over HTTP.
#[derive(Debug, Error)]
pub(crate) enum HttpError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; --http, or http in --rdzv-conf, names another address")]
    Listen { address: SocketAddr, source: io::Error },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
    /// There is no thread for it.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// The server, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct HttpServer {
    url: String,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl HttpServer {
    /// Starts the server. Must be called on the runtime of the job, whose health the probe asks for.
    ///
    /// # Errors
    /// [`HttpError`] if the address or the certificate cannot be used.
    pub(crate) fn start(options: HttpOptions, pages: Pages) -> Result<Self, HttpError> {
        let Pages { told, runs } = pages;
        let HttpOptions { address, tls, credentials } = options;
        let listen = |source| HttpError::Listen { address, source };
        let wants_certificate = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let tls = tls.map(|tls| acceptor(&tls, TlsUse::Pages)).transpose()?;
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().map_err(listen)?);
        let process = Process { told, job: Handle::current() };
        let access = Arc::new(Access { credentials, wants_certificate, has_tls: tls.is_some() });
        let feed = runs.map(|runs| Arc::new(Feed::new(runs)));
        let has_page = feed.is_some();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serve = move || -> io::Result<()> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let served = runtime.block_on(async {
                let tcp = tokio::net::TcpListener::from_std(listener)?;
                let router = router(process, feed.clone(), access);
                let reading = async {
                    match &feed {
                        Some(feed) => feed.run().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = PageListener { tcp, tls, router }.run(&stopped) => {}
                    () = reading => {}
                }
                Ok(())
            });
            // A page may still wait for a file system.
            runtime.shutdown_background();
            served
        };
        tracing::info!(target: HTTP, "health and metrics are at {url}");
        if has_page {
            tracing::info!(target: HTTP, "the page of runs is at {url}/");
        }
        let thread = thread::Builder::new()
            .name("rallypoint-http".to_owned())
            .spawn(move || {
                if let Err(error) = serve() {
                    tracing::error!(target: HTTP, %error, "health and metrics cannot be served");
                }
            })
            .map_err(HttpError::Thread)?;
        Ok(Self { url, stop, thread: Some(thread) })
    }

    /// The address of the pages, with the port that was picked.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It has nothing to finish: all connections are cut.
            let _ = thread.join();
        }
    }
}

/// What the pages for programs are made from.
#[derive(Clone)]
struct Process {
    told: Arc<dyn Told>,
    /// The runtime of the job.
    job: Handle,
}

/// All pages.
fn router(process: Process, feed: Option<Arc<Feed>>, access: Arc<Access>) -> Router {
    let for_probes =
        Router::new().route("/healthz", get(probes::healthz)).route("/readyz", get(probes::readyz));
    let for_the_authorized = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route_layer(from_fn_with_state(access.clone(), authorize));
    let mut router = for_probes.merge(for_the_authorized).with_state(process);
    if let Some(feed) = feed {
        router = router.merge(ui::router(feed, access));
    }
    router.layer(from_fn(ui::guarded))
}
