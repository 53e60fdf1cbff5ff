//! The right of a server to grant and renew leases (rule Y3).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::heard_for;
use crate::kv::{Event, EventKind, LeaseId, Time};
use crate::rendezvous::documents::{Active, Status, decode};
use crate::rendezvous::keys::{Keys, RunKey};

/// The server forgets leases that were not heard lately when it remembers so many, and twice as many as after the last
/// time.
const MANY_LEASES: usize = 1024;

/// What is known of the right without counting the group.
#[derive(Debug, Clone, Copy)]
enum Known {
    Nothing,
    /// The server has its right until then, since what it hears meanwhile can only prolong it.
    HoldsUntil(Time),
    /// The server had lost its right at this time. It has none before so many further leases are heard.
    Lost {
        at: Time,
        missing: usize,
    },
}

/// Decides whether a server may grant and renew leases. It follows the changes of the keys of one run.
///
/// The server may while at least half of the running group was heard lately, counted from the sending of the last
/// response that a member has confirmed. A renewal may lie in the network for long, so its arrival proves nothing of the
/// present.
///
/// A renewal costs the same in a group of any size: the group is counted once in about a sixth of the time to live of a
/// lease, when its members change, and when a lost right may have come back.
#[derive(Debug)]
pub struct ServingRight {
    keys: Keys,
    lease_ttl: Duration,
    /// The lease of each node. No two nodes have the same.
    nodes: BTreeMap<String, LeaseId>,
    /// The nodes that confirmed each round.
    ready: BTreeMap<u64, BTreeSet<String>>,
    /// The nodes that joined each round.
    joined: BTreeMap<u64, BTreeSet<String>>,
    /// The round in progress, and its state.
    active: Option<(u64, Status)>,
    /// The running group, without members that have left in good order.
    group: BTreeSet<String>,
    /// The number of nodes that the running group had.
    world: usize,
    round: u64,
    /// When the server granted a lease, or sent the last response that its holder has confirmed.
    heard: BTreeMap<LeaseId, Time>,
    /// The number of leases at which those that were not heard lately are forgotten.
    many: usize,
    known: Known,
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
            joined: BTreeMap::new(),
            active: None,
            group: BTreeSet::new(),
            world: 0,
            round: 0,
            heard: BTreeMap::new(),
            many: MANY_LEASES,
            known: Known::Nothing,
            lost: None,
        }
    }

    /// The server granted a lease at this time. A node uses the lease only after it has received a response that was
    /// sent since, so the node's document on the lease confirms one.
    pub fn granted(&mut self, lease: LeaseId, at: Time) {
        self.confirmed(lease, at);
    }

    /// The holder of the lease has confirmed a response that was sent at this time.
    pub fn confirmed(&mut self, lease: LeaseId, sent: Time) {
        let before = self.heard.get(&lease).copied();
        if before.is_some_and(|before| before >= sent) {
            return;
        }
        let window = heard_for(self.lease_ttl);
        if self.heard.len() >= self.many {
            self.heard.retain(|_, heard| is_lately(*heard, window, sent));
            self.many = MANY_LEASES.max(2 * self.heard.len());
        }
        self.heard.insert(lease, sent);
        if let Known::Lost { at, missing } = &mut self.known {
            let was_heard = before.is_some_and(|before| is_lately(before, window, *at));
            let is_further = !was_heard && is_lately(sent, window, *at);
            *missing = missing.saturating_sub(usize::from(is_further));
        }
    }

    /// A key of the run has changed.
    pub fn changed(&mut self, event: &Event) {
        let is_put = event.kind == EventKind::Put;
        match self.keys.parse(&event.kv.key) {
            Some(RunKey::Node(id)) => {
                let lease = is_put.then_some(event.kv.lease);
                let before = match lease {
                    Some(lease) => self.nodes.insert(id.to_owned(), lease),
                    None => self.nodes.remove(id),
                };
                if before != lease && self.group.contains(id) {
                    self.known = Known::Nothing;
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
                self.known = Known::Nothing;
            }
            Some(RunKey::Member(round, id)) if is_put => {
                self.joined.entry(round).or_default().insert(id.to_owned());
            }
            Some(RunKey::Member(round, id)) => {
                if let Some(joined) = self.joined.get_mut(&round) {
                    joined.remove(id);
                }
            }
            Some(RunKey::Active) => {
                let active = decode::<Active>(&event.kv.key, &event.kv.value).ok();
                self.active = active.filter(|_| is_put).map(|active| (active.round, active.status));
                if let Some((round, Status::Final)) = self.active {
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
            self.world = self.group.len();
            self.ready.retain(|other, _| *other >= round);
            self.joined.retain(|other, _| *other >= round);
            self.known = Known::Nothing;
        }
    }

    /// The last round that formed a group at this server; 0 if none did.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Whether the nodes that meet can go on at another host without this one, whose node has left in good order. There
    /// they need more than half of all that the group had (rule Y2), also of those that have left.
    ///
    /// A member counts from the time when it joins the next round: until then it may be about to leave, too.
    pub fn can_be_succeeded(&self) -> bool {
        let is_meeting = |status| !matches!(status, Status::Final | Status::Closed);
        self.active.is_some_and(|(round, status)| is_meeting(status) && self.have_quorum(round))
    }

    /// The round of the running group, if its members can go on at another host without this one. They must have learned
    /// that it is their group: for all that is known elsewhere, another one may have formed in its place otherwise.
    pub fn can_go_on(&self) -> Option<u64> {
        let (round, status) = self.active?;
        // A group of which a member has left forms again first.
        let goes_on = status == Status::Final && self.group.len() == self.world;
        (goes_on && self.have_quorum(round)).then_some(round)
    }

    /// Whether the members of the last group that have joined this round are more than half of all that the group had.
    fn have_quorum(&self, round: u64) -> bool {
        let Some(joined) = self.joined.get(&round) else { return false };
        match self.round {
            0 => joined.len() >= 2,
            _ => 2 * joined.intersection(&self.group).count() > self.world,
        }
    }

    /// Whether the server may grant and renew leases now.
    pub fn holds(&mut self, now: Time) -> bool {
        let holds = match self.known {
            Known::HoldsUntil(until) if now <= until => true,
            Known::Lost { at, missing } if now >= at && missing > 0 => false,
            _ => {
                self.known = self.count(now);
                matches!(self.known, Known::HoldsUntil(_))
            }
        };
        self.lost = if holds { None } else { self.lost.or(Some(now)) };
        holds
    }

    /// Counts the members that were heard lately.
    fn count(&self, now: Time) -> Known {
        let needed = self.group.len().div_ceil(2);
        let Some(last) = needed.checked_sub(1) else { return Known::HoldsUntil(Time::MAX) };
        let window = heard_for(self.lease_ttl);
        let heard = |id: &String| self.heard.get(self.nodes.get(id)?).copied();
        let lately = |at: &Time| is_lately(*at, window, now);
        let mut heard: Vec<Time> = self.group.iter().filter_map(heard).filter(lately).collect();
        if heard.len() < needed {
            return Known::Lost { at: now, missing: needed - heard.len() };
        }
        // If no more are heard, the right ends with the last one of those that are needed.
        let (_, at, _) = heard.select_nth_unstable_by_key(last, |at| Reverse(*at));
        Known::HoldsUntil(at.saturating_add(window))
    }

    /// Whether the server has lost its right for so long that all leases of the group have expired. Then it ends, and
    /// with it its history.
    pub fn is_over(&mut self, now: Time) -> bool {
        !self.holds(now)
            && self.lost.is_some_and(|since| now >= since.saturating_add(self.lease_ttl))
    }
}

/// Whether a node that was heard at this time counts as heard now.
fn is_lately(heard: Time, window: Duration, now: Time) -> bool {
    now <= heard.saturating_add(window)
}

#[cfg(test)]
mod tests;
