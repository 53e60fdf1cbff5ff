//! What a node makes of the answers to its requests.
//!
//! A request may have been executed although its answer was lost, and then been refused when it was
//! repeated. So a refusal is read as well: if what was asked for is already so, it was granted.

use super::observed::InForce;
use super::{Asked, Late, Node, Order, Place};
use crate::kv::{RangeResult, Revision, Time, TxnResult};
use crate::rendezvous::coordinator::{Coordinator, some_of};
use crate::rendezvous::documents::{Active, BootstrapStore, DocumentError, Ranked, Status};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::messages::{
    CommandDone, FormedGroup, NodeOutput, Purpose, RendezvousFailure, RequestId,
};
use crate::rendezvous::ranks::PreviousAssignment;
use crate::rendezvous::txn::{Confirmed, Diagnosis, Left, Whereabouts};

impl Node {
    pub(in crate::rendezvous) fn answered(&mut self, now: Time, id: RequestId, result: &TxnResult) {
        // What nobody waits for any more may be of a server that has lost its memory since.
        let Some(knew) = self.knew.remove(&id) else { return };
        // Whatever was known when the request was sent, its answer must know as well.
        if result.revision < knew {
            self.forgot(now);
            return self.outputs.push_back(NodeOutput::Resync);
        }
        self.heard = self.heard.max(result.revision);
        if let Some((purpose, active)) = self.duties.remove(&id) {
            return self.duty_answered(now, purpose, active, result);
        }
        let Some((_, asked)) = self.request.take_if(|(asked, _)| *asked == id) else { return };
        // Every refusal tells what is in force instead.
        if !result.succeeded && self.learn(now, result) {
            return self.take_up_again(asked);
        }
        match asked {
            Asked::Diagnose => {
                let missing = self.missing(result);
                if let Some((meeting, _)) = self.giving_up {
                    let waited = now.saturating_sub(meeting.since);
                    self.fail(RendezvousFailure::TimedOut { waited, missing });
                }
            }
            Asked::Disown if result.succeeded => self.knowledge.deleted(result.revision),
            Asked::Disown => {}
            Asked::Leave(here) => self.leave_answered(here, result),
            Asked::Resume(round) => self.resume_answered(round, result),
            Asked::Suspect(report) if !result.succeeded => self.report_again(report),
            Asked::Suspect(report) => {
                if report.kept_it {
                    self.doubted = Some((report.formed, report.node));
                }
            }
            Asked::Open(active) => self.opened(now, *active, result),
            Asked::Close(closed) if result.succeeded => {
                self.knowledge.wrote(*closed, result.revision, self.settings.run_lease);
                self.outputs.push_back(NodeOutput::Done(CommandDone::Closed));
            }
            Asked::Close(closed) => self.close_again(*closed),
            Asked::Reopen if result.succeeded => {
                self.knowledge.deleted(result.revision);
                self.outputs.push_back(NodeOutput::Done(CommandDone::Reopened));
            }
            Asked::Reopen => self.orders.push_front(Order::Reopen),
            Asked::Confirm(round) => self.confirm_answered(round, result),
            Asked::Join(_) | Asked::Register(..) if !result.succeeded => self.doubt_registration(),
            Asked::Join(round) => self.took_place(now, Place::Joined(round), result.revision),
            Asked::Register(late, round) => {
                self.joined_rounds.remove(&round);
                self.took_place(now, Place::Late(late, round), result.revision);
            }
        }
    }

    /// What was asked of a history that is no more: of it nothing is left to be taken back.
    pub(in crate::rendezvous) fn take_up_again(&mut self, asked: Asked) {
        match asked {
            Asked::Leave(_) => self.outputs.push_back(NodeOutput::Done(CommandDone::Left)),
            Asked::Close(closed) => self.close_again(*closed),
            Asked::Reopen => self.orders.push_front(Order::Reopen),
            _ => {}
        }
    }

    fn close_again(&mut self, closed: Active) {
        let outcome = closed.outcome.unwrap_or_default();
        self.orders.push_front(Order::Close(outcome, closed.reason));
    }

    fn leave_answered(&mut self, here: Whereabouts, result: &TxnResult) {
        let Left { disowned, still_on } = Left::read(result);
        if disowned {
            self.knowledge.deleted(result.revision);
        }
        // Something that was under way came first; now we know of it.
        match self.lease.filter(|lease| still_on == Some(*lease)) {
            Some(lease) => self.take_back(lease, here),
            None => self.outputs.push_back(NodeOutput::Done(CommandDone::Left)),
        }
    }

    fn took_place(&mut self, now: Time, place: Place, revision: Revision) {
        self.place = place;
        self.listed = true;
        // Whatever it was registered as besides, and had confirmed before, went in the same step.
        self.confirmed_rounds.clear();
        self.registered.retain(|late| matches!(place, Place::Late(kept, _) if kept == *late));
        self.arrived.get_or_insert(revision);
        if let Some(meeting) = &mut self.meeting {
            meeting.deadline = match place {
                Place::Late(Late::Spare, _) => None,
                // Its time begins when there may be a place for it.
                _ => meeting.deadline.or_else(|| Some(now.saturating_add(self.settings.timeout))),
            };
        }
    }

    /// What was refused may have been carried out at the first attempt, and have taken back how the node
    /// was registered. So it registers again.
    fn doubt_registration(&mut self) {
        if let Place::Late(..) = self.place {
            self.place = Place::Nowhere;
        }
    }

    fn opened(&mut self, now: Time, active: Active, result: &TxnResult) {
        let round = active.round;
        if let Some(lease) = self.lease.filter(|_| result.succeeded) {
            self.knowledge.wrote(active, result.revision, lease);
        }
        // Opened just now, or by an attempt whose answer was lost.
        let Some(own) = self.own(round) else { return self.doubt_registration() };
        let own = own.clone();
        self.coordinate(&own);
        self.took_place(now, Place::Joined(round), own.revision);
    }

    /// Takes up the duties of the coordinator of a round that nobody else can change.
    pub(in crate::rendezvous) fn coordinate(&mut self, own: &InForce) {
        let slow = self.coordinator.take().map(|(duty, _)| duty.slow()).unwrap_or_default();
        self.resign();
        let begun = (&own.active, own.revision);
        self.coordinator = Some((Coordinator::new(&self.settings, begun, slow), 0));
    }

    fn confirm_answered(&mut self, round: u64, result: &TxnResult) {
        let Confirmed { ranked, is_ready } = Confirmed::read(result, self.lease);
        match ranked {
            Some(Ok(ranked)) if is_ready => self.place = Place::Confirmed(round, ranked),
            Some(Err(error)) => self.fail(RendezvousFailure::Unreadable(error)),
            // The joining was over before we came, or others had a better claim.
            None => self.place = Place::LeftOut(round),
            Some(Ok(_)) => {}
        }
    }

    /// The group of `active` has formed, and this node is in it.
    pub(in crate::rendezvous) fn formed(&mut self, active: &Active, ranked: Ranked) {
        let Active { history, round, store, .. } = active;
        let Some(BootstrapStore { address, token, liveness }) = store.clone() else {
            let key = self.settings.keys.active();
            let reason = "no store is named".to_owned();
            return self
                .fail(RendezvousFailure::Unreadable(DocumentError::Corrupt { key, reason }));
        };
        let Ranked { rank, world } = ranked;
        self.place = Place::Member(*round);
        self.seat =
            Some(PreviousAssignment { history: *history, round: *round, rank, world, held: false });
        self.joined_rounds.retain(|joined| joined == round);
        self.meeting = None;
        self.outputs.push_back(NodeOutput::Formed(FormedGroup {
            round: *round,
            rank,
            world,
            store: address,
            token,
            rank0_liveness: liveness,
        }));
        // Its coordinator may have handed the group over.
        if self.coordinator.is_none()
            && let Some(own) = self.own(*round).cloned()
        {
            self.coordinate(&own);
        }
    }

    fn duty_answered(
        &mut self,
        now: Time,
        purpose: Purpose,
        active: Option<Box<Active>>,
        result: &TxnResult,
    ) {
        let Some((coordinator, _)) = &mut self.coordinator else { return };
        if purpose == Purpose::ReadMembership {
            if !coordinator.surveyed(result) {
                self.forgot(now);
                self.outputs.push_back(NodeOutput::Resync);
            }
            return;
        }
        let round = coordinator.round();
        if !result.succeeded {
            if self.learn(now, result) {
                return;
            }
        } else if let (Some(active), Some(lease)) = (active.clone(), self.lease) {
            self.knowledge.wrote(*active, result.revision, lease);
        }
        let so = match &active {
            Some(active) => self.own(round).is_some_and(|own| own.active == **active),
            None => result.succeeded,
        };
        let still = self.own(round).is_some();
        match &mut self.coordinator {
            Some((coordinator, _)) if so => coordinator.succeeded(now, purpose, &self.settings),
            Some((coordinator, _)) if still => coordinator.refused(purpose),
            _ => {}
        }
    }

    /// Who was missing, as far as a look at the round can tell.
    fn missing(&self, result: &TxnResult) -> Option<String> {
        let Diagnosis { members, ranks, ready } = Diagnosis::read(result)?;
        let names = |found: &RangeResult| -> Vec<String> {
            found.kvs.iter().filter_map(|kv| Keys::id_of(&kv.key)).map(str::to_owned).collect()
        };
        let Some(active) = self.knowledge.active() else {
            return Some("no round was open".to_owned());
        };
        let Active { round, world, limits, .. } = active;
        Some(match active.status {
            Status::Joinable => {
                let (count, min) = (members.count, limits.min);
                let here = some_of(&names(members));
                format!("round {round} has {count} of at least {min} nodes: {here}")
            }
            Status::Frozen => {
                let (count, confirmed) = (ready.count, names(ready));
                let silent: Vec<String> =
                    names(ranks).into_iter().filter(|id| !confirmed.contains(id)).collect();
                // Of a large group only some names are read, and a difference would be wrong.
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
        })
    }
}
