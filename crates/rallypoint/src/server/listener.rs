//! Connections, from the moment they are accepted until HTTP/2 takes over.
//!
//! Whoever connects and says nothing, or never finishes a handshake, is let go; whoever is one too
//! many is told so. Each connection ends when the server does.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

/// How long a client may take for its first bytes, and for the TLS handshake; and all the time there
/// is for whoever speaks HTTP/1, which is answered with a sentence and has no pings.
const PATIENCE: Duration = Duration::from_secs(10);

/// Descriptors that connections must leave: the log is rewritten through new ones, and the server
/// would stop if it could not.
const SPARE_DESCRIPTORS: u64 = 64;

/// What an HTTP/2 client sends before anything else.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a request can know of the connection that it came on.
#[derive(Debug, Clone)]
pub(super) struct ConnectionInfo {
    pub(super) local_address: SocketAddr,
}

pub(super) struct Listener {
    pub(super) tcp: TcpListener,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) max_connections: usize,
    /// Ends every connection.
    pub(super) over: CancellationToken,
}

impl Listener {
    /// Accepts for as long as it is polled and somebody takes the connections.
    pub(super) async fn run(self, ready: mpsc::Sender<io::Result<Connection>>) {
        let limit = self.max_connections.min(descriptors_to_spare()).min(Semaphore::MAX_PERMITS);
        if limit < self.max_connections {
            tracing::info!(
                limit,
                "the limit of open descriptors leaves room for fewer connections"
            );
        }
        let room = Arc::new(Semaphore::new(limit));
        let mut handshakes = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => accepted,
                Some(_) = handshakes.join_next() => continue,
                () = ready.closed() => return,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Most often we are out of descriptors; others may give some back.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                tracing::warn!(limit, "a connection was refused: too many");
                // Behind TLS the words would only look like a broken handshake.
                if self.tls.is_none() {
                    refuse(&stream, limit);
                }
                continue;
            };
            // Answers are small and somebody is waiting for each.
            let _ = stream.set_nodelay(true);
            let Ok(local_address) = stream.local_addr() else { continue };
            let connection = Connection {
                io: Io::Plain(stream),
                info: ConnectionInfo { local_address },
                greeting: Some(Greeting {
                    missing: Some(PREFACE),
                    deadline: Box::pin(tokio::time::sleep(PATIENCE)),
                }),
                over: Box::pin(self.over.clone().cancelled_owned()),
                _permit: permit,
            };
            match &self.tls {
                None => {
                    if ready.send(Ok(connection)).await.is_err() {
                        return;
                    }
                }
                Some(acceptor) => {
                    handshakes.spawn(handshake(acceptor.clone(), connection, ready.clone()));
                }
            }
        }
    }
}

/// How many connections the limit of open descriptors has room for.
fn descriptors_to_spare() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let left = limit.map_or(u64::MAX, |limit| limit.saturating_sub(SPARE_DESCRIPTORS).max(1));
    usize::try_from(left).unwrap_or(usize::MAX)
}

async fn handshake(
    acceptor: TlsAcceptor,
    mut connection: Connection,
    ready: mpsc::Sender<io::Result<Connection>>,
) {
    let Io::Plain(stream) = connection.io else { return };
    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            connection.io = Io::Tls(Box::new(stream));
            let _ = ready.send(Ok(connection)).await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Tells a client that it is one too many, in HTTP/2's own words: empty settings, then a farewell
/// with a reason that clients show to their users.
fn refuse(stream: &TcpStream, limit: usize) {
    const ENHANCE_YOUR_CALM: u32 = 0xb;
    let reason = format!("{limit} connections are open, which is the limit");
    let mut bytes = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(&[0, 0, 8 + reason.len() as u8, 7, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&0_u32.to_be_bytes());
    bytes.extend_from_slice(&ENHANCE_YOUR_CALM.to_be_bytes());
    bytes.extend_from_slice(reason.as_bytes());
    // The buffer of a new socket has room; if not, the closed connection says enough.
    let _ = stream.try_write(&bytes);
}

enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// An accepted connection.
pub(super) struct Connection {
    io: Io,
    info: ConnectionInfo,
    /// Until the client has shown that it means business.
    greeting: Option<Greeting>,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

struct Greeting {
    /// What must still come; `None` once something else has come in its place.
    missing: Option<&'static [u8]>,
    deadline: Pin<Box<Sleep>>,
}

impl Greeting {
    /// Takes what came, and tells whether the greeting is complete.
    fn hear(&mut self, bytes: &[u8]) -> bool {
        self.missing = self.missing.and_then(|missing| {
            let (due, rest) = missing.split_at(bytes.len().min(missing.len()));
            bytes.starts_with(due).then_some(rest)
        });
        self.missing.is_some_and(<[u8]>::is_empty)
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        self.info.clone()
    }
}

impl Connection {
    /// Ends what would wait if the server is over. While there is something to do, that can wait.
    fn or_over<T>(
        &mut self,
        polled: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if polled.is_pending() && self.over.as_mut().poll(context).is_ready() {
            let stopped = io::Error::new(io::ErrorKind::ConnectionAborted, "stopped");
            return Poll::Ready(Err(stopped));
        }
        polled
    }
}

/// Hands a call on to whichever stream it is.
macro_rules! io {
    ($self:ident, $call:ident ( $($argument:expr),* )) => {
        match &mut $self.io {
            Io::Plain(stream) => Pin::new(stream).$call($($argument),*),
            Io::Tls(stream) => Pin::new(stream.as_mut()).$call($($argument),*),
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = io!(self, poll_read(context, buffer));
        let read = self.or_over(read, context);
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

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = io!(self, poll_write(context, bytes));
        self.or_over(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        io!(self, poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        io!(self, poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = io!(self, poll_write_vectored(context, slices));
        self.or_over(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
