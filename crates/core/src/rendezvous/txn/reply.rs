//! The replies to the transactions, read by position.
//!
//! The builders of the [transactions](super) record the positions in the readers of this file.

use std::time::Duration;

use crate::kv::{KeyValue, LeaseId, OpResult, RangeResult, Revision, TxnResult};
use crate::rendezvous::documents::{DocumentError, Predecessor, Ranked, RunHistory, decode};

/// The position of one operation's result in a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot(usize);

impl Slot {
    fn range(self, reply: &TxnResult) -> Option<&RangeResult> {
        match reply.results.get(self.0) {
            Some(OpResult::Range(range)) => Some(range),
            _ => None,
        }
    }

    fn first(self, reply: &TxnResult) -> Option<&KeyValue> {
        self.range(reply)?.kvs.first()
    }

    fn all(self, reply: &TxnResult) -> &[KeyValue] {
        self.range(reply).map_or(&[], |range| range.kvs.as_slice())
    }
}

/// Appends an operation to a branch of a transaction and returns the position of its result.
pub(super) fn push<T>(branch: &mut Vec<T>, op: T) -> Slot {
    branch.push(op);
    Slot(branch.len() - 1)
}

/// What one read of `rdzv/active`, `rdzv/round` and `rdzv/history` found.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::rendezvous) struct ActiveSnapshot<'a> {
    pub(in crate::rendezvous) active: Option<&'a KeyValue>,
    pub(in crate::rendezvous) rounds: Option<&'a KeyValue>,
    pub(in crate::rendezvous) history: Option<&'a KeyValue>,
}

impl<'a> ActiveSnapshot<'a> {
    /// Reads the reply to a refused transaction, or to [`NodeConfig::snapshot_txn`](crate::rendezvous::NodeConfig::snapshot_txn).
    pub(in crate::rendezvous) fn of_refusal(reply: &'a TxnResult) -> Self {
        let [active, rounds, history] = [0, 1, 2].map(|position| Slot(position).first(reply));
        Self { active, rounds, history }
    }

    /// The history; none if no history has begun, or its name cannot be read.
    pub(in crate::rendezvous) fn history(&self) -> Option<RunHistory> {
        parse_history(self.history)
    }
}

fn parse_history(kv: Option<&KeyValue>) -> Option<RunHistory> {
    serde_json::from_slice(&kv?.value).ok()
}

/// The result of confirming a rank.
#[derive(Debug)]
pub(in crate::rendezvous) struct Confirmed {
    /// The rank of the node; none if the round has none for it.
    pub(in crate::rendezvous) ranked: Option<Result<Ranked, DocumentError>>,
    /// The node is confirmed on its present lease, by this request or by an earlier attempt.
    pub(in crate::rendezvous) is_ready: bool,
}

/// Reads the reply to [`Txns::confirm`](super::Txns::confirm).
#[derive(Debug, Clone)]
pub(in crate::rendezvous) struct ConfirmReader {
    pub(super) granted_rank: Slot,
    pub(super) refused_rank: Slot,
    pub(super) refused_ready: Slot,
}

impl ConfirmReader {
    /// `lease` is the node's present lease.
    pub(in crate::rendezvous) fn read(
        &self,
        reply: &TxnResult,
        lease: Option<LeaseId>,
    ) -> Confirmed {
        let (rank, is_ready) = match reply.succeeded {
            true => (self.granted_rank.first(reply), true),
            false => {
                let ready = self.refused_ready.first(reply);
                (self.refused_rank.first(reply), ready.is_some_and(|kv| Some(kv.lease) == lease))
            }
        };
        Confirmed { ranked: rank.map(|kv| decode(&kv.key, &kv.value)), is_ready }
    }
}

/// The result of leaving.
#[derive(Debug)]
pub(in crate::rendezvous) struct Left {
    /// The round in force was on the node's lease, and is deleted.
    pub(in crate::rendezvous) disowned: bool,
    /// The lease of the node's own document, if the request was refused and the document still exists.
    pub(in crate::rendezvous) still_on: Option<LeaseId>,
}

/// Reads the reply to [`Txns::leave`](super::Txns::leave).
#[derive(Debug, Clone)]
pub(in crate::rendezvous) struct LeaveReader {
    pub(super) disowned: Slot,
    pub(super) refused_node: Slot,
}

impl LeaveReader {
    pub(in crate::rendezvous) fn read(&self, reply: &TxnResult) -> Left {
        let disowned = match reply.results.get(self.disowned.0) {
            Some(OpResult::Txn(disowned)) => disowned.succeeded,
            _ => false,
        };
        Left { disowned, still_on: self.refused_node.first(reply).map(|kv| kv.lease) }
    }
}

/// The members, ranks and confirmations of a round, for an error message: counts, and the first names.
#[derive(Debug)]
pub(in crate::rendezvous) struct Diagnosis<'a> {
    pub(in crate::rendezvous) members: &'a RangeResult,
    pub(in crate::rendezvous) ranks: &'a RangeResult,
    pub(in crate::rendezvous) ready: &'a RangeResult,
}

/// Reads the reply to [`Txns::diagnose`](super::Txns::diagnose).
#[derive(Debug, Clone)]
pub(in crate::rendezvous) struct DiagnosisReader {
    pub(super) members: Slot,
    pub(super) ranks: Slot,
    pub(super) ready: Slot,
}

impl DiagnosisReader {
    pub(in crate::rendezvous) fn read<'a>(&self, reply: &'a TxnResult) -> Option<Diagnosis<'a>> {
        Some(Diagnosis {
            members: self.members.range(reply)?,
            ranks: self.ranks.range(reply)?,
            ready: self.ready.range(reply)?,
        })
    }
}

/// The membership of a round at one revision, for its coordinator.
#[derive(Debug, Clone, Default)]
pub(in crate::rendezvous) struct MembershipSnapshot<'a> {
    pub(in crate::rendezvous) revision: Revision,
    pub(in crate::rendezvous) nodes: &'a [KeyValue],
    pub(in crate::rendezvous) waiting: &'a [KeyValue],
    pub(in crate::rendezvous) suspects: &'a [KeyValue],
    /// Nodes that joined the round.
    pub(in crate::rendezvous) members: &'a [KeyValue],
    /// Nodes that confirmed their rank in the round.
    pub(in crate::rendezvous) ready: &'a [KeyValue],
    /// Nodes that joined the last round that formed a group.
    pub(in crate::rendezvous) last_members: &'a [KeyValue],
    /// Nodes that may still have workers of that group.
    pub(in crate::rendezvous) last_ready: &'a [KeyValue],
    /// The ranks of the round.
    pub(in crate::rendezvous) ranks: &'a [KeyValue],
    /// Nodes that disagree with the round.
    pub(in crate::rendezvous) objectors: &'a [KeyValue],
    /// Nodes for which the last group had no room.
    pub(in crate::rendezvous) spares: &'a [KeyValue],
    pub(in crate::rendezvous) history: Option<RunHistory>,
    /// How long the preceding server had been silent when this server started, if this server kept none of its state.
    pub(in crate::rendezvous) predecessor: Option<Duration>,
    /// The last group; only where hosts succeed each other as servers.
    pub(in crate::rendezvous) last_group: Option<LastGroup<'a>>,
}

/// The last group of the history, where hosts succeed each other as servers.
#[derive(Debug, Clone, Copy)]
pub(in crate::rendezvous) struct LastGroup<'a> {
    pub(in crate::rendezvous) ranks: &'a [KeyValue],
    /// Members that have left in good order.
    pub(in crate::rendezvous) left: &'a [KeyValue],
    /// The [`Overruled`](crate::rendezvous::documents::Overruled) of an operator.
    pub(in crate::rendezvous) overruled: Option<&'a KeyValue>,
}

/// Reads a [`LastGroup`].
#[derive(Debug, Clone)]
pub(in crate::rendezvous) struct LineageReader {
    pub(super) ranks: Slot,
    pub(super) left: Slot,
    pub(super) overruled: Slot,
}

impl LineageReader {
    fn read<'a>(&self, reply: &'a TxnResult) -> LastGroup<'a> {
        LastGroup {
            ranks: self.ranks.all(reply),
            left: self.left.all(reply),
            overruled: self.overruled.first(reply),
        }
    }
}

/// Reads the reply to [`Txns::read_membership`](super::Txns::read_membership).
#[derive(Debug, Clone)]
pub(in crate::rendezvous) struct MembershipReader {
    pub(super) nodes: Slot,
    pub(super) waiting: Slot,
    pub(super) suspects: Slot,
    pub(super) members: Slot,
    pub(super) ready: Slot,
    pub(super) last_members: Slot,
    pub(super) last_ready: Slot,
    pub(super) ranks: Slot,
    pub(super) objectors: Slot,
    pub(super) spares: Slot,
    pub(super) history: Slot,
    pub(super) predecessor: Slot,
    pub(super) lineage: Option<LineageReader>,
}

impl MembershipReader {
    pub(in crate::rendezvous) fn read<'a>(&self, reply: &'a TxnResult) -> MembershipSnapshot<'a> {
        MembershipSnapshot {
            revision: reply.revision,
            nodes: self.nodes.all(reply),
            waiting: self.waiting.all(reply),
            suspects: self.suspects.all(reply),
            members: self.members.all(reply),
            ready: self.ready.all(reply),
            last_members: self.last_members.all(reply),
            last_ready: self.last_ready.all(reply),
            ranks: self.ranks.all(reply),
            objectors: self.objectors.all(reply),
            spares: self.spares.all(reply),
            history: parse_history(self.history.first(reply)),
            predecessor: self.predecessor.first(reply).map(|kv| {
                // An unreadable predecessor may have been alive a moment ago.
                let read: Result<Predecessor, _> = decode(&kv.key, &kv.value);
                Duration::from_millis(read.map_or(0, |before| before.silent_ms))
            }),
            last_group: self.lineage.as_ref().map(|lineage| lineage.read(reply)),
        }
    }
}
