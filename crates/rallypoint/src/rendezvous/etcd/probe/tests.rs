//! Liveness sockets that greet, die, or are cut off.

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::rendezvous::reserve_port;

pub(in super::super) const SOON: Duration = Duration::from_secs(60);

/// Long enough to see that something does not happen.
pub(in super::super) const A_WHILE: Duration = Duration::from_millis(400);

/// A liveness socket. Dropping it is the death of all who hold it, a moment later.
pub(in super::super) struct Guard {
    pub(in super::super) address: LivenessAddress,
    serving: AbortOnDropHandle<()>,
}

impl Guard {
    /// A liveness socket that answers every client, and holds the connections.
    pub(in super::super) async fn start() -> Self {
        Self::listen(0, true).await
    }

    /// One at this port, which greets or is silent.
    pub(in super::super) async fn listen(port: u16, greets: bool) -> Self {
        Self::serve(TcpListener::bind(("127.0.0.1", port)).await.unwrap(), greets)
    }

    /// One whose port no other process gets while the socket lives that is returned, even when it is dead.
    pub(in super::super) async fn at_reserved_port() -> (Self, TcpSocket) {
        let (reserved, port) = reserve_port("127.0.0.1", 0).unwrap();
        (Self::listen(port, true).await, reserved)
    }

    /// One that a worker holds as well.
    fn with_worker() -> (Self, std::net::TcpListener) {
        let worker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        worker.set_nonblocking(true).unwrap();
        let own = TcpListener::from_std(worker.try_clone().unwrap()).unwrap();
        (Self::serve(own, true), worker)
    }

    fn serve(listener: TcpListener, greets: bool) -> Self {
        let port = listener.local_addr().unwrap().port();
        let address =
            LivenessAddress { host: "127.0.0.1".into(), port, token: "s3cret".to_owned() };
        let serving = async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if greets {
                    stream.write_all(b"rallypoint-guard s3cret\n").await.unwrap();
                }
                held.push(stream);
            }
        };
        Self { address, serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    /// Dies. When it returns, its port is free.
    pub(in super::super) async fn die(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }
}

async fn greets(address: &LivenessAddress) -> bool {
    Probe::default().verify(address).await.is_ok()
}

async fn is_not_dead(probe: &Probe, address: &LivenessAddress) {
    assert!(timeout(A_WHILE, probe.dead(address)).await.is_err(), "it was taken for dead");
}

#[tokio::test]
async fn who_greets_with_the_right_token_and_in_time_is_there() {
    let guard = Guard::start().await;
    assert!(greets(&guard.address).await);
    let other = LivenessAddress { token: "s3cre_".to_owned(), ..guard.address.clone() };
    assert!(!greets(&other).await, "another token");
    let longer = LivenessAddress { token: "s3crets".to_owned(), ..guard.address.clone() };
    assert!(!greets(&longer).await, "a longer token");
    let silent = Guard::listen(0, false).await;
    assert!(!greets(&silent.address).await, "no greeting");
    let nowhere = LivenessAddress { port: 1, ..guard.address.clone() };
    assert!(!greets(&nowhere).await, "no process listens");
}

#[tokio::test]
async fn a_socket_that_has_greeted_and_is_refused_is_dead() {
    let (guard, probe) = (Guard::start().await, Probe::default());
    probe.verify(&guard.address).await.unwrap();
    is_not_dead(&probe, &guard.address).await;
    let address = guard.address.clone();
    drop(guard);
    timeout(SOON, probe.dead(&address)).await.unwrap();
}

/// Such as a port that a firewall has rejected all along.
#[tokio::test]
async fn a_socket_that_has_never_greeted_is_not_dead_when_it_is_refused() {
    let (guard, probe) = (Guard::start().await, Probe::default());
    let address = guard.address.clone();
    let other = LivenessAddress { token: "other".to_owned(), ..address.clone() };
    probe.verify(&other).await.unwrap_err();
    drop(guard);
    for address in [&address, &other] {
        is_not_dead(&probe, address).await;
    }
}

/// A launcher may die in the moment in which it has said hello; its guard greets for a while yet.
#[tokio::test]
async fn a_socket_that_greets_only_when_its_death_is_to_be_proved_is_dead_when_it_is_refused() {
    let (guard, probe) = (Guard::start().await, Probe::default());
    let address = guard.address.clone();
    is_not_dead(&probe, &address).await;
    assert_eq!(probe.count(), 1);
    drop(guard);
    timeout(SOON, probe.dead(&address)).await.unwrap();
}

/// No process accepts connections any more, but one still holds the socket: a worker, for example.
#[tokio::test]
async fn a_socket_that_only_workers_hold_is_dead_when_the_last_of_them_is() {
    let ((guard, worker), probe) = (Guard::with_worker(), Probe::default());
    probe.verify(&guard.address).await.unwrap();
    let address = guard.address.clone();
    guard.die().await;
    let dead = tokio::spawn({
        let (probe, address) = (probe.clone(), address.clone());
        async move { probe.dead(&address).await }
    });
    sleep(A_WHILE).await;
    assert!(!dead.is_finished(), "a worker lives");
    drop(worker);
    timeout(SOON, dead).await.unwrap().unwrap();
}

/// A connection that was accepted and is reset proves nothing, however often.
#[tokio::test]
async fn resets_of_accepted_connections_are_no_proof() {
    let ((guard, _reserved), probe) = (Guard::at_reserved_port().await, Probe::default());
    probe.verify(&guard.address).await.unwrap();
    let address = guard.address.clone();
    guard.die().await;
    let listener = TcpListener::bind(("127.0.0.1", address.port)).await.unwrap();
    let resetting = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        }
    }));
    is_not_dead(&probe, &address).await;
    drop(resetting);
}

/// A node of which nothing has ended yet is dead only after an orderly close, which no firewall sends.
#[tokio::test]
async fn a_connection_that_is_reset_and_then_refused_is_no_proof() {
    let ((guard, _reserved), probe) = (Guard::at_reserved_port().await, Probe::default());
    probe.verify(&guard.address).await.unwrap();
    let address = guard.address.clone();
    guard.die().await;
    let listener = TcpListener::bind(("127.0.0.1", address.port)).await.unwrap();
    let dead = AbortOnDropHandle::new(tokio::spawn({
        let (probe, address) = (probe.clone(), address.clone());
        async move { probe.dead_after_close(&address).await }
    }));
    let (stream, _) = timeout(SOON, listener.accept()).await.unwrap().unwrap();
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    drop((stream, listener));
    sleep(A_WHILE).await;
    assert!(!dead.is_finished());
    drop(dead);
    // With a close it is one.
    let guard = Guard::start().await;
    let address = guard.address.clone();
    probe.verify(&address).await.unwrap();
    let dead = tokio::spawn(async move { probe.dead_after_close(&address).await });
    sleep(A_WHILE).await;
    assert!(!dead.is_finished(), "it lives");
    drop(guard);
    timeout(SOON, dead).await.unwrap().unwrap();
}
