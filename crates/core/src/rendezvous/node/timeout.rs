//! The deadlines of a node, and what was missing when its attempt timed out.

use super::resume::Resuming;
use super::{JoinAttempt, Node, PendingRequest};
use crate::kv::{RangeResult, Time, TxnResult};
use crate::rendezvous::coordinator::some_of;
use crate::rendezvous::documents::{Active, Status};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::messages::{Purpose, RendezvousFailure};
use crate::rendezvous::txn::{Diagnosis, DiagnosisReader};

/// How long a node that timed out tries to find out what was missing.
const DIAGNOSIS: Time = Time::from_secs(2);

/// The largest group in which each node may read which nodes are missing.
const SMALL_GROUP: usize = 256;

impl Node {
    /// Whether the node was a member of a group and has no session now, and so waits for a server first of all.
    pub(super) fn lacks_server(&self) -> bool {
        self.lease.is_none() && self.announced.previous.is_some()
    }

    /// A server answers. The time without one is no part of the attempt.
    pub(super) fn server_answers(&mut self, now: Time) {
        if let Some(attempt) = &mut self.attempt
            && let Some(since) = attempt.server_lost.take()
        {
            let lost = now.saturating_sub(since);
            attempt.deadline = attempt.deadline.map(|deadline| deadline.saturating_add(lost));
        }
    }

    /// Whether the round waits because too few nodes of the last group have come to this server, which is a successor.
    pub(super) fn lacks_quorum(&self) -> bool {
        match &self.coordinator {
            Some((coordinator, _)) => coordinator.lacks_quorum().is_some(),
            None => self.observed.active().is_some_and(|active| active.lacks_quorum.is_some()),
        }
    }

    /// Since when the node, which was a member of a group, has no server that could form another one.
    fn server_lost(&self, attempt: &JoinAttempt) -> Option<Time> {
        attempt.server_lost.filter(|_| self.lease.is_none() || self.lacks_quorum())
    }

    /// The end of an attempt, as far as it is known now.
    pub(super) fn ends(&self, attempt: &JoinAttempt) -> Option<Time> {
        let patience = self.config.server_timeout;
        match (self.server_lost(attempt), attempt.server_lost) {
            (Some(since), _) => Some(since.saturating_add(patience)),
            // The time without a server is no part of the attempt.
            (None, Some(_)) => attempt.deadline.map(|deadline| deadline.saturating_add(patience)),
            (None, None) => attempt.deadline,
        }
    }

    /// When to give [`NodeInput::Wake`](crate::rendezvous::NodeInput::Wake), if no other input comes before.
    pub fn next_wake(&self) -> Option<Time> {
        let deadline = self.attempt.and_then(|attempt| self.ends(&attempt));
        let objecting = self.attempt.and_then(|attempt| attempt.objects_until);
        let diagnosis = self.timed_out.map(|(_, until)| until);
        let coordinator =
            self.coordinator.as_ref().and_then(|(coordinator, _)| coordinator.next_wake());
        let resuming = self.resuming.as_ref().and_then(|resuming| resuming.until);
        [deadline, diagnosis, coordinator, resuming, objecting].into_iter().flatten().min()
    }

    pub(super) fn check_deadlines(&mut self, now: Time) {
        let late = |resuming: &Resuming| resuming.until.is_some_and(|until| until <= now);
        if self.resuming.as_ref().is_some_and(late) {
            self.give_way();
        }
        self.check_objection(now);
        let over = |attempt: &JoinAttempt| self.ends(attempt).is_some_and(|end| end <= now);
        if let Some(attempt) = self.attempt.filter(over) {
            self.drop_join_request();
            if let Some(since) = self.server_lost(&attempt) {
                let waited = now.saturating_sub(since);
                // Without a successor, no server can tell what is missing.
                let missing = self.lease.map(|_| self.missing_now(now));
                return self.fail(RendezvousFailure::ServerLost { waited, missing });
            }
            self.attempt = None;
            self.timed_out = Some((attempt, now.saturating_add(DIAGNOSIS)));
        }
        if let Some((attempt, _)) = self.timed_out.filter(|(_, until)| *until <= now) {
            self.drop_join_request();
            let waited = now.saturating_sub(attempt.since);
            self.fail(RendezvousFailure::TimedOut { waited, missing: None });
        }
    }

    /// Drops the request in flight if it belongs to the attempt. The user's commands go on.
    pub(super) fn drop_join_request(&mut self) {
        let of_the_attempt = |pending: &PendingRequest| {
            matches!(
                pending,
                PendingRequest::Open(_)
                    | PendingRequest::Join(_)
                    | PendingRequest::Confirm(..)
                    | PendingRequest::Register(..)
                    | PendingRequest::Diagnose(_)
            )
        };
        self.request.take_if(|(_, pending)| of_the_attempt(pending));
    }

    /// Finds out which nodes are missing.
    ///
    /// All nodes of a round time out together, and each read costs the server as many steps as there are nodes. In a
    /// large group only the coordinator names the missing nodes: it knows them without a read, and logs them.
    pub(super) fn diagnose(&mut self, now: Time, attempt: JoinAttempt) {
        if self.config.limits.max > SMALL_GROUP {
            let waited = now.saturating_sub(attempt.since);
            let missing = Some(format!("it waited for {}", self.waits_for(now)));
            return self.fail(RendezvousFailure::TimedOut { waited, missing });
        }
        let round = self.observed.active().map_or(0, |active| active.round);
        let (txn, reader) = self.txns.diagnose(round);
        self.send_request(Purpose::Diagnose, txn, PendingRequest::Diagnose(reader));
    }

    pub(super) fn diagnosed(&mut self, now: Time, reader: &DiagnosisReader, reply: &TxnResult) {
        let missing = reader.read(reply).map(|diagnosis| self.missing(&diagnosis));
        if let Some((attempt, _)) = self.timed_out {
            let waited = now.saturating_sub(attempt.since);
            self.fail(RendezvousFailure::TimedOut { waited, missing });
        }
    }

    /// Which nodes are missing, in a sentence.
    fn missing(&self, diagnosis: &Diagnosis<'_>) -> String {
        let Diagnosis { members, ranks, ready } = diagnosis;
        let names = |found: &RangeResult| -> Vec<String> {
            found.kvs.iter().filter_map(|kv| Keys::id_of(&kv.key)).map(str::to_owned).collect()
        };
        let Some(active) = self.observed.active() else {
            return "no round was open".to_owned();
        };
        let Active { round, world, limits, sizes, .. } = active;
        match active.status {
            Status::Joinable => {
                let (count, min) = (members.count, sizes.smallest(*limits));
                let (here, sizes) = (some_of(&names(members)), sizes.listed(*limits));
                format!("round {round} has {count} of at least {min} nodes: {here}{sizes}")
            }
            Status::Frozen => {
                let (count, confirmed) = (ready.count, names(ready));
                let silent: Vec<String> =
                    names(ranks).into_iter().filter(|id| !confirmed.contains(id)).collect();
                // A large group returns only some names, and their difference would be wrong.
                let whole = ranks.count as usize == ranks.kvs.len();
                let silent =
                    if whole { format!(", missing {}", some_of(&silent)) } else { String::new() };
                format!("round {round}: {count} of {world} nodes confirmed{silent}")
            }
            Status::Final => {
                let max = limits.max;
                format!(
                    "round {round} runs with {world} of at most {max} nodes and did not meet again"
                )
            }
            Status::Closed => "the run was closed".to_owned(),
        }
    }
}
