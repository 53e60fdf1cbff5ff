//! Nodes that disagree on what a group must agree on: its sizes, and the rank policy.
//!
//! Once a group has formed, a node that disagrees with it fails. Before that, the misconfigured node may be the
//! coordinator. So a node that disagrees with the round in progress registers as an objector and waits for a while. When
//! more objectors have the same terms than nodes have joined, the coordinator fails, and after it each node with its
//! terms that becomes the coordinator, until an objector opens a round.

use std::collections::BTreeMap;

use super::Node;
use super::announced::{AnnouncedState, Registration};
use super::observed::InForce;
use super::view::run_closed;
use crate::kv::{LeaseId, Time};
use crate::rendezvous::documents::{Active, Objection, Status, encode};
use crate::rendezvous::messages::{NodeConfig, RendezvousFailure};

/// How long an objector waits for more objectors. The nodes of a job start together.
const OBJECTION_TIMEOUT: Time = Time::from_secs(5);

/// One of the objectors with the same terms, if they outnumber the nodes that joined.
pub(in crate::rendezvous) fn majority(
    objections: &BTreeMap<String, Objection>,
    joined: usize,
) -> Option<&Objection> {
    if objections.len() <= joined {
        return None;
    }
    // There are as many terms as there are mistakes: few.
    let mut terms: Vec<(&Objection, usize)> = Vec::new();
    for objection in objections.values() {
        match terms.iter_mut().find(|(first, _)| first.has_the_terms_of(objection)) {
            Some((_, count)) => *count += 1,
            None => terms.push((objection, 1)),
        }
    }
    terms.into_iter().find(|(_, count)| *count > joined).map(|(first, _)| first)
}

impl NodeConfig {
    /// The first difference between this configuration and another node's terms.
    pub(in crate::rendezvous) fn differs_from(
        &self,
        other: &Objection,
    ) -> Option<RendezvousFailure> {
        let differ = |what, ours: String, theirs: String| {
            let other = other.node.clone();
            (ours != theirs).then_some(RendezvousFailure::Mismatch { what, ours, theirs, other })
        };
        let sizes = || self.sizes.differences(&other.sizes).next();
        differ("min:max nodes", self.limits.to_string(), other.limits.to_string())
            .or_else(|| sizes().and_then(|(what, ours, theirs)| differ(what, ours, theirs)))
            .or_else(|| {
                differ("rank_policy", self.rank_policy.to_string(), other.rank_policy.clone())
            })
    }
}

impl Node {
    /// Why this node cannot be a member of any group of the run, given the document in force.
    pub(super) fn disagrees(&self, active: &Active) -> Option<RendezvousFailure> {
        if active.status == Status::Closed {
            let closed = run_closed(active);
            return Some(match self.announced.state {
                AnnouncedState::Registered(Registration::Spare, _) => {
                    RendezvousFailure::NotNeeded(closed)
                }
                _ => RendezvousFailure::Closed(closed),
            });
        }
        let Active { limits, sizes, rank_policy, coordinator, .. } = active;
        let (sizes, rank_policy) = (sizes.clone(), rank_policy.clone());
        let node = coordinator.clone();
        self.config.differs_from(&Objection { limits: *limits, sizes, rank_policy, node })
    }

    /// Whether the round in progress may still give way to nodes that disagree with it.
    pub(super) fn may_object(active: &Active) -> bool {
        active.status == Status::Joinable && active.formed() == 0
    }

    /// Registers as an objector to the round in progress.
    pub(super) fn object(&mut self, now: Time, in_force: &InForce, lease: LeaseId) {
        if let Some(attempt) = &mut self.attempt {
            attempt.objects_until.get_or_insert_with(|| now.saturating_add(OBJECTION_TIMEOUT));
        }
        let registered = AnnouncedState::Registered(Registration::Objector, in_force.active.round);
        if self.announced.state != registered {
            let NodeConfig { limits, sizes, rank_policy, .. } = &self.config;
            let objection = encode(&Objection {
                limits: *limits,
                sizes: sizes.clone(),
                rank_policy: rank_policy.to_string(),
                node: self.announced.document.name(),
            });
            self.register(in_force, Registration::Objector, objection, lease);
        }
    }

    /// Fails if the coordinator did not give way in time.
    pub(super) fn check_objection(&mut self, now: Time) {
        let until = self.attempt.and_then(|attempt| attempt.objects_until);
        if until.is_none_or(|until| now < until) {
            return;
        }
        match self.observed.active().and_then(|active| self.disagrees(active)) {
            Some(failure) => {
                self.drop_join_request();
                self.fail(failure);
            }
            None => self.withdraw_objection(),
        }
    }

    /// The node agrees with the round in progress.
    pub(super) fn withdraw_objection(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.objects_until = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::documents::Limits;
    use crate::rendezvous::documents::NodeName;
    use crate::rendezvous::sizes::SizeRules;

    fn objections(sizes: &[usize]) -> BTreeMap<String, Objection> {
        let object = |(number, size): (usize, &usize)| {
            let id = format!("node-{number}");
            let node = NodeName { id: id.clone(), address: "host".into() };
            let limits = Limits { min: *size, max: *size };
            (
                id,
                Objection {
                    limits,
                    sizes: SizeRules::default(),
                    rank_policy: "stable".into(),
                    node,
                },
            )
        };
        sizes.iter().enumerate().map(object).collect()
    }

    #[test]
    fn a_round_gives_way_to_more_nodes_than_have_joined_if_those_agree_with_each_other() {
        for (sizes, joined, gives_way_to) in [
            (&[][..], 0, None),
            (&[4], 1, None),
            (&[4], 0, Some(4)),
            (&[4, 4], 1, Some(4)),
            (&[4, 4], 2, None),
            (&[4, 5, 6], 1, None),
            (&[5, 4, 6, 4], 1, Some(4)),
            (&[5, 4, 5, 4, 4], 2, Some(4)),
        ] {
            let objections = objections(sizes);
            let found = majority(&objections, joined).map(|objection| objection.limits.max);
            assert_eq!(found, gives_way_to, "{sizes:?} against {joined}");
        }
    }
}
