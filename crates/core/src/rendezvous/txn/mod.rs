//! The transactions of a run, and the readers of their replies.
//!
//! A builder whose reply carries results returns the transaction together with a typed reader, so that nothing outside
//! this module reads a reply by position. A refused transaction reads the documents in force before anything else, for
//! [`ActiveSnapshot::of_refusal`].
//!
//! Each transaction is idempotent, and harmless when it is executed late: it changes something only in the history,
//! and under the document in force, on which it was decided (invariant A4).

mod announcement;
mod operator;
mod reply;

pub(super) use self::announcement::AnnouncementOps;
use self::announcement::confirmation;
use self::reply::push;
pub(super) use self::reply::{
    ActiveSnapshot, ConfirmReader, Confirmed, Diagnosis, DiagnosisReader, LeaveReader, Left,
    LineageReader, MembershipReader, MembershipSnapshot,
};
use super::documents::{Active, BootstrapStore, Extra, Proofs, Ranked, RunHistory, encode};
use super::keys::{self, Keys};
use super::messages::NodeConfig;
use crate::events::{Stamp, stored_events};
use crate::kv::{
    Compare, CompareTarget, KeyRange, LeaseId, Op, Put, Range, Relation, Revision, Txn,
};

/// Ranks that one transaction writes. etcd accepts 128 operations in a transaction by default, and three of them are
/// the documents and an event.
pub(super) const RANKS_PER_TXN: usize = 125;

/// Earlier rounds that a new group deletes. The group before it deleted the rounds before those.
const SWEPT_ROUNDS: u64 = 64;

/// The stale-writer guard: the node's own document is unchanged since the revision that the node has observed.
///
/// A request that fails it is a delayed duplicate from an earlier session or an earlier join, and would undo a later
/// announcement of the node.
#[derive(Debug)]
pub(super) struct StaleWriterGuard {
    pub(super) node_key: String,
    pub(super) observed: Revision,
}

impl StaleWriterGuard {
    fn compare(self) -> Compare {
        Compare {
            range: KeyRange::key(self.node_key),
            relation: Relation::Less,
            target: CompareTarget::Mod(self.observed.saturating_add(1)),
        }
    }
}

/// The state of the shared documents under which a transaction may change them.
#[derive(Debug, Clone, Copy)]
pub(super) enum RoundGuard {
    /// The history goes on, and `rdzv/active` is unchanged since the revision.
    Active(RunHistory, Revision),
    /// The history goes on, `rdzv/active` does not exist, and `rdzv/round` is unchanged since the revision.
    NoActive(RunHistory, Revision),
    /// Neither document exists, and no history. This history begins with the transaction.
    NoHistory(RunHistory),
    /// `rdzv/active` cannot be read, and is unchanged since the revision.
    Unreadable(Revision),
}

impl RoundGuard {
    /// The history that goes on or begins under this guard; none under a document that cannot be read.
    pub(super) fn history(&self) -> Option<RunHistory> {
        match self {
            Self::Active(history, _) | Self::NoActive(history, _) | Self::NoHistory(history) => {
                Some(*history)
            }
            Self::Unreadable(_) => None,
        }
    }
}

/// The documents that a transaction puts in force.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoundDocuments<'a> {
    /// The document before it, from which the events of the run follow.
    pub(super) before: Option<&'a Active>,
    pub(super) active: &'a Active,
    /// The writer, and when.
    pub(super) stamp: Stamp<'a>,
    /// The fields of `rdzv/round` that this version does not know.
    pub(super) rounds_extra: &'a Extra,
}

/// The round in force, held by its coordinator.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnedRound<'a> {
    pub(super) active: &'a Active,
    /// The revision at which `active` was written.
    pub(super) revision: Revision,
    /// The coordinator's lease.
    pub(super) lease: LeaseId,
    /// The coordinator, and the time.
    pub(super) stamp: Stamp<'a>,
    /// The fields of `rdzv/round` that this version does not know.
    pub(super) rounds_extra: &'a Extra,
}

impl OwnedRound<'_> {
    fn guard(&self) -> RoundGuard {
        RoundGuard::Active(self.active.history, self.revision)
    }

    fn replaced_by<'a>(&'a self, active: &'a Active) -> RoundDocuments<'a> {
        let Self { active: before, stamp, rounds_extra, .. } = *self;
        RoundDocuments { before: Some(before), active, stamp, rounds_extra }
    }

    /// A document that follows this one, with the number of events up to it.
    pub(super) fn followed_by(&self, active: Active) -> Active {
        active.numbered(Some(self.active), self.active.events)
    }
}

/// Adds a condition to a transaction.
fn and(mut txn: Txn, compare: Compare) -> Txn {
    txn.compares.push(compare);
    txn
}

fn read(key: String) -> Op {
    Op::Range(Range::new(KeyRange::key(key)))
}

impl NodeConfig {
    /// Reads the documents in force, for [`NodeInput::Snapshot`](super::NodeInput::Snapshot).
    pub fn snapshot_txn(&self) -> Txn {
        Txns::new(self).snapshot()
    }
}

/// The keys that [`ActiveSnapshot`] reads, in this order.
fn documents_in_force(keys: &Keys) -> [String; 3] {
    [keys.active(), keys.round(), keys.history()]
}

/// Builds the transactions of one run.
#[derive(Debug, Clone)]
pub(super) struct Txns {
    keys: Keys,
    /// The lease of everything that belongs to no single node.
    run_lease: LeaseId,
    /// The events of the run are kept in its keys.
    keeps_events: bool,
    /// Hosts succeed each other as servers.
    succession: bool,
}

impl Txns {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let NodeConfig { keys, run_lease, keeps_events, succession, .. } = config;
        Self {
            keys: keys.clone(),
            run_lease: *run_lease,
            keeps_events: *keeps_events,
            succession: succession.is_some(),
        }
    }

    /// The transactions of the run with these keys, for a program that is no node of it.
    pub(super) fn of(keys: &Keys) -> Self {
        let (keys, run_lease) = (keys.clone(), keys.run_lease());
        Self { keys, run_lease, keeps_events: true, succession: false }
    }

    /// Reads the documents in force, as a refusal does.
    pub(super) fn snapshot(&self) -> Txn {
        let documents = documents_in_force(&self.keys);
        Txn::reading(documents.map(|key| Range::new(KeyRange::key(key))))
    }

    /// Begins a round, which lives as long as its coordinator's lease, and joins it.
    pub(super) fn open(
        &self,
        guard: RoundGuard,
        documents: RoundDocuments<'_>,
        lease: LeaseId,
        (stale, announcement): (StaleWriterGuard, AnnouncementOps),
    ) -> Txn {
        let mut ops = self.put(documents, lease);
        ops.extend(announcement.ops);
        and(self.when(guard, ops), stale.compare())
    }

    /// Joins a round, or registers with it. The round's document stays as it is, so concurrent announcements do not
    /// conflict.
    pub(super) fn announce(
        &self,
        guard: RoundGuard,
        stale: StaleWriterGuard,
        announcement: AnnouncementOps,
    ) -> Txn {
        and(self.when(guard, announcement.ops), stale.compare())
    }

    /// Restores the node's announcement in its group after the loss of its lease, provided that no other round was
    /// opened meanwhile. `own` is the round's document, if it was the node's own and expired with the lease.
    pub(super) fn resume(
        &self,
        guard: RoundGuard,
        own: Option<RoundDocuments<'_>>,
        lease: LeaseId,
        announcement: AnnouncementOps,
    ) -> Txn {
        let mut ops = own.map(|documents| self.put(documents, lease)).unwrap_or_default();
        ops.extend(announcement.ops);
        self.when(guard, ops)
    }

    /// Confirms the node's rank in a round. The reply tells the rank.
    pub(super) fn confirm(
        &self,
        (active, revision): (&Active, Revision),
        stale: StaleWriterGuard,
        id: &str,
        lease: LeaseId,
        (store, proofs): (Option<&BootstrapStore>, Proofs),
    ) -> (Txn, ConfirmReader) {
        let round = active.round;
        let value = confirmation(store, proofs);
        let mut compares = self.guard(RoundGuard::Active(active.history, revision));
        compares.push(Compare::exists(self.keys.rank(round, id)));
        // A delayed duplicate must not confirm for a node that has left.
        compares.push(Compare::exists(self.keys.member(round, id)));
        compares.push(stale.compare());
        let mut granted =
            vec![Op::Put(Put::new(self.keys.ready(round, id), value).on_lease(lease))];
        let granted_rank = push(&mut granted, read(self.keys.rank(round, id)));
        let mut refused = self.read_in_force();
        let refused_rank = push(&mut refused, read(self.keys.rank(round, id)));
        let refused_ready = push(&mut refused, read(self.keys.ready(round, id)));
        let txn = Txn::when(compares).then(granted).otherwise(refused);
        (txn, ConfirmReader { granted_rank, refused_rank, refused_ready })
    }

    /// Changes the confirmation of a member. A delayed duplicate must not confirm for a node that has left.
    pub(super) fn report_unreached(
        &self,
        (history, round): (RunHistory, u64),
        stale: StaleWriterGuard,
        id: &str,
        lease: LeaseId,
        value: bytes::Bytes,
    ) -> Txn {
        let ready = self.keys.ready(round, id);
        let is_confirmed = Compare {
            range: KeyRange::key(ready.clone()),
            relation: Relation::Equal,
            target: CompareTarget::Lease(lease),
        };
        let put = Op::Put(Put::new(ready, value).on_lease(lease));
        let compares = [self.in_history(history), is_confirmed, stale.compare()];
        Txn::when(compares).then([put]).otherwise(self.read_in_force())
    }

    /// Deletes everything that the node announced, and the round in force if it is on the node's lease.
    pub(super) fn leave(
        &self,
        history: Option<RunHistory>,
        stale: StaleWriterGuard,
        lease: LeaseId,
        announcement: AnnouncementOps,
    ) -> (Txn, LeaveReader) {
        let node_key = stale.node_key.clone();
        let mut granted = Vec::new();
        let disowned = push(&mut granted, Op::Txn(self.disown(lease)));
        granted.extend(announcement.delete(node_key.clone()).ops);
        let mut refused = self.read_in_force();
        let refused_node = push(&mut refused, read(node_key));
        let compares = history.map(|history| self.in_history(history));
        let compares = compares.into_iter().chain([stale.compare()]);
        let txn = Txn::when(compares).then(granted).otherwise(refused);
        (txn, LeaveReader { disowned, refused_node })
    }

    /// Says that a member of the group of this round has left in good order, unless the round is deleted already.
    pub(super) fn left(&self, round: u64, id: &str) -> Txn {
        let put = Put::new(self.keys.left(round, id), "").on_lease(self.run_lease);
        Txn::when([Compare::exists(self.keys.rank(round, id))]).then([Op::Put(put)])
    }

    /// Deletes the round in force if it is on this lease, also when a request opened or changed it whose reply never
    /// came.
    fn disown(&self, lease: LeaseId) -> Txn {
        let own = Compare {
            range: KeyRange::key(self.keys.active()),
            relation: Relation::Equal,
            target: CompareTarget::Lease(lease),
        };
        Txn::when([own]).then([Op::Delete(KeyRange::key(self.keys.active()).into())])
    }

    /// Reports `node`, a member of the group of round `formed`, as suspect. In a round that takes nodes (`joinable`),
    /// only if the node has not joined it: a node that joined is alive, and a report of it would end the round.
    pub(super) fn suspect(
        &self,
        guard: RoundGuard,
        stale: StaleWriterGuard,
        lease: LeaseId,
        (node, formed): (&str, u64),
        joinable: Option<u64>,
    ) -> Txn {
        let report = AnnouncementOps::default().put(self.keys.suspect(node), "", lease);
        let mut txn = self.announce(guard, stale, report);
        // Only members of the group have peers that watch them.
        txn.compares.push(Compare::exists(self.keys.rank(formed, node)));
        txn.compares.extend(joinable.map(|round| Compare::absent(self.keys.member(round, node))));
        txn
    }

    /// Reads the members, ranks and confirmations of a round, for an error message: counts, and the first names.
    pub(super) fn diagnose(&self, round: u64) -> (Txn, DiagnosisReader) {
        const NAMES: i64 = 16;
        let mut ranges = Vec::new();
        let mut some =
            |range| push(&mut ranges, Range { keys_only: true, limit: NAMES, ..Range::new(range) });
        let reader = DiagnosisReader {
            members: some(self.keys.members(round)),
            ranks: some(self.keys.ranks(round)),
            ready: some(self.keys.all_ready(round)),
        };
        (Txn::reading(ranges), reader)
    }

    /// Reads the membership of a round, for its coordinator. `previous` is the last round before it that formed a
    /// group.
    pub(super) fn read_membership(&self, round: u64, previous: u64) -> (Txn, MembershipReader) {
        let keys_of = |range| Range { keys_only: true, ..Range::new(range) };
        let mut ranges = Vec::new();
        let mut reads = |range| push(&mut ranges, range);
        let reader = MembershipReader {
            nodes: reads(keys_of(self.keys.nodes())),
            waiting: reads(keys_of(self.keys.all_waiting())),
            suspects: reads(keys_of(self.keys.suspects())),
            members: reads(Range::new(self.keys.members(round))),
            ready: reads(Range::new(self.keys.all_ready(round))),
            last_members: reads(keys_of(self.keys.members(previous))),
            last_ready: reads(keys_of(self.keys.all_ready(previous))),
            ranks: reads(Range::new(self.keys.ranks(round))),
            objectors: reads(Range::new(self.keys.objectors())),
            spares: reads(keys_of(self.keys.spares())),
            history: reads(Range::new(KeyRange::key(self.keys.history()))),
            predecessor: reads(Range::new(KeyRange::key(keys::PREDECESSOR))),
            lineage: self.succession.then(|| LineageReader {
                ranks: reads(keys_of(self.keys.ranks(previous))),
                left: reads(keys_of(self.keys.all_left(previous))),
                overruled: reads(Range::new(KeyRange::key(self.keys.overruled()))),
            }),
        };
        (Txn::reading(ranges), reader)
    }

    /// Writes some of the ranks of a round.
    pub(super) fn assign_ranks(&self, own: OwnedRound<'_>, ranks: &[(String, Ranked)]) -> Txn {
        self.when(own.guard(), self.put_ranks(own.active.round, ranks))
    }

    fn put_ranks(&self, round: u64, ranks: &[(String, Ranked)]) -> Vec<Op> {
        let put = |(id, ranked): &(String, Ranked)| {
            Op::Put(Put::new(self.keys.rank(round, id), encode(ranked)).on_lease(self.run_lease))
        };
        ranks.iter().map(put).collect()
    }

    /// Ends the joining, and writes the ranks in the same transaction if they fit into it. Requires that no member of
    /// the last group may have workers.
    pub(super) fn freeze(
        &self,
        own: OwnedRound<'_>,
        frozen: &Active,
        ranks: &[(String, Ranked)],
    ) -> Txn {
        let mut ops = self.put_ranks(frozen.round, ranks);
        ops.extend(self.put(own.replaced_by(frozen), own.lease));
        let mut txn = self.when(own.guard(), ops);
        txn.compares.extend(self.no_workers_of(frozen.previous));
        txn
    }

    /// Replaces the document by another one of the same coordinator.
    pub(super) fn replace(&self, own: OwnedRound<'_>, active: &Active) -> Txn {
        self.when(own.guard(), self.put(own.replaced_by(active), own.lease))
    }

    /// Declares the group formed. The document moves to the lease `coordinator_lease`, on which the coordinator that
    /// `formed` names must have confirmed. Requires that no member of the last group may have workers.
    pub(super) fn finalize(
        &self,
        own: OwnedRound<'_>,
        formed: &Active,
        coordinator_lease: LeaseId,
    ) -> Txn {
        let mut txn = self.when(own.guard(), self.put(own.replaced_by(formed), coordinator_lease));
        txn.compares.push(Compare {
            range: KeyRange::key(self.keys.ready(formed.round, &formed.coordinator.id)),
            relation: Relation::Equal,
            target: CompareTarget::Lease(coordinator_lease),
        });
        txn.compares.extend(self.no_workers_of(formed.previous));
        txn
    }

    /// Deletes the rounds before `round`, and the suspect reports of nodes whose leases have expired.
    pub(super) fn sweep(&self, history: RunHistory, round: u64, expired: &[String]) -> Txn {
        let earlier = round.saturating_sub(SWEPT_ROUNDS).max(1)..round;
        let rounds = earlier.map(|old| self.keys.whole_round(old));
        let reports = expired.iter().map(|id| KeyRange::key(self.keys.suspect(id)));
        let deletes = rounds.chain(reports).map(|range| Op::Delete(range.into()));
        Txn::when([self.in_history(history)]).then(deletes).otherwise(self.read_in_force())
    }

    fn in_history(&self, history: RunHistory) -> Compare {
        Compare {
            range: KeyRange::key(self.keys.history()),
            relation: Relation::Equal,
            target: CompareTarget::Value(history.to_json()),
        }
    }

    /// No node may have workers of the group of this round: invariant R5.
    fn no_workers_of(&self, round: u64) -> Option<Compare> {
        let range = self.keys.all_ready(round);
        (round > 0).then(|| Compare { range, ..Compare::absent("") })
    }

    fn guard(&self, guard: RoundGuard) -> Vec<Compare> {
        let (active, round) = (|| self.keys.active(), || self.keys.round());
        match guard {
            RoundGuard::Active(history, revision) => {
                vec![Compare::unchanged_since(active(), revision), self.in_history(history)]
            }
            RoundGuard::NoActive(history, revision) => vec![
                Compare::absent(active()),
                Compare::unchanged_since(round(), revision),
                self.in_history(history),
            ],
            RoundGuard::NoHistory(_) => documents_in_force(&self.keys).map(Compare::absent).into(),
            RoundGuard::Unreadable(revision) => {
                vec![Compare::unchanged_since(active(), revision)]
            }
        }
    }

    /// The reads with which every refusal begins: see [`ActiveSnapshot::of_refusal`].
    fn read_in_force(&self) -> Vec<Op> {
        documents_in_force(&self.keys).map(read).into()
    }

    fn when(&self, guard: RoundGuard, ops: Vec<Op>) -> Txn {
        let begins = match guard {
            RoundGuard::NoHistory(history) => {
                let put = Put::new(self.keys.history(), history.to_json());
                Some(Op::Put(put.on_lease(self.run_lease)))
            }
            _ => None,
        };
        let granted = begins.into_iter().chain(ops);
        Txn::when(self.guard(guard)).then(granted).otherwise(self.read_in_force())
    }

    /// Puts both documents, always together, so that both have the same revision; and the events of the run, of which
    /// there is at most one in almost every transaction.
    fn put(&self, documents: RoundDocuments<'_>, lease: LeaseId) -> Vec<Op> {
        let RoundDocuments { before, active, stamp, rounds_extra } = documents;
        let rounds = active.rounds(rounds_extra.clone());
        let put = |key, value, lease| Op::Put(Put::new(key, value).on_lease(lease));
        let of_the_run = self.keeps_events.then(|| stored_events(before, active, stamp));
        [
            put(self.keys.active(), encode(active), lease),
            put(self.keys.round(), encode(&rounds), self.run_lease),
        ]
        .into_iter()
        .chain(
            of_the_run
                .into_iter()
                .flatten()
                .map(|(number, event)| put(self.keys.event(number), event.into(), self.run_lease)),
        )
        .collect()
    }
}
