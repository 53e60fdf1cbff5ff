//! What an operator does to a run without being a node of it: close it, open it again, or let it go on without a quorum.
//!
//! Send [`Operator::read`], give the reply to a command, and send what it says. If the server refuses that, the refusal
//! tells the documents in force: give it to the same command again.

use super::documents::{
    Active, DisplayTime, DocumentError, NodeName, Overruled, Rounds, RunOutcome, Status, decode,
};
use super::keys::Keys;
use super::messages::RunClosed;
use super::node::run_closed;
use super::txn::{ActiveSnapshot, RoundDocuments, RoundGuard, Txns};
use crate::events::Stamp;
use crate::kv::{Time, Txn, TxnResult};
use crate::text::{LONGEST_REASON, bounded};

/// An operator of a run.
#[derive(Debug, Clone)]
pub struct Operator {
    txns: Txns,
    /// The author of what is done, as `user@host`.
    by: String,
    /// When it is done, for display.
    at: Option<DisplayTime>,
}

/// The next step of a command.
#[derive(Debug)]
pub enum OperatorStep {
    /// Send this transaction. If it succeeds, the command is done.
    Send(Txn),
    /// The run is closed already.
    Closed(RunClosed),
    /// The run is not closed.
    NotClosed,
    /// The run does not wait for a quorum of its last group.
    HasQuorum,
    /// The run waits for a quorum of another group than the operator was told of.
    OtherLack,
    /// The server has no such run.
    NoRun,
    /// A document in force cannot be read.
    Unreadable(DocumentError),
}

impl Operator {
    /// An operator of the run with these keys.
    pub fn new(keys: &Keys, by: impl Into<String>, at: Option<DisplayTime>) -> Self {
        Self { txns: Txns::of(keys), by: by.into(), at }
    }

    /// Reads the documents in force.
    pub fn read(&self) -> Txn {
        self.txns.snapshot()
    }

    /// Closes the run.
    pub fn close(&self, found: &TxnResult, outcome: RunOutcome, reason: &str) -> OperatorStep {
        let found = ActiveSnapshot::of_refusal(found);
        let (Some(history), Some(rounds_kv)) = (found.history(), found.rounds) else {
            return OperatorStep::NoRun;
        };
        let rounds: Rounds = match decode(&rounds_kv.key, &rounds_kv.value) {
            Ok(rounds) => rounds,
            Err(error) => return OperatorStep::Unreadable(error),
        };
        let (guard, before) = match found.active {
            None => (RoundGuard::NoActive(history, rounds_kv.mod_revision), None),
            Some(kv) => match decode::<Active>(&kv.key, &kv.value) {
                Ok(active) if active.status == Status::Closed => {
                    return OperatorStep::Closed(run_closed(&active));
                }
                Ok(active) => (RoundGuard::Active(history, kv.mod_revision), Some(active)),
                Err(error) => return OperatorStep::Unreadable(error),
            },
        };
        let author = NodeName { id: self.by.clone(), address: String::new() };
        let nothing = Active::new(history, rounds.round, Status::Closed, author);
        let mut closed = Active {
            since: self.at,
            reason: bounded(reason.to_owned(), LONGEST_REASON),
            outcome: Some(outcome),
            previous: rounds.formed,
            outlived: rounds.outlived,
            ..nothing
        };
        // Without a round in progress they stay empty: no node reads them in a closed run.
        if let Some(Active { limits, sizes, rank_policy, extra, .. }) = before.clone() {
            (closed.limits, closed.sizes) = (limits, sizes);
            (closed.rank_policy, closed.extra) = (rank_policy, extra);
        }
        let events = before.as_ref().map_or(rounds.events, |active| active.events);
        let (before, closed) = (before.as_ref(), closed.numbered(before.as_ref(), events));
        let stamp = Stamp { node_id: &self.by, now: Time::ZERO, started: self.at };
        let documents =
            RoundDocuments { before, active: &closed, stamp, rounds_extra: &rounds.extra };
        OperatorStep::Send(self.txns.close(guard, documents))
    }

    /// Opens a closed run again.
    pub fn reopen(&self, found: &TxnResult) -> OperatorStep {
        let found = ActiveSnapshot::of_refusal(found);
        let Some(history) = found.history() else { return OperatorStep::NoRun };
        let Some(kv) = found.active else { return OperatorStep::NotClosed };
        match decode::<Active>(&kv.key, &kv.value) {
            Ok(active) if active.status == Status::Closed => {
                let guard = RoundGuard::Active(history, kv.mod_revision);
                OperatorStep::Send(self.txns.delete_active(guard))
            }
            Ok(_) => OperatorStep::NotClosed,
            Err(error) => OperatorStep::Unreadable(error),
        }
    }

    /// The round of the group of which the round in progress lacks a quorum, if it waits for that.
    pub fn lack(&self, found: &TxnResult) -> Option<u64> {
        let kv = ActiveSnapshot::of_refusal(found).active?;
        decode::<Active>(&kv.key, &kv.value).ok()?.lacks_quorum
    }

    /// Lets the round in progress form a group without a quorum of the groups up to that of round `lack`, for an operator
    /// who knows that their missing nodes are gone. Also opens a closed run again.
    pub fn force(&self, found: &TxnResult, lack: Option<u64>) -> OperatorStep {
        let snapshot = ActiveSnapshot::of_refusal(found);
        let Some(history) = snapshot.history() else { return OperatorStep::NoRun };
        let Some(kv) = snapshot.active else { return OperatorStep::HasQuorum };
        match decode::<Active>(&kv.key, &kv.value) {
            Ok(active) if active.status == Status::Closed => self.reopen(found),
            Ok(Active { lacks_quorum: Some(round), .. }) if Some(round) == lack => {
                // A later group than the operator knows of is not concerned.
                let overruled = Overruled { round, by: self.by.clone() };
                let guard = RoundGuard::Active(history, kv.mod_revision);
                OperatorStep::Send(self.txns.overrule(guard, &overruled))
            }
            Ok(Active { lacks_quorum: Some(_), .. }) => OperatorStep::OtherLack,
            Ok(_) => OperatorStep::HasQuorum,
            Err(error) => OperatorStep::Unreadable(error),
        }
    }
}
