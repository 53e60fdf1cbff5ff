//! Connections: one request each, in a bounded time, and a bounded number of them.
//!
//! A client over the limit takes the place of the oldest connection. A probe is answered in a moment, so it is never
//! the oldest for long, and clients that hold connections open cannot keep probes out.

use std::collections::VecDeque;
use std::convert::Infallible;
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
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::access::HasCertificate;
use crate::log_target::HTTP;

/// Limit of connections at one time.
const MOST_CONNECTIONS: usize = 64;

/// Limits of the head of a request: its bytes, and its headers.
const MOST_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;

/// How long a client may take for everything: the handshake, the request, and reading the response.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait after an accept that failed: most often no descriptor is left.
const AGAIN: Duration = Duration::from_millis(50);

pub(super) struct PageListener {
    pub(super) tcp: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) router: Router,
}

impl PageListener {
    /// Serves until `stop` is cancelled, and then cuts all connections.
    pub(super) async fn run(self, stop: &CancellationToken) {
        let mut connections = JoinSet::new();
        let mut by_age: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stop.cancelled() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(target: HTTP, %error, "cannot accept a connection");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            by_age.retain(|connection| !connection.is_finished());
            if by_age.len() >= MOST_CONNECTIONS
                && let Some(oldest) = by_age.pop_front()
            {
                tracing::debug!(target: HTTP, "too many connections; the oldest is cut");
                oldest.abort();
            }
            let (tls, router) = (self.tls.clone(), self.router.clone());
            by_age.push_back(connections.spawn(async move {
                let _ = timeout(PATIENCE, serve(stream, tls, router)).await;
            }));
        }
    }
}

async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => answer(stream, router, false).await,
        Some(acceptor) => match acceptor.accept(stream).await {
            Ok(stream) => {
                let shown = stream.get_ref().1.peer_certificates().is_some();
                answer(stream, router, shown).await;
            }
            Err(error) => tracing::debug!(target: HTTP, %error, "a TLS handshake failed"),
        },
    }
}

/// Answers the request of a connection. `certified` says that the client has shown a certificate, which the
/// handshake has verified.
async fn answer<S>(stream: S, router: Router, certified: bool)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut router = router.clone();
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
