//! The user's commands to a node: leave, close, reopen, suspect. Each request stands beside the reading of its reply.

use bytes::Bytes;

use super::observed::InForce;
use super::{Node, PendingRequest};
use crate::kv::{LeaseId, Revision, TxnResult};
use crate::rendezvous::documents::{Active, RunOutcome, Status, Unreached, encode};
use crate::rendezvous::messages::{CommandDone, NodeOutput, Purpose};
use crate::rendezvous::txn::{AnnouncementOps, LeaveReader, Left, RoundDocuments, RoundGuard};

/// A command that the node has yet to execute.
#[derive(Debug, Clone)]
pub(super) enum NodeCommand {
    Leave,
    Close(RunOutcome, String),
    Reopen,
    /// Report this node, while the group of this round is the last that has formed.
    Suspect(String, u64),
    /// Report that this node has no connection to rank 0 of the group of this round, and why; or that it has one.
    ReportUnreached(u64, Option<String>),
}

/// A report of a node that may be dead.
#[derive(Debug, Clone)]
pub(super) struct SuspectReport {
    node: String,
    /// The revision of the document in force when the report was sent.
    revision: Revision,
    /// The last round that had formed a group.
    formed: u64,
    /// The node was the coordinator of that group, and the group was running.
    is_coordinator: bool,
}

impl Node {
    /// The next command that can be executed. Close and reopen need the documents in force.
    pub(super) fn next_command(&mut self) -> Option<NodeCommand> {
        let unknown = !self.observed.is_known();
        let blocked = |command: &NodeCommand| {
            unknown && matches!(command, NodeCommand::Close(..) | NodeCommand::Reopen)
        };
        if self.commands.front().is_some_and(blocked) { None } else { self.commands.pop_front() }
    }

    pub(super) fn execute(&mut self, command: NodeCommand) {
        match command {
            NodeCommand::Leave => self.leave(),
            NodeCommand::Suspect(node, formed) => self.report_suspect(node, formed),
            NodeCommand::Close(outcome, reason) => self.close(outcome, reason),
            NodeCommand::Reopen => self.reopen(),
            NodeCommand::ReportUnreached(round, reason) => self.report_unreached(round, reason),
        }
    }

    /// Withdraws everything that the node announced.
    fn leave(&mut self) {
        let history = self.observed.history();
        let member_of = self.memory.member_in(history).filter(|_| self.config.succession.is_some());
        let left = member_of.map(|round| self.txns.left(round, self.announced.id()));
        self.memory.leaves(history);
        let ops = self.announced.leave_ops().run(left);
        let nothing = ops.is_empty() && !self.announced.is_listed() && self.held_round().is_none();
        let lease = self.lease.filter(|_| !nothing);
        self.announced.left();
        self.bootstrap_store = None;
        self.resign();
        let Some(lease) = lease else {
            return self.outputs.push_back(NodeOutput::Done(CommandDone::Left));
        };
        self.withdraw(lease, ops);
    }

    fn withdraw(&mut self, lease: LeaseId, ops: AnnouncementOps) {
        let history = self.observed.history();
        let stale = self.stale_writer_guard();
        let (txn, reader) = self.txns.leave(history, stale, lease, ops.clone());
        self.send_request(Purpose::Leave, txn, PendingRequest::Leave(reader, ops));
    }

    pub(super) fn left(&mut self, reader: &LeaveReader, ops: AnnouncementOps, reply: &TxnResult) {
        let Left { disowned, still_on } = reader.read(reply);
        if disowned {
            self.observed.deleted(reply.revision);
        }
        // An earlier request of this node was executed first. The node has observed its revision now.
        match self.lease.filter(|lease| still_on == Some(*lease)) {
            Some(lease) => self.withdraw(lease, ops),
            None => self.outputs.push_back(NodeOutput::Done(CommandDone::Left)),
        }
    }

    /// Deletes a round that the node opened and no longer needs: its opening was executed after the node had timed out.
    /// The round would keep other nodes waiting for as long as the lease lives.
    pub(super) fn disown(&mut self, guard: RoundGuard) {
        let txn = self.txns.delete_active(guard);
        self.send_request(Purpose::Leave, txn, PendingRequest::Disown);
    }

    pub(super) fn disowned(&mut self, reply: &TxnResult) {
        if reply.succeeded {
            self.observed.deleted(reply.revision);
        }
    }

    fn close(&mut self, outcome: RunOutcome, reason: String) {
        let in_force = self.observed.in_force().ok().flatten();
        let guard = match in_force {
            Some(InForce { active, .. }) if active.status == Status::Closed => {
                return self.outputs.push_back(NodeOutput::Done(CommandDone::Closed));
            }
            Some(in_force) => in_force.guard(),
            // A document that cannot be read may be replaced by a closed one.
            None => match self.observed.unreadable_since() {
                Some(revision) if revision > 0 => RoundGuard::Unreadable(revision),
                _ => self.no_active(),
            },
        };
        let history = guard.history();
        let history =
            history.or_else(|| self.observed.history()).unwrap_or_else(|| self.next_history());
        let round = self.observed.rounds().map_or(0, |rounds| rounds.round);
        let closed = self.new_document(history, round, Status::Closed, reason);
        let closed = Active { outcome: Some(outcome), ..closed };
        let rounds_extra = &self.observed.rounds_extra();
        let (before, stamp) = (self.observed.active(), self.stamp());
        let documents = RoundDocuments { before, active: &closed, stamp, rounds_extra };
        let txn = self.txns.close(guard, documents);
        self.send_request(Purpose::Close, txn, PendingRequest::Close(Box::new(closed)));
    }

    pub(super) fn closed(&mut self, closed: Active, reply: &TxnResult) {
        if !reply.succeeded {
            return self.close_again(closed);
        }
        self.observed.wrote(closed, reply.revision, self.config.run_lease);
        self.outputs.push_back(NodeOutput::Done(CommandDone::Closed));
    }

    pub(super) fn close_again(&mut self, closed: Active) {
        let outcome = closed.outcome.unwrap_or_default();
        self.commands.push_front(NodeCommand::Close(outcome, closed.reason));
    }

    fn reopen(&mut self) {
        match self.observed.in_force().ok().flatten() {
            Some(in_force) if in_force.active.status == Status::Closed => {
                let txn = self.txns.delete_active(in_force.guard());
                self.send_request(Purpose::Reopen, txn, PendingRequest::Reopen);
            }
            _ => self.outputs.push_back(NodeOutput::Done(CommandDone::NotClosed)),
        }
    }

    pub(super) fn reopened(&mut self, reply: &TxnResult) {
        if !reply.succeeded {
            return self.commands.push_front(NodeCommand::Reopen);
        }
        self.observed.deleted(reply.revision);
        self.outputs.push_back(NodeOutput::Done(CommandDone::Reopened));
    }

    /// Reports a node that may be dead: to a running group, so that it meets again, or to a round that takes nodes, so
    /// that it does not wait for the node. A frozen round needs no report, since each of its nodes must confirm.
    fn report_suspect(&mut self, node: String, formed: u64) {
        let in_force = self.observed.in_force().ok().flatten();
        // All peers of a failed host report it at once, and one report is enough. A report about an earlier group is
        // obsolete.
        let is_new = |InForce { active, .. }: &&InForce| {
            active.formed() == formed && !active.lost_names.contains(&node)
        };
        let (Some(lease), Some(in_force)) = (self.lease, in_force.filter(is_new)) else { return };
        let InForce { active, revision, .. } = in_force;
        let joinable = match active.status {
            Status::Final => None,
            Status::Joinable => Some(active.round),
            Status::Frozen | Status::Closed => return,
        };
        let stale = self.stale_writer_guard();
        let txn =
            self.txns.suspect(in_force.guard(), stale, lease, (node.as_str(), formed), joinable);
        let is_coordinator = active.status == Status::Final && active.coordinator.id == node;
        let report = SuspectReport { node, revision: *revision, formed, is_coordinator };
        self.send_request(Purpose::Suspect, txn, PendingRequest::Suspect(report));
    }

    /// Tells the coordinator whether this node is connected to rank 0's store, so that the log of every node can say it.
    fn report_unreached(&mut self, round: u64, reason: Option<String>) {
        let (Some(lease), Some(history)) = (self.lease, self.observed.history()) else { return };
        if self.announced.member_of() == Some(round) {
            let stale = self.stale_writer_guard();
            let value = |unreached| encode(&Unreached { unreached });
            let value = reason.map_or_else(Bytes::new, value);
            let id = self.announced.id();
            let txn = self.txns.report_unreached((history, round), stale, id, lease, value);
            self.send_request(Purpose::ReportUnreached, txn, PendingRequest::ReportUnreached);
        }
    }

    pub(super) fn suspect_reported(&mut self, report: SuspectReport, reply: &TxnResult) {
        let SuspectReport { node, revision, formed, is_coordinator } = report;
        if reply.succeeded {
            if is_coordinator {
                self.suspected_coordinator = Some((formed, node));
            }
            return;
        }
        // Refused under the same document: the node has joined, or is no member of the group. Under another document
        // the report is repeated: other nodes report too, and the coordinator of a next round must know which nodes
        // not to wait for.
        let unchanged = |now: &InForce| now.revision == revision;
        let is_over = self.observed.in_force().ok().flatten().is_none_or(unchanged);
        if !is_over {
            self.commands.push_back(NodeCommand::Suspect(node, formed));
        }
    }
}
