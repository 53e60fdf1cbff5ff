//! The running proofs of death, and the greetings of liveness sockets that they need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rallypoint_core::rendezvous::documents::LivenessAddress;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::probe::Probe;

use crate::log_target::RENDEZVOUS;

/// The number of liveness sockets that are asked to greet at the same time.
const AT_ONCE: usize = 32;

/// The delays before a liveness socket that did not greet is asked again.
const ASK_AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];

/// The result of one task.
#[derive(Debug)]
enum Done {
    /// A socket has greeted, or not.
    Asked,
    /// The node with this id is dead, a member of the group of this round.
    Dead(String, u64),
}

/// The running proofs and verifications. Dropping it ends all of them.
#[derive(Debug)]
pub(super) struct Proofs {
    probe: Probe,
    tasks: JoinSet<Done>,
    /// The proofs, by node.
    under_way: BTreeMap<String, AbortHandle>,
    /// The number of sockets that are being asked to greet.
    asking: usize,
    places: Arc<Semaphore>,
    /// Whether the log has said that a liveness socket does not greet. Once is enough: usually none of them does.
    said: Arc<AtomicBool>,
}

impl Default for Proofs {
    fn default() -> Self {
        Self {
            probe: Probe::default(),
            tasks: JoinSet::new(),
            under_way: BTreeMap::new(),
            asking: 0,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            said: Arc::default(),
        }
    }
}

impl Proofs {
    /// Asks the liveness socket of a node to greet, so that the death of the node can be proved later.
    pub(super) fn verify(&mut self, node: &str, address: LivenessAddress) {
        let (probe, places, node) = (self.probe.clone(), self.places.clone(), node.to_owned());
        let said = self.said.clone();
        self.asking += 1;
        self.tasks.spawn(async move {
            let mut failed = None;
            for pause in [Duration::ZERO].into_iter().chain(ASK_AGAIN) {
                sleep(pause).await;
                let Ok(_place) = places.acquire().await else { return Done::Asked };
                match probe.verify(&address).await {
                    Ok(()) => return Done::Asked,
                    Err(error) => failed = Some(error),
                }
            }
            let LivenessAddress { host, port, .. } = &address;
            let why = failed.map(|error| error.to_string()).unwrap_or_default();
            let what = format!(
                "the liveness socket of node {node} at {host}:{port} does not greet: {why}; should the node die, that \
                 shows only when its lease is over. Let firewalls pass connections between all nodes, or give that \
                 node the address at which other nodes reach it (--local-addr)"
            );
            if said.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: RENDEZVOUS, "{what}");
            } else {
                tracing::warn!(target: RENDEZVOUS, "{what}");
            }
            Done::Asked
        });
    }

    /// Starts a proof that a node is dead, a member of the group of this round.
    pub(super) fn prove(&mut self, node: &str, round: u64, address: LivenessAddress) {
        let probe = self.probe.clone();
        self.spawn(node, round, async move { probe.dead(&address).await });
    }

    /// The same for a node that lives, as far as it is known.
    pub(super) fn outlast(&mut self, node: &str, round: u64, address: LivenessAddress) {
        let probe = self.probe.clone();
        self.spawn(node, round, async move { probe.dead_after_close(&address).await });
    }

    fn spawn(
        &mut self,
        node: &str,
        round: u64,
        is_dead: impl Future<Output = ()> + Send + 'static,
    ) {
        let dead = node.to_owned();
        let task = self.tasks.spawn(async move {
            is_dead.await;
            Done::Dead(dead, round)
        });
        if let Some(before) = self.under_way.insert(node.to_owned(), task) {
            before.abort();
        }
    }

    /// Ends the proof about a node that has reconnected.
    pub(super) fn call_off(&mut self, node: &str) {
        if let Some(task) = self.under_way.remove(node) {
            task.abort();
        }
    }

    /// Ends all tasks, and keeps the sockets that have greeted.
    pub(super) fn end(&mut self) {
        // A new set, so that results of finished tasks are dropped as well.
        self.tasks = JoinSet::new();
        self.asking = 0;
        self.under_way.clear();
    }

    /// Waits until a node is proved to be dead, and returns its id and the round of its group. Cancel-safe.
    pub(super) async fn proved(&mut self) -> (String, u64) {
        loop {
            match self.tasks.join_next().await {
                // A proof that was ended in the moment of its success does not count.
                Some(Ok(Done::Dead(node, round))) if self.under_way.remove(&node).is_some() => {
                    return (node, round);
                }
                Some(Ok(Done::Asked)) => {
                    self.asking = self.asking.saturating_sub(1);
                    if self.asking == 0 {
                        let count = self.probe.count();
                        tracing::info!(
                            target: RENDEZVOUS,
                            count, "the liveness sockets of other nodes have greeted"
                        );
                    }
                }
                Some(_) => {}
                None => return std::future::pending().await,
            }
        }
    }
}
