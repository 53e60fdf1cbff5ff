//! A store that stock PyTorch workers use: a server on the wire of `TCPStore`.
//!
//! - `wire`: opcodes, limits, strings.
//! - `request`: requests, found in a stream of bytes.
//! - `outgoing`, `connection`: what has yet to be sent to a client; what else is known of it.
//! - `owner`: the node that the store belongs to, and the nodes that have said hello to it.
//! - `room`: the state and all of its clients. Requests are executed here.
//! - `reactor`: the thread that waits for something to do.

mod connection;
pub(crate) mod fuzzing;
mod outgoing;
mod owner;
mod reactor;
mod request;
mod room;
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

use self::owner::Host;
pub(super) use self::owner::canonical;
pub use self::owner::{Ended, Lost, Owner, Report};
use self::reactor::Reactor;
use self::room::Room;

use crate::log_target::STORE;

/// The backlog of connections: the largest that the system allows.
const BACKLOG: i32 = i32::MAX;

/// A server that speaks the wire of PyTorch's `TCPStore`, with a state of its own.
///
/// Stock workers use it at `MASTER_ADDR:MASTER_PORT` when `TORCHELASTIC_USE_AGENT_STORE` is `True`;
/// [`TcpStore`](super::TcpStore) is a client in Rust. It is served by a thread of its own, whatever the
/// caller's runtime is busy with. As with PyTorch's own server there is no encryption and no password.
///
/// A push wakes one client, the first that waits for the queue. If that client then does anything else than take
/// the element, or disconnects, the next one is woken. A stock client that only waits, and then sends nothing,
/// delays the next one for that long; [`TcpStore`](super::TcpStore) sends a request at once.
///
/// Dropping it stops it, as [`stop`](Self::stop) does, but does not wait for the end.
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
    /// Serves a new, empty state on a socket that is bound already, so that its address can be
    /// published long before. It is never released in between.
    pub fn start(socket: TcpSocket) -> io::Result<Self> {
        Self::serve(socket, Room::default())
    }

    /// Serves as [`start`](Self::start) does, and reports the failure of other nodes to its owner.
    ///
    /// A node says hello on a connection that it then holds, with the token of the group, and goodbye before it ends
    /// that; so does the store when it is stopped or dropped. The receiver gets a [`Report`] of each node that
    /// comes, and of each whose connection ended without a goodbye. A hello without the token, a second one on the
    /// same connection, or one more than [`Owner::max_members`] ends the connection and is not reported. Those who
    /// never say hello, such as all stock clients, notice nothing of this.
    pub fn start_as(
        socket: TcpSocket,
        owner: Owner,
    ) -> io::Result<(Self, UnboundedReceiver<Report>)> {
        let (reports, receiver) = unbounded_channel();
        let host = Host::new(owner, reports);
        Ok((Self::serve(socket, Room::of(Some(host)))?, receiver))
    }

    fn serve(socket: TcpSocket, room: Room) -> io::Result<Self> {
        rustix::net::listen(&socket, BACKLOG)?;
        let listener = std::net::TcpListener::from(socket.as_fd().try_clone_to_owned()?);
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let reactor = Reactor::new(mio::net::TcpListener::from_std(listener), room)?;
        let (connections, stop) = (reactor.connections(), reactor.stop());
        let ended = CancellationToken::new();
        let end = ended.clone().drop_guard();
        let serve = move || {
            // However it ends, also in a panic, that is known.
            let _end = end;
            reactor.run();
        };
        let thread = std::thread::Builder::new().name("agent-store".into()).spawn(serve)?;
        tracing::debug!(target: STORE, %address, "serving a store");
        Ok(Self { address, connections, stop, ended, thread: Some(thread) })
    }

    /// Where it listens.
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

    /// Ends all connections, frees the port and forgets the keys. When it returns, all that has happened.
    pub async fn stop(mut self) {
        self.tell_to_stop();
        self.ended.cancelled().await;
        // The thread has nothing left to do, so this does not block.
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: STORE, "the store had panicked");
        }
    }

    /// Does not wait for it.
    pub(crate) fn tell_to_stop(&self) {
        // It fails only if the thread is gone.
        let _ = self.stop.wake();
    }
}

impl Drop for AgentStore {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}
