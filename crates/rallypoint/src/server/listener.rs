//! Connections, from the moment they are accepted until HTTP/2 takes over.
//!
//! A connection without a first message, or without a finished handshake, is closed after a time-out; a
//! connection over the limit is refused with a reason. Each connection ends when the server does.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic_health::pb::health_server::Health;

use super::grpc::{Calls, MOST_STREAMS, Router};

use crate::log_target::SERVER;

/// The interval of pings on an idle connection, and the time-out of an answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client may take for its first bytes, and for the TLS handshake; and how long an HTTP/1
/// connection lasts, which has no pings and gets one response.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client may take to read the last message, and to close its side.
const LINGER: Duration = Duration::from_secs(1);

/// The number of descriptors that connections leave free: the log is rewritten through new ones, and would
/// grow without bound if it could not be.
const SPARE_DESCRIPTORS: u64 = 64;

/// The connection preface that an HTTP/2 client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) struct Listener<H: Health> {
    pub(super) tcp: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) max_connections: usize,
    pub(super) router: Arc<Router<H>>,
    pub(super) stopping: CancellationToken,
}

impl<H: Health> Listener<H> {
    /// Serves until the server stops, and then until the last connection has finished what is under
    /// way. Dropping the future cuts all connections.
    pub(super) async fn run(self) {
        let limit = self.max_connections.min(descriptors_to_spare()).min(Semaphore::MAX_PERMITS);
        if limit < self.max_connections {
            tracing::debug!(
                target: SERVER,
                limit,
                "the limit of open descriptors leaves room for fewer connections"
            );
        }
        let room = Arc::new(Semaphore::new(limit));
        let mut connections = JoinSet::new();
        let closed = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = self.stopping.cancelled() => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Most often no descriptor is left; a connection that ends frees one.
                    tracing::warn!(target: SERVER, %error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                tracing::warn!(target: SERVER, limit, "a connection was refused: too many");
                // To a TLS client the reason would only look like a broken handshake.
                if self.tls.is_none() {
                    refuse(&stream, limit);
                }
                continue;
            };
            let (tls, router) = (self.tls.clone(), self.router.clone());
            let closed = closed.clone();
            connections.spawn(async move {
                serve(stream, tls, router, closed).await;
                drop(permit);
            });
        }
        // From here on no client can connect. Only then are the connections ended: a client connects again at once, and
        // must be refused. A connection that is not accepted any more is reset, and so is the request on it.
        drop(self.tcp);
        closed.cancel();
        while connections.join_next().await.is_some() {}
    }
}

async fn serve<H: Health>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Arc<Router<H>>,
    closed: CancellationToken,
) {
    // Responses are small, and a client waits for each.
    let _ = stream.set_nodelay(true);
    let Ok(local_address) = stream.local_addr() else { return };
    let peer = stream.peer_addr().ok();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let io = match tls {
        None => Io::Plain(stream),
        Some(acceptor) => match timeout(PATIENCE, acceptor.accept(stream).into_fallible()).await {
            Ok(Ok(stream)) => Io::Tls(Box::new(stream)),
            Ok(Err((error, stream))) => {
                tracing::info!(target: SERVER, ?peer, %error, "a TLS handshake failed");
                return linger(stream).await;
            }
            Err(_) => return tracing::info!(target: SERVER, ?peer, "a TLS handshake took too long"),
        },
    };
    let calls = Arc::new(Calls::new());
    let io = TokioIo::new(AcceptedConnection::new(io, calls.clone()));
    let service = service_fn(move |request| {
        let (router, calls) = (router.clone(), calls.clone());
        let under_way = calls.begin();
        async move {
            let response = router.call(request, local_address, &calls).await;
            drop(under_way);
            Ok::<_, Infallible>(response)
        }
    });
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = closed.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: SERVER, error, "a connection ended");
    }
}

/// The number of connections that the limit of open descriptors allows.
fn descriptors_to_spare() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    // Of a low limit, connections get half: a rendezvous needs more than one.
    let left = limit.map_or(u64::MAX, |limit| limit - SPARE_DESCRIPTORS.min(limit / 2));
    usize::try_from(left).unwrap_or(usize::MAX)
}

/// Lets a client read why it was refused: a close while data of the client is still unread would reset the
/// connection, and discard the reason.
async fn linger(mut stream: TcpStream) {
    let _ = stream.shutdown().await;
    let mut unread = [0; 1024];
    let read = async { while stream.read(&mut unread).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(LINGER, read).await;
}

/// Refuses a client over the limit in HTTP/2's own terms: empty settings, then a GOAWAY with a reason that
/// clients show to their users.
fn refuse(stream: &TcpStream, limit: usize) {
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let reason = format!("{limit} connections are open, which is the limit");
    let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0, 0, 8 + reason.len() as u8, 7, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&0_u32.to_be_bytes());
    bytes.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    bytes.extend_from_slice(reason.as_bytes());
    // The buffer of a new socket has room; if not, the client sees a closed connection.
    let _ = stream.try_write(&bytes);
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// An accepted connection.
struct AcceptedConnection {
    io: Io,
    /// Present until the client has sent the HTTP/2 preface.
    greeting: Option<Greeting>,
    /// The calls of the connection.
    calls: Arc<Calls>,
    /// The write in progress has waited for a turn.
    has_waited: bool,
    /// Once this side is closed: how long the client may take to close its own.
    farewell: Option<Pin<Box<Sleep>>>,
}

impl AcceptedConnection {
    fn new(io: Io, calls: Arc<Calls>) -> Self {
        let deadline = Box::pin(tokio::time::sleep(PATIENCE));
        let greeting = Some(Greeting { missing: Some(PREFACE), deadline });
        Self { io, greeting, calls, has_waited: false, farewell: None }
    }

    /// Lets other tasks run before a write, once until the next flush, if they have calls of this connection under way.
    ///
    /// The first response that is ready wakes the connection before the tasks of the other calls run, so each response
    /// would be written by itself, and most of its cost is that of a write.
    fn poll_turn(&mut self, context: &Context<'_>) -> Poll<()> {
        if self.has_waited || !self.calls.are_under_way() {
            return Poll::Ready(());
        }
        self.has_waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

struct Greeting {
    /// The rest of the preface; `None` once other bytes have come in its place.
    missing: Option<&'static [u8]>,
    deadline: Pin<Box<Sleep>>,
}

impl Greeting {
    /// Takes received bytes. Returns whether the preface is complete.
    fn hear(&mut self, bytes: &[u8]) -> bool {
        self.missing = self.missing.and_then(|missing| {
            let (due, rest) = missing.split_at(bytes.len().min(missing.len()));
            bytes.starts_with(due).then_some(rest)
        });
        self.missing.is_some_and(<[u8]>::is_empty)
    }
}

/// Passes a call on to the stream, with or without TLS.
macro_rules! io {
    ($self:ident, $call:ident ( $($argument:expr),* )) => {
        match &mut $self.io {
            Io::Plain(stream) => Pin::new(stream).$call($($argument),*),
            Io::Tls(stream) => Pin::new(stream.as_mut()).$call($($argument),*),
        }
    };
}

impl AsyncRead for AcceptedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = io!(self, poll_read(context, buffer));
        if let Some(greeting) = &mut self.greeting {
            if read.is_pending() {
                ready!(greeting.deadline.as_mut().poll(context));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            if greeting.hear(&buffer.filled()[before..]) {
                self.greeting = None;
            }
        }
        read
    }
}

impl AsyncWrite for AcceptedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        io!(self, poll_write(context, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_waited = false;
        io!(self, poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.farewell.is_none() {
            ready!(io!(self, poll_shutdown(context)))?;
        }
        // A request that crosses the GOAWAY would reset the connection if it stayed unread, and the client
        // might never see the GOAWAY, which says that the request was not executed.
        let farewell = self.farewell.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        if farewell.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let mut unread = [0; 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut unread);
            let read = ready!(io!(self, poll_read(context, &mut buffer)));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(context));
        io!(self, poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    /// A response waits for those of the other calls, and for no longer than one turn.
    #[tokio::test]
    async fn a_write_waits_for_a_turn_while_other_calls_are_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let calls = Arc::new(Calls::new());
        let mut connection = AcceptedConnection::new(Io::Plain(stream), calls.clone());
        let write = |connection: &mut AcceptedConnection| {
            poll_fn(|context| Pin::new(&mut *connection).poll_write(context, b"response"))
                .now_or_never()
                .is_some()
        };
        assert!(write(&mut connection), "nothing is under way");
        let other = calls.begin();
        assert!(!write(&mut connection), "the response of another call may come");
        assert!(write(&mut connection) && write(&mut connection));
        poll_fn(|context| Pin::new(&mut connection).poll_flush(context)).await.unwrap();
        assert!(!write(&mut connection), "that was another write");
        drop(other);
        poll_fn(|context| Pin::new(&mut connection).poll_flush(context)).await.unwrap();
        assert!(write(&mut connection));
    }
}
