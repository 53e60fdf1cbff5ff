//! Connections: one request each, in a bounded time, and a bounded number of them.
//!
//! A client over the limit takes the place of the oldest connection. A probe is answered in a moment, so it is never
//! the oldest for long, and clients that hold connections open cannot keep probes out. A connection that
//! lasts, since its client follows what happens, is counted apart, and its time is not bounded while the
//! client reads.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::access::HasCertificate;
use super::stall::StallLimit;
use crate::log_target::HTTP;

/// Limit of connections at one time.
const MOST_CONNECTIONS: usize = 64;

/// Limit of connections that last.
pub(super) const MOST_VIEWERS: usize = 32;

/// Limits of the head of a request: its bytes, and its headers.
const MOST_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// How long a client may take for everything: the handshake, the request, and reading the response. On a connection
/// that lasts, it is how long the client may read nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait after an accept that failed: most often no descriptor is left.
const AGAIN: Duration = Duration::from_millis(50);

pub(super) struct PageListener {
    pub(super) tcp: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) router: Router,
}

/// A connection, as its request sees it.
pub(super) struct Connection {
    lasts: AtomicBool,
    /// The connections that last, the oldest first.
    viewers: Arc<Mutex<VecDeque<Weak<Self>>>>,
    cut: CancellationToken,
}

impl Connection {
    /// The response goes on for as long as the client reads. The oldest such connection is cut if there are too many.
    pub(super) fn lasts(self: &Arc<Self>) {
        self.lasts.store(true, Ordering::Relaxed);
        let mut viewers = self.viewers.lock().unwrap_or_else(PoisonError::into_inner);
        viewers.retain(|viewer| viewer.strong_count() > 0);
        viewers.push_back(Arc::downgrade(self));
        if viewers.len() > MOST_VIEWERS
            && let Some(oldest) = viewers.pop_front().and_then(|oldest| oldest.upgrade())
        {
            tracing::debug!(target: HTTP, "too many viewers; the oldest is cut");
            oldest.cut.cancel();
        }
    }

    fn is_lasting(&self) -> bool {
        self.lasts.load(Ordering::Relaxed)
    }

    /// Returns when the connection has to end.
    async fn over(&self) {
        tokio::select! {
            () = self.cut.cancelled() => return,
            () = sleep(PATIENCE) => {}
        }
        if self.is_lasting() {
            self.cut.cancelled().await;
        }
    }
}

impl PageListener {
    /// Serves until `stop` is cancelled, and then cuts all connections.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut by_age: VecDeque<Weak<Connection>> = VecDeque::new();
        let viewers = Arc::new(Mutex::new(VecDeque::new()));
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                Some(_) = tasks.join_next() => continue,
                () = stop.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(target: HTTP, %error, "cannot accept a connection");
                    sleep(AGAIN).await;
                    continue;
                }
            };
            by_age.retain(|one| one.upgrade().is_some_and(|one| !one.is_lasting()));
            if by_age.len() >= MOST_CONNECTIONS
                && let Some(oldest) = by_age.pop_front().and_then(|oldest| oldest.upgrade())
            {
                tracing::debug!(target: HTTP, "too many connections; the oldest is cut");
                oldest.cut.cancel();
            }
            let connection = Arc::new(Connection {
                lasts: AtomicBool::new(false),
                viewers: viewers.clone(),
                cut: CancellationToken::new(),
            });
            by_age.push_back(Arc::downgrade(&connection));
            let (tls, router) = (self.tls.clone(), self.router.clone());
            tasks.spawn(async move {
                tokio::select! {
                    () = connection.over() => {}
                    () = serve(stream, tls, router, &connection) => {}
                }
            });
        }
    }
}

async fn serve(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    connection: &Arc<Connection>,
) {
    let _ = stream.set_nodelay(true);
    let stream = StallLimit::new(stream, PATIENCE);
    match tls {
        None => answer(stream, router, connection, false).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => {
                let shown = stream.get_ref().1.peer_certificates().is_some();
                answer(stream, router, connection, shown).await;
            }
            Err(error) => tracing::debug!(target: HTTP, %error, "a TLS handshake failed"),
        },
    }
}

/// Answers the request of a connection. `certified` says that the client has shown a certificate, which the
/// handshake has verified.
async fn answer<S>(stream: S, router: Router, connection: &Arc<Connection>, certified: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = connection.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut router = router.clone();
        request.extensions_mut().insert(connection.clone());
        if certified {
            request.extensions_mut().insert(HasCertificate);
        }
        async move {
            Ok::<_, Infallible>(
                router.call(request.map(Body::new)).await.unwrap_or_else(|never| match never {}),
            )
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MOST_BYTES)
        .max_headers(MOST_HEADERS)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(target: HTTP, %error, "a connection ended");
    }
}
