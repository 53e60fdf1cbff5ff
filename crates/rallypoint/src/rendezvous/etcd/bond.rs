//! A member's connection to rank 0, by which each of the two sees the other die long before its lease is over.
//!
//! It is a second sense only: without it, or if it is wrong, the lease decides.

use std::io;
use std::time::Duration;

use rallypoint_core::rendezvous::{Formed, Input};
use tokio::time::timeout;

use super::driver::Boxed;
use crate::store::Presence;

/// How long rank 0 may take to answer. When a large group has formed, many come at once.
const CONNECTING: Duration = Duration::from_secs(15);

/// Ending it, also by dropping it, says goodbye.
#[derive(Default)]
pub(super) struct Bond(State);

#[derive(Default)]
enum State {
    #[default]
    None,
    Connecting(Boxed<io::Result<Presence>>),
    Held(Presence),
}

impl Bond {
    /// Connects to the store of the group that has formed, as `node`.
    pub(super) fn begin(&mut self, Formed { round, store, .. }: &Formed, node: &str) {
        let (host, port) = (store.host.trim_matches(['[', ']']).to_owned(), store.port);
        let (node, round) = (node.to_owned(), *round);
        self.0 = State::Connecting(Box::pin(async move {
            let opened = timeout(CONNECTING, Presence::open((host.as_str(), port), &node)).await;
            let presence = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
            tracing::info!(round, rank_0 = presence.host(), "connected to rank 0");
            Ok(presence)
        }));
    }

    pub(super) fn end(&mut self) {
        self.0 = State::None;
    }

    /// Waits until rank 0 is gone without a word. It may be given up and called again.
    pub(super) async fn broken(&mut self) -> Input {
        loop {
            self.0 = match &mut self.0 {
                State::None => std::future::pending().await,
                State::Connecting(connecting) => match connecting.await {
                    Ok(presence) => State::Held(presence),
                    Err(error) => {
                        tracing::debug!(%error, "no connection to rank 0; its lease will tell");
                        State::None
                    }
                },
                State::Held(presence) => {
                    let meant = presence.ended().await;
                    let node = presence.host().to_owned();
                    self.0 = State::None;
                    if !meant {
                        tracing::info!(node, "rank 0 is gone without a word");
                        return Input::Suspect { node };
                    }
                    State::None
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use rallypoint_core::rendezvous::document::Address;
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::sync::mpsc::UnboundedReceiver;
    use tokio::time::sleep;

    use super::*;
    use crate::store::AgentStore;

    const SOON: Duration = Duration::from_secs(60);

    fn bound() -> TcpSocket {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        socket
    }

    fn store() -> (AgentStore, UnboundedReceiver<String>) {
        AgentStore::start_as(bound(), "host").unwrap()
    }

    /// A group whose store is there.
    fn group(address: SocketAddr) -> Formed {
        let store = Address { host: "127.0.0.1".into(), port: address.port() };
        Formed { round: 1, rank: 1, world: 2, store }
    }

    /// A bond of the node `member` that is held.
    async fn bond(address: SocketAddr) -> Bond {
        let mut bond = Bond::default();
        bond.begin(&group(address), "member");
        let State::Connecting(connecting) = &mut bond.0 else { panic!("it was begun") };
        bond.0 = State::Held(timeout(SOON, connecting).await.unwrap().unwrap());
        bond
    }

    async fn is_suspected(bond: &mut Bond) {
        let input = timeout(SOON, bond.broken()).await.unwrap();
        assert!(matches!(&input, Input::Suspect { node } if node == "host"), "{input:?}");
    }

    /// What the bond makes of it, once it has heard of the end.
    async fn is_content(bond: &mut Bond) {
        let over = async {
            while !matches!(bond.0, State::None) {
                let suspects = timeout(Duration::from_millis(10), bond.broken()).await;
                assert!(suspects.is_err(), "{suspects:?}");
            }
        };
        timeout(SOON, over).await.unwrap();
    }

    /// Passes one connection on until it is dropped.
    async fn in_between(server: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let passing = tokio::spawn(async move {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(server).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        });
        (address, passing)
    }

    #[tokio::test]
    async fn when_the_connection_is_cut_each_suspects_the_other() {
        let (store, mut lost) = store();
        let (address, passing) = in_between(store.address()).await;
        let mut bond = bond(address).await;
        passing.abort();
        is_suspected(&mut bond).await;
        assert_eq!(timeout(SOON, lost.recv()).await.unwrap().as_deref(), Some("member"));
    }

    #[tokio::test]
    async fn a_store_that_is_stopped_or_dropped_alarms_nobody() {
        for waits in [true, false] {
            let (store, _lost) = store();
            let mut bond = bond(store.address()).await;
            if waits {
                store.stop().await;
            } else {
                drop(store);
            }
            is_content(&mut bond).await;
        }
    }

    /// Wherever it was: connecting, introducing itself, or there.
    #[tokio::test]
    async fn a_member_that_ends_its_bond_alarms_nobody() {
        let (store, mut lost) = store();
        for pause in (0..20).map(|step| Duration::from_micros(step * 50)) {
            let mut bond = Bond::default();
            bond.begin(&group(store.address()), "early");
            let _ = timeout(pause, bond.broken()).await;
            bond.end();
        }
        let mut held = bond(store.address()).await;
        held.end();
        drop(bond(store.address()).await);
        while store.connections() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
        assert!(lost.try_recv().is_err());
    }

    /// A build before this one, or PyTorch's own server, ends the connection at a word that it does not know.
    #[tokio::test]
    async fn without_a_host_that_wants_to_know_there_is_no_bond() {
        let store = AgentStore::start(bound()).unwrap();
        let mut bond = Bond::default();
        let group = group(store.address());
        bond.begin(&group, "member");
        is_content(&mut bond).await;
        store.stop().await;
        bond.begin(&group, "member");
        is_content(&mut bond).await;
    }
}
