//! What a member makes of rank 0 that comes late, dies, or is cut off.

use std::net::SocketAddr;
use std::sync::Arc;

use rallypoint_core::rendezvous::documents::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::sleep;
use tracing_subscriber::fmt::MakeWriter;

use super::super::probe::tests::{A_WHILE, Guard, SOON};
use super::*;
use crate::store::{AgentStore, PeerReport, StoreOwner};

const TOKEN: &str = "token of the group";

fn bound() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket
}

fn owner() -> StoreOwner {
    StoreOwner { node: "host".into(), token: TOKEN.into(), liveness: None, max_members: 4 }
}

fn store() -> (AgentStore, UnboundedReceiver<PeerReport>) {
    AgentStore::start_as(bound(), owner()).unwrap()
}

/// A group whose store is there.
fn group(address: SocketAddr, liveness: Option<&LivenessAddress>) -> FormedGroup {
    let store = Address { host: "127.0.0.1".into(), port: address.port() };
    let (token, rank0_liveness) = (TOKEN.to_owned(), liveness.cloned());
    FormedGroup { round: 1, rank: 1, world: 2, store, token, rank0_liveness, head: None }
}

/// A peer_liveness of the node `member`.
fn peer_liveness(address: SocketAddr, liveness: Option<&LivenessAddress>) -> PeerLiveness {
    let mut peer_liveness = PeerLiveness::new(false);
    peer_liveness.begin(&group(address, liveness), "member", None);
    peer_liveness
}

async fn next(peer_liveness: &mut PeerLiveness) -> PeerEvent {
    timeout(SOON, peer_liveness.next()).await.unwrap()
}

/// Nothing happens for a while, in which it does what it has to.
async fn is_quiet(peer_liveness: &mut PeerLiveness) {
    let event = timeout(A_WHILE, peer_liveness.next()).await;
    assert!(event.is_err(), "{event:?}");
}

fn suspect() -> PeerEvent {
    PeerEvent::Suspect { node: "host".into() }
}

/// Drives the peer_liveness until `done`.
async fn drive<T>(peer_liveness: &mut PeerLiveness, done: impl Future<Output = T>) -> T {
    let done = async {
        tokio::select! {
            done = done => done,
            event = peer_liveness.next() => panic!("{event:?}"),
        }
    };
    timeout(SOON, done).await.unwrap()
}

/// Waits until a member has said hello to the store.
async fn came(reports: &mut UnboundedReceiver<PeerReport>) {
    let report = reports.recv().await.unwrap();
    assert!(
        matches!(&report, PeerReport::Connected { node, .. } if node == "member"),
        "{report:?}"
    );
}

/// A rank 0 whose death can be played.
struct Rank0(TcpListener);

impl Rank0 {
    async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Lets a member in, and says to have been reached at `claimed`, or where it was.
    async fn welcome(&self, claimed: Option<SocketAddr>) -> TcpStream {
        let (mut stream, _) = self.0.accept().await.unwrap();
        let mut greeting = [0; 10];
        stream.read_exact(&mut greeting).await.unwrap();
        stream.write_all(&greeting[6..]).await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), 0xe0);
        let mut words = Vec::new();
        for _ in 0..5 {
            let mut word = vec![0; stream.read_u64_le().await.unwrap() as usize];
            stream.read_exact(&mut word).await.unwrap();
            words.push(String::from_utf8(word).unwrap());
        }
        stream.read_u16_le().await.unwrap();
        assert_eq!(words[..2], ["member", TOKEN]);
        assert_eq!(words[2], stream.peer_addr().unwrap().to_string());
        let address = claimed.unwrap_or_else(|| stream.local_addr().unwrap()).to_string();
        for word in ["host", &address, "", ""] {
            stream.write_u64_le(word.len() as u64).await.unwrap();
            stream.write_all(word.as_bytes()).await.unwrap();
        }
        stream.write_u16_le(0).await.unwrap();
        stream
    }
}

fn reset(connection: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&connection, Some(Duration::ZERO)).unwrap();
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
async fn when_the_connection_is_cut_each_suspects_the_other_and_no_node_is_dead() {
    let (store, mut reports) = store();
    let (address, passing) = in_between(store.address()).await;
    let guard = Guard::start().await;
    let mut peer_liveness = peer_liveness(address, Some(&guard.address));
    drive(&mut peer_liveness, came(&mut reports)).await;
    is_quiet(&mut peer_liveness).await;
    // In good order, as a proxy that dies does, and with its ports.
    passing.abort();
    drop(guard);
    assert_eq!(next(&mut peer_liveness).await, suspect());
    let report = timeout(SOON, reports.recv()).await.unwrap().unwrap();
    let PeerReport::Lost(lost) = report else { panic!("{report:?}") };
    assert_eq!((lost.node.as_str(), lost.liveness), ("member", None));
    is_quiet(&mut peer_liveness).await;
}

#[tokio::test]
async fn rank_0_whose_processes_are_all_gone_is_suspected_and_then_dead() {
    let (rank_0, guard) = (Rank0::new().await, Guard::start().await);
    let mut peer_liveness = peer_liveness(rank_0.address(), Some(&guard.address));
    let connection = drive(&mut peer_liveness, rank_0.welcome(None)).await;
    is_quiet(&mut peer_liveness).await;
    drop((connection, rank_0));
    assert_eq!(next(&mut peer_liveness).await, suspect());
    // Its workers are still there. This node enters another round meanwhile.
    is_quiet(&mut peer_liveness).await;
    peer_liveness.part();
    is_quiet(&mut peer_liveness).await;
    drop(guard);
    assert_eq!(next(&mut peer_liveness).await, PeerEvent::Dead { node: "host".into(), round: 1 });
}

/// A firewall resets the connection, and rejects others for a while.
#[tokio::test]
async fn after_a_reset_rank_0_is_suspected_never_dead_and_told_hello_again() {
    let (rank_0, (guard, _reserved)) = (Rank0::new().await, Guard::at_reserved_port().await);
    let mut peer_liveness = peer_liveness(rank_0.address(), Some(&guard.address));
    let connection = drive(&mut peer_liveness, rank_0.welcome(None)).await;
    is_quiet(&mut peer_liveness).await;
    let (port, address) = (guard.address.port, guard.address.clone());
    guard.die().await;
    reset(connection);
    assert_eq!(next(&mut peer_liveness).await, suspect());
    let again = drive(&mut peer_liveness, rank_0.welcome(None)).await;
    is_quiet(&mut peer_liveness).await;
    let guard = Guard::listen(port, true).await;
    assert_eq!(guard.address, address);
    is_quiet(&mut peer_liveness).await;
    // From here on it is a connection like the first.
    drop((again, guard));
    assert_eq!(next(&mut peer_liveness).await, suspect());
    assert_eq!(next(&mut peer_liveness).await, PeerEvent::Dead { node: "host".into(), round: 1 });
}

#[tokio::test]
async fn rank_0_behind_a_proxy_is_not_dead_when_its_ports_are_refused() {
    let (rank_0, guard) = (Rank0::new().await, Guard::start().await);
    let mut peer_liveness = peer_liveness(rank_0.address(), Some(&guard.address));
    let elsewhere = SocketAddr::from(([10, 0, 0, 1], 4711));
    let connection = drive(&mut peer_liveness, rank_0.welcome(Some(elsewhere))).await;
    is_quiet(&mut peer_liveness).await;
    drop((connection, guard));
    assert_eq!(next(&mut peer_liveness).await, suspect());
    is_quiet(&mut peer_liveness).await;
}

#[tokio::test]
async fn a_bond_that_is_ended_proves_nothing_any_more() {
    let (rank_0, guard) = (Rank0::new().await, Guard::start().await);
    let mut peer_liveness = peer_liveness(rank_0.address(), Some(&guard.address));
    let connection = drive(&mut peer_liveness, rank_0.welcome(None)).await;
    is_quiet(&mut peer_liveness).await;
    drop(connection);
    assert_eq!(next(&mut peer_liveness).await, suspect());
    peer_liveness.end();
    drop(guard);
    is_quiet(&mut peer_liveness).await;
}

#[tokio::test]
async fn a_store_that_is_stopped_or_dropped_causes_no_suspicion() {
    for waits in [true, false] {
        let (store, mut reports) = store();
        let mut peer_liveness = peer_liveness(store.address(), None);
        drive(&mut peer_liveness, came(&mut reports)).await;
        is_quiet(&mut peer_liveness).await;
        if waits {
            store.stop().await;
        } else {
            drop(store);
        }
        is_quiet(&mut peer_liveness).await;
        assert!(peer_liveness.run.is_none(), "it heard the goodbye");
    }
}

/// Wherever it was: connecting, introducing itself, or there.
#[tokio::test]
async fn a_member_that_ends_its_liveness_connection_causes_no_suspicion() {
    let (store, mut reports) = store();
    for pause in (0..20).map(|step| Duration::from_micros(step * 50)) {
        let mut peer_liveness = peer_liveness(store.address(), None);
        let _ = timeout(pause, peer_liveness.next()).await;
        peer_liveness.end();
    }
    let mut held = peer_liveness(store.address(), None);
    is_quiet(&mut held).await;
    held.part();
    let mut dropped = peer_liveness(store.address(), None);
    is_quiet(&mut dropped).await;
    drop(dropped);
    while store.connections() > 0 {
        sleep(Duration::from_millis(5)).await;
    }
    while let Ok(report) = reports.try_recv() {
        assert!(matches!(report, PeerReport::Connected { .. }), "{report:?}");
    }
}

/// What is said at `warn` and above.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn lines(&self) -> Vec<String> {
        let said = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        said.lines().map(str::to_owned).collect()
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Said {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Seen: it was never tried again, and said at debug level.
#[tokio::test]
async fn a_failed_connection_to_rank_0_is_said_and_tried_until_it_works() {
    let said = Said::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(said.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let socket = bound();
    let address = socket.local_addr().unwrap();
    let mut peer_liveness = peer_liveness(address, None);
    let begun = Instant::now();
    let event = next(&mut peer_liveness).await;
    let named = |reason: &str| reason.contains(&address.to_string()) && reason.contains("refused");
    assert!(
        matches!(&event, PeerEvent::Unreached { reason: Some(reason), .. } if named(reason)),
        "{event:?}"
    );
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(3), "it is said of what lasts: {took:?}");
    let lines = said.lines();
    let parts = [address.to_string(), "refused".into(), "--local-addr".into(), "firewall".into()];
    for part in parts {
        assert!(lines[0].contains(&part) && lines[0].contains("WARN"), "{part} in {lines:?}");
    }
    let (_store, mut reports) = AgentStore::start_as(socket, owner()).unwrap();
    // Further attempts may have been reported before the store was there.
    let mut event = next(&mut peer_liveness).await;
    while matches!(event, PeerEvent::Unreached { reason: Some(_), .. }) {
        event = next(&mut peer_liveness).await;
    }
    assert!(matches!(event, PeerEvent::Unreached { reason: None, .. }), "{event:?}");
    drive(&mut peer_liveness, came(&mut reports)).await;
}

/// Also a server that ends the connection at our hello: a build before this one, or PyTorch's own.
#[tokio::test]
async fn without_an_owner_of_the_store_no_node_is_suspected() {
    let store = AgentStore::start(bound()).unwrap();
    let mut peer_liveness = peer_liveness(store.address(), None);
    is_quiet(&mut peer_liveness).await;
    store.stop().await;
    is_quiet(&mut peer_liveness).await;
}

/// Where rank 0 may run the server, its death matters after this node has said goodbye too: no other server learns of it.
#[tokio::test]
async fn a_rank_0_that_dies_after_a_goodbye_is_proved_dead_where_servers_succeed_each_other() {
    for follows_parted in [false, true] {
        let (store, mut reports) = store();
        let guard = Guard::start().await;
        let mut peer_liveness = PeerLiveness::new(follows_parted);
        peer_liveness.begin(&group(store.address(), Some(&guard.address)), "member", None);
        drive(&mut peer_liveness, came(&mut reports)).await;
        is_quiet(&mut peer_liveness).await;
        peer_liveness.part();
        is_quiet(&mut peer_liveness).await;
        drop((guard, store));
        if follows_parted {
            let dead = PeerEvent::Dead { node: "host".into(), round: 1 };
            assert_eq!(next(&mut peer_liveness).await, dead);
        } else {
            is_quiet(&mut peer_liveness).await;
        }
    }
}
