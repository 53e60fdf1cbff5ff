//! What a node makes of the answers to its requests.
//!
//! A request may have been executed although its answer was lost, and then been refused when it was
//! repeated. So a refusal is read as well: if what was asked for is already so, it was granted.

use super::coordinator::{Coordinator, some_of};
use super::document::{Active, Corrupt, Ranked, Status, decode};
use super::interface::{Errand, Fault, Formed, Output, Purpose, RequestId};
use super::keys::Keys;
use super::knowledge::InForce;
use super::machine::{Asked, Late, Machine, Order, Place};
use super::ranks::Seat;
use super::request::Whereabouts;
use crate::kv::{OpResult, RangeResult, Revision, Time, TxnResult};

fn range(result: &TxnResult, index: usize) -> Option<&RangeResult> {
    match result.results.get(index) {
        Some(OpResult::Range(range)) => Some(range),
        _ => None,
    }
}

impl Machine {
    pub(super) fn answered(&mut self, now: Time, id: RequestId, result: &TxnResult) {
        // Whatever was known when the request was sent, its answer must know as well.
        if self.knew.remove(&id).is_some_and(|knew| result.revision < knew) {
            return self.server_forgot(id);
        }
        self.heard = self.heard.max(result.revision);
        if let Some((purpose, active)) = self.duties.remove(&id) {
            return self.duty_answered(now, purpose, active, result);
        }
        let Some((_, asked)) = self.request.take_if(|(asked, _)| *asked == id) else { return };
        match asked {
            Asked::Diagnose => {
                let missing = self.missing(result);
                if let Some((meeting, _)) = self.giving_up {
                    let waited = now.saturating_sub(meeting.since);
                    self.fail(Fault::TimedOut { waited, missing });
                }
            }
            Asked::Disown if result.succeeded => self.knowledge.deleted(result.revision),
            Asked::Disown => self.knowledge.told(result),
            Asked::Leave(here) => self.leave_answered(here, result),
            Asked::Suspect(report) if !result.succeeded => {
                self.knowledge.told(result);
                self.report_again(report);
            }
            Asked::Suspect(report) => {
                if report.kept_it {
                    self.doubted = Some((report.formed, report.node));
                }
            }
            Asked::Open(active) => self.opened(now, *active, result),
            Asked::Close(closed) if result.succeeded => {
                self.knowledge.wrote(*closed, result.revision, self.settings.run_lease);
                self.outputs.push_back(Output::Done(Errand::Closed));
            }
            Asked::Close(closed) => {
                self.knowledge.told(result);
                self.orders.push_front(Order::Close(closed.reason));
            }
            Asked::Reopen if result.succeeded => {
                self.knowledge.deleted(result.revision);
                self.outputs.push_back(Output::Done(Errand::Reopened));
            }
            Asked::Reopen => {
                self.knowledge.told(result);
                self.orders.push_front(Order::Reopen);
            }
            Asked::Confirm(round) => self.confirm_answered(round, result),
            Asked::Join(_) | Asked::Register(..) if !result.succeeded => {
                self.knowledge.told(result);
                self.doubt_registration();
            }
            Asked::Join(round) => self.took_place(now, Place::Joined(round), result.revision),
            Asked::Register(late, round) => {
                self.joined_rounds.remove(&round);
                self.took_place(now, Place::Late(late, round), result.revision);
            }
        }
    }

    /// The server lost its memory, and with it all that is known. Nothing is decided before another look.
    fn server_forgot(&mut self, id: RequestId) {
        self.resign();
        self.knowledge.forget();
        self.heard = 0;
        self.outputs.push_back(Output::LookAgain);
        let asked = self.request.take_if(|(asked, _)| *asked == id).map(|(_, asked)| asked);
        match asked {
            Some(Asked::Leave(_)) => self.outputs.push_back(Output::Done(Errand::Left)),
            Some(Asked::Close(closed)) => self.orders.push_front(Order::Close(closed.reason)),
            Some(Asked::Reopen) => self.orders.push_front(Order::Reopen),
            _ => {}
        }
    }

    fn leave_answered(&mut self, here: Whereabouts, result: &TxnResult) {
        if let Some(OpResult::Txn(disowned)) = result.results.first()
            && disowned.succeeded
        {
            self.knowledge.deleted(result.revision);
        }
        // Something that was under way came first; now we know of it.
        let found = range(result, 0).and_then(|found| found.kvs.first());
        match self.lease.filter(|lease| found.is_some_and(|kv| kv.lease == *lease)) {
            Some(lease) => self.take_back(lease, here),
            None => self.outputs.push_back(Output::Done(Errand::Left)),
        }
    }

    fn took_place(&mut self, now: Time, place: Place, revision: Revision) {
        self.place = place;
        self.listed = true;
        // Whatever it was registered as besides went in the same step.
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
        match self.lease.filter(|_| result.succeeded) {
            Some(lease) => self.knowledge.wrote(active, result.revision, lease),
            None => self.knowledge.told(result),
        }
        // Opened just now, or by an attempt whose answer was lost.
        let Some(own) = self.own(round) else { return self.doubt_registration() };
        let own = own.clone();
        self.coordinate(&own);
        self.took_place(now, Place::Joined(round), own.revision);
    }

    /// Takes up the duties of the coordinator of a round that nobody else can change.
    pub(super) fn coordinate(&mut self, own: &InForce) {
        let slow = self.coordinator.take().map(|(duty, _)| duty.slow()).unwrap_or_default();
        self.resign();
        let begun = (&own.active, own.revision);
        self.coordinator = Some((Coordinator::new(&self.settings, begun, slow), 0));
    }

    fn confirm_answered(&mut self, round: u64, result: &TxnResult) {
        let (rank, ready) = if result.succeeded { (1, None) } else { (2, Some(3)) };
        let said = ready.is_none_or(|ready| {
            range(result, ready).is_some_and(|found| {
                found.kvs.first().is_some_and(|kv| Some(kv.lease) == self.lease)
            })
        });
        let found = range(result, rank).and_then(|found| found.kvs.first());
        match found.map(|kv| decode::<Ranked>(&kv.key, &kv.value)) {
            Some(Ok(ranked)) if said => self.place = Place::Confirmed(round, ranked),
            Some(Err(corrupt)) => return self.fail(Fault::Corrupt(corrupt)),
            // The joining was over before we came, or others had a better claim.
            None => self.place = Place::LeftOut(round),
            Some(Ok(_)) => {}
        }
        if !result.succeeded {
            self.knowledge.told(result);
        }
    }

    /// The group of `active` has formed, and this node is in it.
    pub(super) fn formed(&mut self, active: &Active, ranked: Ranked) {
        let Active { round, store, .. } = active;
        let Some(store) = store.clone() else {
            let key = self.settings.keys.active();
            return self
                .fail(Fault::Corrupt(Corrupt { key, reason: "no store is named".to_owned() }));
        };
        let Ranked { rank, world } = ranked;
        self.place = Place::Member(*round);
        self.seat = Some(Seat { round: *round, rank });
        self.joined_rounds.retain(|joined| joined == round);
        self.meeting = None;
        self.outputs.push_back(Output::Formed(Formed { round: *round, rank, world, store }));
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
        if purpose == Purpose::Survey {
            return coordinator.surveyed(result);
        }
        let round = coordinator.round();
        if !result.succeeded {
            self.knowledge.told(result);
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
            Some((coordinator, _)) if still => coordinator.refused(now, purpose),
            _ => {}
        }
    }

    /// Who was missing, as far as a look at the round can tell.
    fn missing(&self, result: &TxnResult) -> Option<String> {
        let [members, ranks, ready] = [0, 1, 2].map(|index| range(result, index));
        let names = |found: &RangeResult| -> Vec<String> {
            found.kvs.iter().filter_map(|kv| Keys::id_of(&kv.key)).map(str::to_owned).collect()
        };
        let (members, ranks, ready) = (members?, ranks?, ready?);
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
