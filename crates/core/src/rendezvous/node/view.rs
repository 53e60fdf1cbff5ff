//! What a node knows of its group and its run, for callers.

use std::time::Duration;

use super::Node;
use super::announced::{AnnouncedState, Registration};
use crate::kv::Time;
use crate::rendezvous::documents::{Active, Status};
use crate::rendezvous::messages::{RendezvousFailure, RendezvousView, RunClosed};
use crate::rendezvous::succession::claims::Claims;

/// How the run was closed, by this document.
pub(in crate::rendezvous) fn run_closed(closed: &Active) -> RunClosed {
    let Active { coordinator, outcome, reason, .. } = closed;
    let outcome = outcome.unwrap_or_default();
    RunClosed { by: coordinator.clone(), outcome, reason: reason.clone() }
}

impl Node {
    /// What the node knows of its group and its run.
    pub fn view(&self, now: Time) -> RendezvousView {
        let active = self.observed.active();
        let closed = active.filter(|active| active.status == Status::Closed);
        let has_ended = |active: &&Active| matches!(active.status, Status::Frozen | Status::Final);
        let member_of = self.announced.member_of();
        let group = active
            .filter(|active| active.status == Status::Final && Some(active.round) == member_of);
        let (lost, lost_names) = group.map(|group| self.lost(group)).unwrap_or_default();
        let nodes_waiting = match (member_of, group) {
            (None, _) => 0,
            // Whether the node is still a member will be known in a moment.
            _ if self.resuming.is_some() => 0,
            (Some(_), Some(group)) => group.waiting + lost,
            // Another round is in progress, or the coordinator is lost.
            (Some(_), None) => usize::from(closed.is_none()),
        };
        RendezvousView {
            known: self.observed.is_known(),
            session: self.lease.is_some(),
            round: active.map_or(0, |active| active.round),
            formed: self.formed_round(),
            remembers: self.memory.round(),
            member_of,
            nodes_waiting,
            lost: lost_names,
            unreached: group.map(|group| group.unreached.clone()).unwrap_or_default(),
            replaced_by: active
                .filter(|active| member_of.is_some_and(|round| active.round > round))
                .filter(has_ended)
                .map(|active| active.round),
            closed: closed.map(run_closed),
            waits_for: self.attempt.map(|_| self.waits_for(now)),
            patience: self.attempt.and_then(|attempt| {
                self.ends(&attempt).map(|end| end.saturating_sub(attempt.since))
            }),
        }
    }

    /// The round in progress, as the node has observed it; none if there is none, or it cannot be read.
    pub fn active(&self) -> Option<&Active> {
        self.observed.active()
    }

    /// What the node has announced, as the server has acknowledged it.
    pub fn announced(&self) -> AnnouncedState {
        self.announced.state
    }

    /// What the node remembers of groups, and would tell at a server of another history.
    pub fn claims(&self) -> Claims {
        self.memory.claims(self.now, None)
    }

    /// When the last call of the round began, if this node coordinates it.
    pub fn last_call_since(&self) -> Option<Time> {
        self.coordinator.as_ref().and_then(|(coordinator, _)| coordinator.last_call_since())
    }

    /// The last round that formed a group; 0 if none did, or nothing is known.
    pub(super) fn formed_round(&self) -> u64 {
        self.observed.rounds().map_or(0, |rounds| rounds.formed)
    }

    /// What the node waits for, in a sentence; and for how long, where that is not the time of the whole attempt.
    pub(super) fn waits_for(&self, now: Time) -> String {
        let why = self.missing_now(now);
        let lost = self.attempt.and_then(|attempt| attempt.server_lost);
        match self.lease.filter(|_| lost.is_some() && self.lacks_quorum()) {
            Some(_) => {
                format!(
                    "{why}; this node waits for up to {:?} (server_timeout)",
                    self.config.server_timeout
                )
            }
            None => why,
        }
    }

    /// What is missing for a group, in a sentence.
    pub(super) fn missing_now(&self, now: Time) -> String {
        if self.lease.is_none() {
            let lost = self.attempt.and_then(|attempt| attempt.server_lost);
            return match lost {
                None => "a session with the server".to_owned(),
                Some(_) => format!(
                    "the server to answer again, for up to {:?} (server_timeout): the job goes on when it does",
                    self.config.server_timeout
                ),
            };
        }
        let coordinator = self.coordinator.as_ref().map(|(coordinator, _)| coordinator);
        if let Some(why) = coordinator.and_then(|one| one.waits_for(now, &self.config)) {
            return why;
        }
        let Some(active) = self.observed.active() else {
            return "a round to begin".to_owned();
        };
        let Active { round, world, coordinator, .. } = active;
        match (active.status, self.announced.state) {
            (Status::Joinable, AnnouncedState::Registered(Registration::Objector, _)) => {
                let differs = match self.disagrees(active) {
                    Some(RendezvousFailure::Mismatch { what, ours, theirs, .. }) => {
                        format!(": it has {what} {theirs}, this node {ours}")
                    }
                    _ => String::new(),
                };
                format!("others who disagree with {coordinator}{differs}")
            }
            // The coordinator alone reads the membership, and publishes what the round waits for.
            (Status::Joinable, _) if !active.waits_for.is_empty() => active.waits_for.clone(),
            (Status::Joinable, _) => format!("more nodes to join round {round} of {coordinator}"),
            (Status::Frozen, AnnouncedState::Confirmed(..)) => {
                format!("the other nodes of round {round} to confirm, {world} in all")
            }
            (_, AnnouncedState::Registered(Registration::Spare, _)) => match active.next_size() {
                None => format!("a place to become free; round {round} is full with {world} nodes"),
                Some(next) => {
                    let more = next.saturating_sub(*world as usize);
                    let sizes = active.sizes.listed(active.limits);
                    format!(
                        "a place to become free, or for {more} spares in all: round {round} has {world} nodes, and \
                         the next size is {next}{sizes}"
                    )
                }
            },
            _ => match active.sizes.scale_up_after() {
                Duration::ZERO => format!("the {world} nodes of round {round} to make room"),
                after => format!(
                    "the {world} nodes of round {round} to make room, {after:?} after they formed their group or \
                     later (scale_up_after)"
                ),
            },
        }
    }
}
