//! The transactions. Each may be executed twice or late without harm: what it changes, it changes only
//! while the document that it was decided on is still the one in force (invariant A4).

use super::document::{Active, Address, Joined, Node, Ranked, Rounds, encode};
use super::interface::Settings;
use crate::kv::{Compare, KeyRange, LeaseId, Op, Put, Range, Relation, Revision, Target, Txn};

/// etcd takes 128 operations in a transaction, unless told otherwise.
pub(super) const OPS_PER_TXN: usize = 128;

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

/// What a document in force must still be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Guard {
    /// Unchanged since then.
    At(Revision),
    /// Not there, and `rdzv/round` must say this.
    Absent(Option<Rounds>),
}

/// The same, on one more condition.
fn and(mut txn: Txn, unmoved: Unmoved) -> Txn {
    txn.compares.push(unmoved.compare());
    txn
}

impl Settings {
    fn guard(&self, guard: Guard) -> Vec<Compare> {
        let rounds = |rounds: Option<Rounds>| match rounds {
            None => Compare::absent(self.keys.round()),
            Some(rounds) => Compare {
                range: KeyRange::key(self.keys.round()),
                relation: Relation::Equal,
                target: Target::Value(encode(&rounds)),
            },
        };
        match guard {
            Guard::At(revision) => vec![Compare::unchanged_since(self.keys.active(), revision)],
            Guard::Absent(last) => vec![Compare::absent(self.keys.active()), rounds(last)],
        }
    }

    fn read(&self, key: String) -> Op {
        Op::Range(Range::new(KeyRange::key(key)))
    }

    /// Every refused request tells what is in force instead.
    fn in_force(&self) -> Vec<Op> {
        vec![self.read(self.keys.active()), self.read(self.keys.round())]
    }

    fn when(&self, guard: Guard, ops: Vec<Op>) -> Txn {
        Txn::when(self.guard(guard)).then(ops).otherwise(self.in_force())
    }

    fn put_active(&self, active: &Active, lease: LeaseId) -> Op {
        Op::Put(Put::new(self.keys.active(), encode(active)).on_lease(lease))
    }

    fn put_rounds(&self, rounds: Rounds) -> Op {
        Op::Put(Put::new(self.keys.round(), encode(&rounds)).on_lease(self.run_lease))
    }

    /// Begins a round, which lives as long as its coordinator, and joins it.
    pub(super) fn open(
        &self,
        guard: Guard,
        active: &Active,
        lease: LeaseId,
        (unmoved, here): (Unmoved, Whereabouts),
    ) -> Txn {
        let mut ops = vec![self.put_active(active, lease), self.put_rounds(active.rounds())];
        ops.extend(here.ops);
        and(self.when(guard, ops), unmoved)
    }

    /// Joins a round, or registers with it. Does not change the document, so nobody conflicts.
    pub(super) fn announce(&self, revision: Revision, unmoved: Unmoved, here: Whereabouts) -> Txn {
        and(self.when(Guard::At(revision), here.ops), unmoved)
    }

    /// Says that the node has seen its rank, which the answer tells it, and is there.
    pub(super) fn confirm(
        &self,
        active: (&Active, Revision),
        unmoved: Unmoved,
        id: &str,
        lease: LeaseId,
        listens: Option<&Address>,
    ) -> Txn {
        let round = active.0.round;
        let rank = || self.read(self.keys.rank(round, id));
        let says = listens.map_or_else(bytes::Bytes::new, encode);
        let put = Op::Put(Put::new(self.keys.ready(round, id), says).on_lease(lease));
        let mut compares = self.guard(Guard::At(active.1));
        compares.push(Compare::exists(self.keys.rank(round, id)));
        // A late copy must not confirm for a node that has left.
        compares.push(Compare::exists(self.keys.member(round, id)));
        let mut instead = self.in_force();
        instead.extend([rank(), self.read(self.keys.ready(round, id))]);
        and(Txn::when(compares).then([put, rank()]).otherwise(instead), unmoved)
    }

    /// Takes back everything that a node announced, and the round in progress if that is its own.
    pub(super) fn leave(&self, unmoved: Unmoved, lease: LeaseId, here: Whereabouts) -> Txn {
        let node = unmoved.node.clone();
        let mut ops = vec![Op::Txn(self.disown(lease))];
        ops.extend(here.delete(node.clone()).ops);
        Txn::when([unmoved.compare()]).then(ops).otherwise([self.read(node)])
    }

    /// Deletes the round in progress if it is on this lease, also when it was begun or changed by a
    /// request whose answer never came.
    pub(super) fn disown(&self, lease: LeaseId) -> Txn {
        let own = Compare {
            range: KeyRange::key(self.keys.active()),
            relation: Relation::Equal,
            target: Target::Lease(lease),
        };
        Txn::when([own]).then([Op::Delete(KeyRange::key(self.keys.active()).into())])
    }

    pub(super) fn close(&self, guard: Guard, closed: &Active) -> Txn {
        self.when(guard, vec![self.put_active(closed, self.run_lease)])
    }

    pub(super) fn reopen(&self, revision: Revision) -> Txn {
        let gone = Op::Delete(KeyRange::key(self.keys.active()).into());
        self.when(Guard::At(revision), vec![gone])
    }

    /// Who is there, for an error message: a few names and how many there are.
    pub(super) fn diagnose(&self, round: u64) -> Txn {
        const NAMES: i64 = 16;
        let some = |range| Range { keys_only: true, limit: NAMES, ..Range::new(range) };
        let (members, ranks) = (self.keys.members(round), self.keys.ranks(round));
        Txn::reading([some(members), some(ranks), some(self.keys.all_ready(round))])
    }

    /// Who is there, for the coordinator of a round.
    pub(super) fn survey(&self, round: u64, previous: u64) -> Txn {
        let keys = |range| Range { keys_only: true, ..Range::new(range) };
        Txn::reading([
            keys(self.keys.nodes()),
            keys(self.keys.all_waiting()),
            keys(self.keys.suspects()),
            Range::new(self.keys.members(round)),
            Range::new(self.keys.all_ready(round)),
            keys(self.keys.members(previous)),
            Range::new(self.keys.ranks(round)),
        ])
    }

    /// Writes some ranks.
    pub(super) fn rank(&self, revision: Revision, round: u64, ranks: &[(String, Ranked)]) -> Txn {
        self.when(Guard::At(revision), self.put_ranks(round, ranks))
    }

    fn put_ranks(&self, round: u64, ranks: &[(String, Ranked)]) -> Vec<Op> {
        let put = |(id, ranked): &(String, Ranked)| {
            Op::Put(Put::new(self.keys.rank(round, id), encode(ranked)).on_lease(self.run_lease))
        };
        ranks.iter().map(put).collect()
    }

    /// Ends the joining, with the ranks in the same step if they are few enough.
    pub(super) fn freeze(
        &self,
        revision: Revision,
        frozen: &Active,
        lease: LeaseId,
        ranks: &[(String, Ranked)],
    ) -> Txn {
        let mut ops = self.put_ranks(frozen.round, ranks);
        ops.push(self.put_active(frozen, lease));
        self.when(Guard::At(revision), ops)
    }

    /// Replaces the document by one of the same coordinator.
    pub(super) fn replace(&self, revision: Revision, active: &Active, lease: LeaseId) -> Txn {
        let ops = vec![self.put_active(active, lease), self.put_rounds(active.rounds())];
        self.when(Guard::At(revision), ops)
    }

    /// Declares the group formed, with `keeper` as its coordinator from here on, who must still be there:
    /// its lease, on which the document lives, is the one it confirmed on.
    pub(super) fn finish(&self, revision: Revision, formed: &Active, keeper: LeaseId) -> Txn {
        let mut txn = self.replace(revision, formed, keeper);
        txn.compares.push(Compare {
            range: KeyRange::key(self.keys.ready(formed.round, &formed.author.id)),
            relation: Relation::Equal,
            target: Target::Lease(keeper),
        });
        txn
    }

    /// Deletes the rounds before `round`, and what was reported of nodes that are no more.
    pub(super) fn sweep(&self, round: u64, buried: &[String]) -> Txn {
        let earlier = round.saturating_sub(SWEPT_ROUNDS).max(1)..round;
        let rounds = earlier.map(|old| self.keys.whole_round(old));
        let reports = buried.iter().map(|id| KeyRange::key(self.keys.suspect(id)));
        Txn::default().then(rounds.chain(reports).map(|range| Op::Delete(range.into())))
    }

    /// The document by which a node joins.
    pub(super) fn joined(
        &self,
        node: &Node,
        arrived: Option<Revision>,
        seat: Option<super::ranks::Seat>,
    ) -> Joined {
        Joined { arrived, hint: node.hint, topology: node.topology.clone(), seat }
    }
}
