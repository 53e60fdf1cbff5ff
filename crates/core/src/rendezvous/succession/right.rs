//! The right of a server to grant and renew leases (rule Y3).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::heard_for;
use crate::kv::{Event, EventKind, LeaseId, Time};
use crate::rendezvous::documents::{Active, Status, decode};
use crate::rendezvous::keys::{Keys, RunKey};

/// Leases without a node of which the server remembers when it granted them, besides two for each node.
const MOST_UNUSED: usize = 1024;

/// Decides whether a server may grant and renew leases. It follows the changes of the keys of one run.
///
/// The server may while at least half of the running group was heard lately, counted from the sending of the last
/// response that a member has confirmed. A renewal may lie in the network for long, so its arrival proves nothing of the
/// present.
#[derive(Debug)]
pub struct ServingRight {
    keys: Keys,
    lease_ttl: Duration,
    /// The lease of each node.
    nodes: BTreeMap<String, LeaseId>,
    /// The nodes that confirmed each round.
    ready: BTreeMap<u64, BTreeSet<String>>,
    /// The running group, without members that have left in good order.
    group: BTreeSet<String>,
    round: u64,
    /// When the server granted each lease that no node has used yet.
    granted: BTreeMap<LeaseId, Time>,
    /// When the server sent the last response that the holder of a lease has confirmed.
    heard: BTreeMap<LeaseId, Time>,
    /// Since when the right is lost.
    lost: Option<Time>,
}

impl ServingRight {
    /// The right to serve the run with these keys, whose leases have this time to live.
    pub fn new(keys: Keys, lease_ttl: Duration) -> Self {
        Self {
            keys,
            lease_ttl,
            nodes: BTreeMap::new(),
            ready: BTreeMap::new(),
            group: BTreeSet::new(),
            round: 0,
            granted: BTreeMap::new(),
            heard: BTreeMap::new(),
            lost: None,
        }
    }

    /// The server granted a lease at this time. A node uses the lease only after it has received a response that was
    /// sent since, so the node's document on the lease confirms one.
    pub fn granted(&mut self, lease: LeaseId, at: Time) {
        if self.granted.len() > 2 * self.nodes.len() + MOST_UNUSED {
            let window = heard_for(self.lease_ttl);
            self.granted.retain(|_, granted| at.saturating_sub(*granted) <= window);
        }
        self.granted.insert(lease, at);
    }

    /// The holder of the lease has confirmed a response that was sent at this time.
    pub fn confirmed(&mut self, lease: LeaseId, sent: Time) {
        let heard = self.heard.entry(lease).or_insert(sent);
        *heard = sent.max(*heard);
    }

    /// A key of the run has changed.
    pub fn changed(&mut self, event: &Event) {
        let is_put = event.kind == EventKind::Put;
        match self.keys.parse(&event.kv.key) {
            Some(RunKey::Node(id)) if is_put => {
                let lease = event.kv.lease;
                self.nodes.insert(id.to_owned(), lease);
                if let Some(at) = self.granted.remove(&lease) {
                    self.confirmed(lease, at);
                }
            }
            Some(RunKey::Node(id)) => {
                if let Some(lease) = self.nodes.remove(id) {
                    self.heard.remove(&lease);
                }
            }
            Some(RunKey::Ready(round, id)) if is_put => {
                self.ready.entry(round).or_default().insert(id.to_owned());
            }
            Some(RunKey::Ready(round, id)) => {
                if let Some(ready) = self.ready.get_mut(&round) {
                    ready.remove(id);
                }
            }
            Some(RunKey::Left(round, id)) if is_put && round == self.round => {
                self.group.remove(id);
            }
            Some(RunKey::Active) if is_put => {
                let active = decode::<Active>(&event.kv.key, &event.kv.value);
                if let Ok(Active { round, status: Status::Final, .. }) = active {
                    self.formed(round);
                }
            }
            _ => {}
        }
    }

    fn formed(&mut self, round: u64) {
        if round > self.round {
            self.round = round;
            self.group = self.ready.get(&round).cloned().unwrap_or_default();
            self.ready.retain(|other, _| *other >= round);
        }
    }

    /// The last round that formed a group at this server; 0 if none did.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Whether the server may grant and renew leases now.
    pub fn holds(&mut self, now: Time) -> bool {
        let window = heard_for(self.lease_ttl);
        let heard = |id: &&String| {
            let at = self.nodes.get(*id).and_then(|lease| self.heard.get(lease));
            at.is_some_and(|at| now.saturating_sub(*at) <= window)
        };
        let holds = 2 * self.group.iter().filter(heard).count() >= self.group.len();
        self.lost = if holds { None } else { self.lost.or(Some(now)) };
        holds
    }

    /// Whether the server has lost its right for so long that all leases of the group have expired. Then it ends, and
    /// with it its history.
    pub fn is_over(&mut self, now: Time) -> bool {
        !self.holds(now)
            && self.lost.is_some_and(|since| now >= since.saturating_add(self.lease_ttl))
    }
}

#[cfg(test)]
mod tests;
