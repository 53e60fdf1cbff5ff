//! The store that stock PyTorch workers use, and its client in Rust.

mod client;
mod hostile;
mod limits;
mod memory;
mod opcodes;
mod presence;
mod raw;
mod waiting;

use std::net::SocketAddr;
use std::time::Duration;

use rallypoint::store::AgentStore;
use tokio::net::TcpSocket;

use crate::support::hostile::eventually;

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(60);

/// Long enough to see that something does not happen; if the machine is slow, it is only seen less often.
const A_WHILE: Duration = Duration::from_millis(50);

/// A socket that is bound to a free port of this host.
fn bound() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket
}

/// Another socket that is bound to the same port. Only one of the two can listen, and while there is one
/// of them nobody else is given the port.
fn bound_too(socket: &TcpSocket) -> TcpSocket {
    let other = TcpSocket::new_v4().unwrap();
    other.set_reuseaddr(true).unwrap();
    other.bind(socket.local_addr().unwrap()).unwrap();
    other
}

fn start() -> AgentStore {
    AgentStore::start(bound()).unwrap()
}

/// Waits until the store has this number of clients.
async fn has_clients(store: &AgentStore, count: usize) {
    let what = format!("the store has {count} clients");
    eventually(&what, SOON, async || store.connections() == count).await;
}
