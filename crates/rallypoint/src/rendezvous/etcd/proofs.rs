//! The verifications and proofs that a driver has under way.

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

/// So many liveness sockets are asked to greet at a time.
const AT_ONCE: usize = 32;

/// How long to wait before a liveness socket is asked again that did not greet.
const ASK_AGAIN: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];

/// What has come of one of them.
#[derive(Debug)]
enum Done {
    /// A socket has greeted, or not.
    Asked,
    /// This node is dead.
    Dead(String),
}

/// Dropping it ends all of them.
#[derive(Debug)]
pub(super) struct Proofs {
    probe: Probe,
    tasks: JoinSet<Done>,
    /// The proofs, by node.
    under_way: BTreeMap<String, AbortHandle>,
    /// How many sockets are being asked to greet.
    asking: usize,
    places: Arc<Semaphore>,
    /// It was said that a liveness socket does not greet. Once is enough: most often it is so for all of them.
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
    /// Has the liveness socket of a node greet, so that its death can be proved later.
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
                 node the address by which the others reach it (--local-addr)"
            );
            if said.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: RENDEZVOUS, "{what}");
            } else {
                tracing::warn!(target: RENDEZVOUS, "{what}");
            }
            Done::Asked
        });
    }

    /// Begins to wait for the proof that a node is dead.
    pub(super) fn prove(&mut self, node: &str, address: LivenessAddress) {
        let (probe, dead) = (self.probe.clone(), node.to_owned());
        let task = self.tasks.spawn(async move {
            probe.dead(&address).await;
            Done::Dead(dead)
        });
        if let Some(before) = self.under_way.insert(node.to_owned(), task) {
            before.abort();
        }
    }

    /// A node that was suspected has come back.
    pub(super) fn call_off(&mut self, node: &str) {
        if let Some(task) = self.under_way.remove(node) {
            task.abort();
        }
    }

    /// Ends all of them, and keeps what is known of sockets that have greeted.
    pub(super) fn end(&mut self) {
        // A set of its own: those that were done meanwhile are not heard any more either.
        self.tasks = JoinSet::new();
        self.asking = 0;
        self.under_way.clear();
    }

    /// Waits until a node is proved to be dead, and returns its name. It may be given up and called again.
    pub(super) async fn proved(&mut self) -> String {
        loop {
            match self.tasks.join_next().await {
                // A proof that was called off in the moment in which it was done is none.
                Some(Ok(Done::Dead(node))) if self.under_way.remove(&node).is_some() => {
                    return node;
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
