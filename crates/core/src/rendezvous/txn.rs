//! The transactions, each beside the reading of its answer. Nothing else reads an answer by position.
//!
//! Each may be executed twice or late without harm: what it changes, it changes only in the history and while
//! the document that it was decided on are still the ones in force (invariant A4).

use std::time::Duration;

use super::documents::{
    Active, BootstrapStore, DocumentError, Earlier, Extra, Joined, NodeDocument, Predecessor,
    Ranked, RunHistory, decode, encode,
};
use super::keys;
use super::messages::NodeConfig;
use super::ranks::PreviousAssignment;
use crate::kv::{
    Compare, KeyRange, KeyValue, LeaseId, Op, OpResult, Put, Range, RangeResult, Relation,
    Revision, Target, Txn, TxnResult,
};

/// etcd takes 128 operations in a transaction, unless told otherwise. Two are left for the documents.
pub(super) const RANKS_PER_TXN: usize = 126;

/// So many earlier rounds are swept when a group has formed. Those before them were swept then.
const SWEPT_ROUNDS: u64 = 64;

/// Puts and deletes that say where this node is.
#[derive(Debug, Clone, Default)]
pub(super) struct Whereabouts {
    ops: Vec<Op>,
}

impl Whereabouts {
    pub(super) fn put(
        mut self,
        key: String,
        value: impl Into<bytes::Bytes>,
        lease: LeaseId,
    ) -> Self {
        self.ops.push(Op::Put(Put::new(key, value).on_lease(lease)));
        self
    }

    pub(super) fn delete(mut self, key: String) -> Self {
        self.ops.push(Op::Delete(KeyRange::key(key).into()));
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub(super) fn delete_if(self, wanted: bool, key: impl FnOnce() -> String) -> Self {
        if wanted { self.delete(key()) } else { self }
    }
}

/// A node's own document must not have changed since what it knows. Else the request is a late copy,
/// of an earlier session or an earlier visit, and would undo what the node has said since.
#[derive(Debug)]
pub(super) struct Unmoved {
    pub(super) node: String,
    pub(super) known: Revision,
}

impl Unmoved {
    fn compare(self) -> Compare {
        Compare {
            range: KeyRange::key(self.node),
            relation: Relation::Less,
            target: Target::Mod(self.known.saturating_add(1)),
        }
    }
}

/// What must still be so.
#[derive(Debug, Clone, Copy)]
pub(super) enum Guard {
    /// This history goes on, and the document in force is unchanged since then.
    At(RunHistory, Revision),
    /// This history goes on, no document is in force, and `rdzv/round` is unchanged since then.
    Absent(RunHistory, Revision),
    /// Nothing is there. This history begins with the request.
    Nothing(RunHistory),
    /// The document in force, which cannot be read, is unchanged since then.
    Unreadable(Revision),
}

/// A document to put in force, with what `rdzv/round` says besides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Documents<'a> {
    pub(super) active: &'a Active,
    pub(super) rounds_extra: &'a Extra,
}

/// The document in force as its coordinator has it, who changes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own<'a> {
    pub(super) active: &'a Active,
    pub(super) revision: Revision,
    pub(super) lease: LeaseId,
    pub(super) rounds_extra: &'a Extra,
}

impl Own<'_> {
    fn guard(&self) -> Guard {
        Guard::At(self.active.history, self.revision)
    }

    fn becomes<'a>(&'a self, active: &'a Active) -> Documents<'a> {
        Documents { active, rounds_extra: self.rounds_extra }
    }
}

/// What is in force, as somebody read it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found<'a> {
    pub(super) active: Option<&'a KeyValue>,
    pub(super) rounds: Option<&'a KeyValue>,
    pub(super) history: Option<&'a KeyValue>,
}

impl<'a> Found<'a> {
    /// What a refused request was told.
    pub(super) fn refused(result: &'a TxnResult) -> Self {
        let [active, rounds, history] = [0, 1, 2].map(|index| first(result, index));
        Self { active, rounds, history }
    }

    /// The name of the history; none if it has none, or one that cannot be read.
    pub(super) fn history(&self) -> Option<RunHistory> {
        serde_json::from_slice(&self.history?.value).ok()
    }
}

fn range(result: &TxnResult, index: usize) -> Option<&RangeResult> {
    match result.results.get(index) {
        Some(OpResult::Range(range)) => Some(range),
        _ => None,
    }
}

fn first(result: &TxnResult, index: usize) -> Option<&KeyValue> {
    range(result, index)?.kvs.first()
}

fn all(result: &TxnResult, index: usize) -> &[KeyValue] {
    range(result, index).map_or(&[], |range| range.kvs.as_slice())
}

/// How many keys every refused request is told first.
const TOLD: usize = 3;

/// What came of confirming.
#[derive(Debug)]
pub(super) struct Confirmed {
    /// The node's rank, if it has one.
    pub(super) ranked: Option<Result<Ranked, DocumentError>>,
    /// Whether it is confirmed on this lease, now or by an earlier attempt.
    pub(super) is_ready: bool,
}

impl Confirmed {
    pub(super) fn read(result: &TxnResult, lease: Option<LeaseId>) -> Self {
        let (rank, is_ready) = match result.succeeded {
            true => (first(result, 1), true),
            false => {
                let ready = first(result, TOLD + 1);
                (first(result, TOLD), ready.is_some_and(|kv| Some(kv.lease) == lease))
            }
        };
        Self { ranked: rank.map(|kv| decode(&kv.key, &kv.value)), is_ready }
    }
}

/// What came of leaving.
#[derive(Debug)]
pub(super) struct Left {
    /// The round in progress was this node's, and is gone.
    pub(super) disowned: bool,
    /// The node's own document is still there, on this lease.
    pub(super) still_on: Option<LeaseId>,
}

impl Left {
    pub(super) fn read(result: &TxnResult) -> Self {
        let disowned = match result.results.first() {
            Some(OpResult::Txn(disowned)) => disowned.succeeded,
            _ => false,
        };
        Self { disowned, still_on: first(result, TOLD).map(|kv| kv.lease) }
    }
}

/// Who is there, for an error message.
#[derive(Debug)]
pub(super) struct Diagnosis<'a> {
    pub(super) members: &'a RangeResult,
    pub(super) ranks: &'a RangeResult,
    pub(super) ready: &'a RangeResult,
}

impl<'a> Diagnosis<'a> {
    pub(super) fn read(result: &'a TxnResult) -> Option<Self> {
        let [members, ranks, ready] = [0, 1, 2].map(|index| range(result, index));
        Some(Self { members: members?, ranks: ranks?, ready: ready? })
    }
}

/// Who is there, for the coordinator of a round.
#[derive(Debug, Clone, Default)]
pub(super) struct Survey<'a> {
    pub(super) revision: Revision,
    pub(super) nodes: &'a [KeyValue],
    pub(super) waiting: &'a [KeyValue],
    pub(super) suspects: &'a [KeyValue],
    /// Who joined the round, and who confirmed it.
    pub(super) members: &'a [KeyValue],
    pub(super) ready: &'a [KeyValue],
    /// Who joined the last round that formed a group, and who may still have workers of it.
    pub(super) last_members: &'a [KeyValue],
    pub(super) last_ready: &'a [KeyValue],
    /// The ranks of the round.
    pub(super) ranks: &'a [KeyValue],
    /// Who disagrees with the round.
    pub(super) objectors: &'a [KeyValue],
    pub(super) history: Option<RunHistory>,
    /// How long the server before this one was silent when this one started, if it kept nothing of that.
    pub(super) predecessor: Option<Duration>,
}

impl<'a> Survey<'a> {
    pub(super) fn read(result: &'a TxnResult) -> Self {
        let history = Found { history: first(result, 9), ..Found::default() }.history();
        Self {
            revision: result.revision,
            nodes: all(result, 0),
            waiting: all(result, 1),
            suspects: all(result, 2),
            members: all(result, 3),
            ready: all(result, 4),
            last_members: all(result, 5),
            last_ready: all(result, 6),
            ranks: all(result, 7),
            objectors: all(result, 8),
            history,
            predecessor: first(result, 10).map(|kv| {
                // One that cannot be read was there a moment ago, for all that is known.
                let read: Result<Predecessor, _> = decode(&kv.key, &kv.value);
                Duration::from_millis(read.map_or(0, |before| before.silent_ms))
            }),
        }
    }
}

/// The same, on one more condition.
fn and(mut txn: Txn, compare: Compare) -> Txn {
    txn.compares.push(compare);
    txn
}

impl NodeConfig {
    fn in_history(&self, history: RunHistory) -> Compare {
        Compare {
            range: KeyRange::key(self.keys.history()),
            relation: Relation::Equal,
            target: Target::Value(history.to_json()),
        }
    }

    /// Nobody may have workers of the group of this round: invariant R5.
    fn nobody_left_of(&self, round: u64) -> Option<Compare> {
        let range = self.keys.all_ready(round);
        (round > 0).then(|| Compare { range, ..Compare::absent("") })
    }

    fn guard(&self, guard: Guard) -> Vec<Compare> {
        let (active, round) = (|| self.keys.active(), || self.keys.round());
        match guard {
            Guard::At(history, revision) => {
                vec![Compare::unchanged_since(active(), revision), self.in_history(history)]
            }
            Guard::Absent(history, revision) => vec![
                Compare::absent(active()),
                Compare::unchanged_since(round(), revision),
                self.in_history(history),
            ],
            Guard::Nothing(_) => {
                [active(), round(), self.keys.history()].map(Compare::absent).into()
            }
            Guard::Unreadable(revision) => vec![Compare::unchanged_since(active(), revision)],
        }
    }

    fn read(&self, key: String) -> Op {
        Op::Range(Range::new(KeyRange::key(key)))
    }

    /// Every refused request tells what is in force instead: see [`Found::refused`].
    fn in_force(&self) -> Vec<Op> {
        [self.keys.active(), self.keys.round(), self.keys.history()]
            .map(|key| self.read(key))
            .into()
    }

    /// Reads what is in force, for [`NodeInput::Snapshot`](super::NodeInput::Snapshot).
    pub fn snapshot_txn(&self) -> Txn {
        let keys = [self.keys.active(), self.keys.round(), self.keys.history()];
        Txn::reading(keys.map(|key| Range::new(KeyRange::key(key))))
    }

    fn when(&self, guard: Guard, ops: Vec<Op>) -> Txn {
        let begins = match guard {
            Guard::Nothing(history) => {
                let put = Put::new(self.keys.history(), history.to_json());
                Some(Op::Put(put.on_lease(self.run_lease)))
            }
            _ => None,
        };
        Txn::when(self.guard(guard)).then(begins.into_iter().chain(ops)).otherwise(self.in_force())
    }

    /// Both documents, always together, so that both have the same revision.
    fn put(&self, documents: Documents<'_>, lease: LeaseId) -> Vec<Op> {
        let Documents { active, rounds_extra } = documents;
        let rounds = active.rounds(rounds_extra.clone());
        let put = |key, value, lease| Op::Put(Put::new(key, value).on_lease(lease));
        vec![
            put(self.keys.active(), encode(active), lease),
            put(self.keys.round(), encode(&rounds), self.run_lease),
        ]
    }

    /// Begins a round, which lives as long as its coordinator, and joins it.
    pub(super) fn open(
        &self,
        guard: Guard,
        documents: Documents<'_>,
        lease: LeaseId,
        (unmoved, here): (Unmoved, Whereabouts),
    ) -> Txn {
        let mut ops = self.put(documents, lease);
        ops.extend(here.ops);
        and(self.when(guard, ops), unmoved.compare())
    }

    /// Joins a round, or registers with it. Does not change the document, so nobody conflicts.
    pub(super) fn announce(&self, guard: Guard, unmoved: Unmoved, here: Whereabouts) -> Txn {
        and(self.when(guard, here.ops), unmoved.compare())
    }

    /// Takes up the place again that the node had in a group, since no other round was opened meanwhile. The
    /// document is put anew if it was the node's own and went with its lease.
    pub(super) fn resume(
        &self,
        guard: Guard,
        own: Option<Documents<'_>>,
        lease: LeaseId,
        here: Whereabouts,
    ) -> Txn {
        let mut ops = own.map(|documents| self.put(documents, lease)).unwrap_or_default();
        ops.extend(here.ops);
        self.when(guard, ops)
    }

    /// Says that the node has seen its rank, which the answer tells it, and is there. See [`Confirmed`].
    pub(super) fn confirm(
        &self,
        (active, revision): (&Active, Revision),
        unmoved: Unmoved,
        id: &str,
        lease: LeaseId,
        listens: Option<&BootstrapStore>,
    ) -> Txn {
        let round = active.round;
        let rank = || self.read(self.keys.rank(round, id));
        let says = listens.map_or_else(bytes::Bytes::new, encode);
        let put = Op::Put(Put::new(self.keys.ready(round, id), says).on_lease(lease));
        let mut compares = self.guard(Guard::At(active.history, revision));
        compares.push(Compare::exists(self.keys.rank(round, id)));
        // A late copy must not confirm for a node that has left.
        compares.push(Compare::exists(self.keys.member(round, id)));
        let mut instead = self.in_force();
        instead.extend([rank(), self.read(self.keys.ready(round, id))]);
        and(Txn::when(compares).then([put, rank()]).otherwise(instead), unmoved.compare())
    }

    /// Takes back everything that a node announced, and the round in progress if that is its own. See [`Left`].
    pub(super) fn leave(
        &self,
        history: Option<RunHistory>,
        unmoved: Unmoved,
        lease: LeaseId,
        here: Whereabouts,
    ) -> Txn {
        let node = unmoved.node.clone();
        let mut ops = vec![Op::Txn(self.disown(lease))];
        ops.extend(here.delete(node.clone()).ops);
        let mut instead = self.in_force();
        instead.push(self.read(node));
        let compares = history.map(|history| self.in_history(history));
        let compares = compares.into_iter().chain([unmoved.compare()]);
        Txn::when(compares).then(ops).otherwise(instead)
    }

    /// Deletes the round in progress if it is on this lease, also when it was begun or changed by a
    /// request whose answer never came.
    fn disown(&self, lease: LeaseId) -> Txn {
        let own = Compare {
            range: KeyRange::key(self.keys.active()),
            relation: Relation::Equal,
            target: Target::Lease(lease),
        };
        Txn::when([own]).then([Op::Delete(KeyRange::key(self.keys.active()).into())])
    }

    pub(super) fn close(&self, guard: Guard, closed: Documents<'_>) -> Txn {
        self.when(guard, self.put(closed, self.run_lease))
    }

    /// Takes away the document in force.
    pub(super) fn remove(&self, guard: Guard) -> Txn {
        self.when(guard, vec![Op::Delete(KeyRange::key(self.keys.active()).into())])
    }

    /// Who is there, for an error message: a few names and how many there are. See [`Diagnosis`].
    pub(super) fn diagnose(&self, round: u64) -> Txn {
        const NAMES: i64 = 16;
        let some = |range| Range { keys_only: true, limit: NAMES, ..Range::new(range) };
        let (members, ranks) = (self.keys.members(round), self.keys.ranks(round));
        Txn::reading([some(members), some(ranks), some(self.keys.all_ready(round))])
    }

    /// Who is there, for the coordinator of a round. See [`Survey`].
    pub(super) fn survey(&self, round: u64, previous: u64) -> Txn {
        let keys = |range| Range { keys_only: true, ..Range::new(range) };
        Txn::reading([
            keys(self.keys.nodes()),
            keys(self.keys.all_waiting()),
            keys(self.keys.suspects()),
            Range::new(self.keys.members(round)),
            Range::new(self.keys.all_ready(round)),
            keys(self.keys.members(previous)),
            keys(self.keys.all_ready(previous)),
            Range::new(self.keys.ranks(round)),
            Range::new(self.keys.objectors()),
            Range::new(KeyRange::key(self.keys.history())),
            Range::new(KeyRange::key(keys::PREDECESSOR)),
        ])
    }

    /// Writes some ranks.
    pub(super) fn rank(&self, own: Own<'_>, ranks: &[(String, Ranked)]) -> Txn {
        self.when(own.guard(), self.put_ranks(own.active.round, ranks))
    }

    fn put_ranks(&self, round: u64, ranks: &[(String, Ranked)]) -> Vec<Op> {
        let put = |(id, ranked): &(String, Ranked)| {
            Op::Put(Put::new(self.keys.rank(round, id), encode(ranked)).on_lease(self.run_lease))
        };
        ranks.iter().map(put).collect()
    }

    /// Ends the joining, with the ranks in the same step if they are few enough. Only over the last group's
    /// dead.
    pub(super) fn freeze(&self, own: Own<'_>, frozen: &Active, ranks: &[(String, Ranked)]) -> Txn {
        let mut ops = self.put_ranks(frozen.round, ranks);
        ops.extend(self.put(own.becomes(frozen), own.lease));
        let mut txn = self.when(own.guard(), ops);
        txn.compares.extend(self.nobody_left_of(frozen.previous));
        txn
    }

    /// Replaces the document by one of the same coordinator.
    pub(super) fn replace(&self, own: Own<'_>, active: &Active) -> Txn {
        self.when(own.guard(), self.put(own.becomes(active), own.lease))
    }

    /// Declares the group formed, with `keeper` as its coordinator from here on, who must still be there:
    /// its lease, on which the document lives, is the one it confirmed on. Only over the last group's dead.
    pub(super) fn finish(&self, own: Own<'_>, formed: &Active, keeper: LeaseId) -> Txn {
        let mut txn = self.when(own.guard(), self.put(own.becomes(formed), keeper));
        txn.compares.push(Compare {
            range: KeyRange::key(self.keys.ready(formed.round, &formed.coordinator.id)),
            relation: Relation::Equal,
            target: Target::Lease(keeper),
        });
        txn.compares.extend(self.nobody_left_of(formed.previous));
        txn
    }

    /// Deletes the rounds before `round` of this history, and what was reported of nodes that are no more.
    pub(super) fn sweep(&self, history: RunHistory, round: u64, buried: &[String]) -> Txn {
        let earlier = round.saturating_sub(SWEPT_ROUNDS).max(1)..round;
        let rounds = earlier.map(|old| self.keys.whole_round(old));
        let reports = buried.iter().map(|id| KeyRange::key(self.keys.suspect(id)));
        let deletes = rounds.chain(reports).map(|range| Op::Delete(range.into()));
        Txn::when([self.in_history(history)]).then(deletes).otherwise(self.in_force())
    }

    /// The document by which a node joins.
    pub(super) fn joined(
        &self,
        node: &NodeDocument,
        arrived: Option<Revision>,
        seat: Option<PreviousAssignment>,
        earlier: Earlier,
    ) -> Joined {
        Joined { arrived, hint: node.hint, topology: node.topology.clone(), seat, earlier }
    }
}
