//! The peer liveness connection of a member to rank 0: each end detects the other's death long before its lease
//! expires.
//!
//! The connection is only a faster failure detector. Without it, or if it is wrong, the lease decides.

use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use rallypoint_core::rendezvous::FormedGroup;
use rallypoint_core::rendezvous::documents::LivenessAddress;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::driver::Boxed;
use super::probe::PeerEvent;
use super::proofs::Proofs;
use crate::log_target::RENDEZVOUS;
use crate::store::{Presence, PresenceEnd};
use crate::util::backoff::Backoff;
use crate::util::reminder::Reminder;
use crate::util::retry::retry_forever;

/// How long rank 0 may take to answer. When a large group has formed, all members connect at once.
const CONNECTING: Duration = Duration::from_secs(15);

/// The longest delay between attempts to connect.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// The backoff between attempts to connect.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), LONGEST_DELAY);

/// The log reports a missing connection after this time, and then each time after twice as long.
const SAY: Duration = Duration::from_secs(4);

/// What a missing connection to rank 0 means, and what helps.
pub(super) const UNREACHED_ADVICE: &str = "workers there may not reach MASTER_ADDR either, and should rank 0 die, that \
    shows only when its lease is over. Let firewalls pass connections to it (--rdzv-conf store_ports=29500-29599 pins its \
    ports), or give it the address by which others reach it (--local-addr)";

/// A change of the connection to rank 0.
#[derive(Debug)]
enum ConnectionEvent {
    /// Connected to rank 0, which has this liveness socket; whether nothing is in between.
    Here { node: String, liveness: LivenessAddress, direct: bool },
    /// No connection to rank 0 of the group of this round, and why; or a connection after all.
    Unreached { round: u64, reason: Option<String> },
    /// Rank 0 has said goodbye. The socket, if any, shows later whether it has ended.
    Parted { node: String, liveness: Option<LivenessAddress> },
    /// The connection ended without a goodbye. The socket, if any, can prove the death of the node.
    Lost { node: String, provable: Option<LivenessAddress> },
}

/// A member's connection to rank 0. Dropping it sends a goodbye.
pub(super) struct PeerLiveness {
    /// Connects, holds the connection, and reconnects.
    run: Option<Boxed<()>>,
    sender: UnboundedSender<ConnectionEvent>,
    news: UnboundedReceiver<ConnectionEvent>,
    /// The round of the group.
    round: u64,
    /// Rank 0 and its liveness socket, if there is nothing in between.
    rank_0: Option<(String, LivenessAddress)>,
    /// Whether the end of rank 0 is of interest after a goodbye too, its own or this node's: rank 0 may run the server, and
    /// then no other server learns that it has left or died.
    follows_parted: bool,
    proofs: Proofs,
}

impl PeerLiveness {
    pub(super) fn new(follows_parted: bool) -> Self {
        let (sender, news) = unbounded_channel();
        Self {
            run: None,
            sender,
            news,
            round: 0,
            rank_0: None,
            follows_parted,
            proofs: Proofs::default(),
        }
    }

    /// Connects to the store of the group that has formed, as `node`, whose liveness socket is `liveness`.
    pub(super) fn begin(
        &mut self,
        formed: &FormedGroup,
        node: &str,
        liveness: Option<&LivenessAddress>,
    ) {
        self.end();
        self.round = formed.round;
        let line = Rank0Connection {
            host: formed.store.host.trim_matches(['[', ']']).to_owned(),
            port: formed.store.port,
            round: formed.round,
            token: formed.token.clone(),
            rank_0: formed.rank0_liveness.clone(),
            node: node.to_owned(),
            liveness: liveness.cloned(),
        };
        self.run = Some(Box::pin(line.hold(self.sender.clone())));
    }

    /// Sends rank 0 a goodbye. A proof of its death continues, or begins: the next round may wait for it.
    pub(super) fn part(&mut self) {
        // An end that has already arrived is reported first.
        let holds = self.run.as_mut().is_some_and(|run| run.now_or_never().is_none());
        self.run = None;
        if holds {
            self.outlast_rank_0();
        }
    }

    fn outlast_rank_0(&mut self) {
        if let Some((node, liveness)) = self.rank_0.take_if(|_| self.follows_parted) {
            self.proofs.outlast(&node, self.round, liveness);
        }
    }

    /// Sends rank 0 a goodbye, and ends the proofs.
    pub(super) fn end(&mut self) {
        (self.run, self.rank_0) = (None, None);
        while self.news.try_recv().is_ok() {}
        self.proofs.end();
    }

    /// Waits until rank 0 is suspected, or proved to be dead. Cancel-safe.
    pub(super) async fn next(&mut self) -> PeerEvent {
        loop {
            tokio::select! {
                Some(news) = self.news.recv() => match news {
                    ConnectionEvent::Here { node, liveness, direct } => {
                        self.proofs.call_off(&node);
                        self.proofs.verify(&node, liveness.clone());
                        self.rank_0 = direct.then_some((node, liveness));
                        if self.run.is_none() {
                            self.outlast_rank_0();
                        }
                    }
                    ConnectionEvent::Parted { node, liveness } if self.follows_parted => {
                        if let Some(liveness) = liveness {
                            self.proofs.prove(&node, self.round, liveness);
                        }
                        return PeerEvent::Parted;
                    }
                    ConnectionEvent::Parted { .. } => {}
                    ConnectionEvent::Unreached { round, reason } => {
                        return PeerEvent::Unreached { round, reason };
                    }
                    ConnectionEvent::Lost { node, provable } => {
                        if let Some(liveness) = provable {
                            self.proofs.prove(&node, self.round, liveness);
                        }
                        return PeerEvent::Suspect { node };
                    }
                },
                () = running(&mut self.run) => self.run = None,
                (node, round) = self.proofs.proved() => return PeerEvent::Dead { node, round },
            }
        }
    }
}

async fn running(run: &mut Option<Boxed<()>>) {
    match run {
        Some(run) => run.as_mut().await,
        None => std::future::pending().await,
    }
}

/// The address and credentials of rank 0, and what this node tells it.
#[derive(Debug)]
struct Rank0Connection {
    host: String,
    port: u16,
    round: u64,
    /// The store's token, sent with the hello.
    token: String,
    /// The liveness socket of rank 0, as the document of the group has it.
    rank_0: Option<LivenessAddress>,
    /// This node, and its own liveness socket.
    node: String,
    liveness: Option<LivenessAddress>,
}

impl Rank0Connection {
    /// Holds a connection to rank 0 until rank 0 sends a goodbye or is lost.
    async fn hold(self, news: UnboundedSender<ConnectionEvent>) {
        let mut backoff = BACKOFF;
        loop {
            let mut presence = self.connect(&news).await;
            let (held, node) = (Instant::now(), presence.host().to_owned());
            tracing::info!(
                target: RENDEZVOUS,
                round = self.round, rank_0 = node, "connected to rank 0"
            );
            let liveness = self.rank_0.clone().or_else(|| presence.liveness().cloned());
            if let Some(liveness) = liveness.clone() {
                let (node, direct) = (node.clone(), presence.is_direct());
                let _ = news.send(ConnectionEvent::Here { node, liveness, direct });
            }
            match presence.ended().await {
                PresenceEnd::Goodbye => {
                    let liveness = liveness.filter(|_| presence.is_direct());
                    let _ = news.send(ConnectionEvent::Parted { node, liveness });
                    return;
                }
                PresenceEnd::Closed => {
                    tracing::info!(target: RENDEZVOUS, node, "the liveness connection to rank 0 ended");
                    let provable = liveness.filter(|_| presence.is_direct());
                    let _ = news.send(ConnectionEvent::Lost { node, provable });
                    return;
                }
                PresenceEnd::Reset(error) => {
                    tracing::info!(
                        target: RENDEZVOUS,
                        node, %error, "the connection to rank 0 has failed"
                    );
                    let _ = news.send(ConnectionEvent::Lost { node, provable: None });
                }
            }
            drop(presence);
            if held.elapsed() > LONGEST_DELAY {
                backoff.reset();
            }
            backoff.wait().await;
        }
    }

    /// Retries until connected, and reports in the log, and to the coordinator, that there is no connection yet.
    async fn connect(&self, news: &UnboundedSender<ConnectionEvent>) -> Presence {
        let round = self.round;
        let mut said = false;
        let trouble = Mutex::new("it does not answer".to_owned());
        let failed = |error: io::Error| {
            tracing::debug!(target: RENDEZVOUS, %error, "no connection to rank 0 yet");
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
        };
        let report = || {
            let Self { host, port, .. } = self;
            let error = trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let reason = format!("no connection to rank 0 at {host}:{port}: {error}");
            tracing::warn!(target: RENDEZVOUS, round, "{reason}; {UNREACHED_ADVICE}");
            let _ = news.send(ConnectionEvent::Unreached { round, reason: Some(reason) });
            said = true;
        };
        let connected = retry_forever(BACKOFF, || self.open(), failed);
        let presence = Reminder::doubling(SAY).during(connected, report).await;
        if said {
            let _ = news.send(ConnectionEvent::Unreached { round, reason: None });
        }
        presence
    }

    async fn open(&self) -> io::Result<Presence> {
        let address = (self.host.as_str(), self.port);
        let opening = Presence::open(address, &self.node, &self.token, self.liveness.as_ref());
        let late = || io::Error::new(ErrorKind::TimedOut, format!("no answer in {CONNECTING:?}"));
        timeout(CONNECTING, opening).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests;
