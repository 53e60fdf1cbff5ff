//! A store that stock PyTorch workers use: a server on the wire of `TCPStore`.
//!
//! - `wire`: opcodes, limits, strings.
//! - `request`: decodes requests from a stream of bytes.
//! - `outgoing`: the unsent replies of a client.
//! - `connection`: the socket of a client and the state of its protocol.
//! - `owner`: the node that owns the store, and the peer nodes that are connected to it.
//! - `service`: the state and all clients; executes requests.
//! - `reactor`: the thread that polls the sockets.

mod connection;
pub(crate) mod fuzzing;
mod outgoing;
mod owner;
mod reactor;
mod request;
mod service;
pub(super) mod wire;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use mio::Waker;
use tokio::net::TcpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::CancellationToken;

use self::owner::PeerRegistry;
pub(super) use self::owner::canonical;
pub use self::owner::{ConnectionEnd, LostPeer, PeerReport, StoreOwner};
use self::reactor::Reactor;
use self::service::StoreService;

use crate::log_target::STORE;

/// The backlog of connections: the largest that the operating system allows.
const BACKLOG: i32 = i32::MAX;

/// A server that speaks the wire of PyTorch's `TCPStore`, with a state of its own.
///
/// Stock workers use it at `MASTER_ADDR:MASTER_PORT` when `TORCHELASTIC_USE_AGENT_STORE` is `True`;
/// [`TcpStore`](super::TcpStore) is a client in Rust. The server runs in a thread of its own, independent
/// of the caller's runtime. Like PyTorch's own server, it has no encryption and no password.
///
/// A push wakes one client, the first that waits for the queue. If the next request of that client does not
/// pop the element, or the client disconnects, the next client is woken. A stock client that waits and then
/// sends nothing delays the next client for that long; [`TcpStore`](super::TcpStore) sends a request at once.
///
/// Dropping the server stops it as [`stop`](Self::stop) does, without waiting for its end.
///
/// ```
/// use std::time::Duration;
/// use rallypoint::store::{AgentStore, Store, TcpStore};
/// use tokio::net::TcpSocket;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let socket = TcpSocket::new_v4()?;
/// socket.bind("127.0.0.1:0".parse()?)?;
/// let server = AgentStore::start(socket)?;
///
/// let address = server.address().to_string();
/// let client = TcpStore::connect(&address, Duration::from_secs(30)).await?;
/// client.set(b"greeting", "hello".into()).await?;
/// assert_eq!(client.get(b"greeting").await?, "hello");
/// server.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AgentStore {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    stop: Arc<Waker>,
    ended: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl AgentStore {
    /// Serves a new, empty state on a bound socket, so that its address can be published long before. The
    /// port is never released in between.
    pub fn start(socket: TcpSocket) -> io::Result<Self> {
        Self::serve(socket, StoreService::default())
    }

    /// Serves as [`start`](Self::start) does, and reports the failure of peer nodes to its owner.
    ///
    /// A peer node sends HELLO with the token of the group on a connection that it then holds, and GOODBYE before
    /// it closes that connection. The store sends GOODBYE when it is stopped or dropped. The receiver gets a
    /// [`PeerReport`] for each node that connects, and for each node whose connection ended without GOODBYE. A HELLO
    /// without the token, a second HELLO on the same connection, or a HELLO of more nodes than
    /// [`StoreOwner::max_members`] ends the connection and is not reported. Clients that never send HELLO, such as
    /// stock clients, are not affected.
    pub fn start_as(
        socket: TcpSocket,
        owner: StoreOwner,
    ) -> io::Result<(Self, UnboundedReceiver<PeerReport>)> {
        let (reports, receiver) = unbounded_channel();
        let registry = PeerRegistry::new(owner, reports);
        Ok((Self::serve(socket, StoreService::of(Some(registry)))?, receiver))
    }

    fn serve(socket: TcpSocket, service: StoreService) -> io::Result<Self> {
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = std::net::TcpListener::from(socket.as_fd().try_clone_to_owned()?);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let reactor = Reactor::new(mio::net::TcpListener::from_std(listener), service)?;
        let (connections, stop) = (reactor.connections(), reactor.stop());
        let ended = CancellationToken::new();
        let end = ended.clone().drop_guard();
        let serve = move || {
            // Dropped at the end of the thread, also after a panic.
            let _end = end;
            reactor.run();
        };
        let thread = std::thread::Builder::new().name("agent-store".into()).spawn(serve)?;
        tracing::debug!(target: STORE, %address, "serving a store");
        Ok(Self { address, connections, stop, ended, thread: Some(thread) })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connected clients.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Waits until the server has ended, which happens before [`stop`](Self::stop) only after a fatal error.
    /// Cancel-safe.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Closes all connections, releases the port and drops the keys. All of that is done when the call returns.
    pub async fn stop(mut self) {
        self.tell_to_stop();
        self.ended.cancelled().await;
        // The thread has finished its work, so this does not block.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: STORE, "the thread of the store has panicked");
        }
    }

    /// Tells the server to stop, without waiting for its end.
    pub(crate) fn tell_to_stop(&self) {
        // It fails only if the thread has ended.
        let _ = self.stop.wake();
    }
}

impl Drop for AgentStore {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}
