//! Proof that the simulator sees: the same machines, with one thing done wrong between them and the
//! store. Most of these are bugs that PyTorch's or NVIDIA's rendezvous had, or that ours would have
//! without one of its guards.

use bytes::Bytes;
use rallypoint_core::kv::{
    Compare, Event, EventKind, KeyRange, KeyValue, Op, OpResult, Put, Relation, Revision, Target,
    Txn, TxnResult,
};
use rallypoint_core::rendezvous::Purpose;
use rallypoint_core::rendezvous::documents::{
    Active, Address, BootstrapStore, Extra, Joined, Ranked, Rounds, decode, encode,
};
use rallypoint_core::rendezvous::keys::Keys;
use serde_json::Value;

use super::plan::RUN_LEASE;
use super::random::Random;

/// What is done wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// A round is opened whatever is in force.
    OpenUnfenced,
    /// A coordinator that was replaced goes on.
    StaleCoordinator,
    /// A round number may be used again when its coordinator is gone.
    NumberReused,
    /// A node is counted as confirmed because it has a rank.
    NoConfirm,
    /// Confirming is on the run's lease, so the dead confirm too.
    ConfirmForever,
    /// A waiting node is counted after its death.
    WaiterForever,
    /// A member is there after its death.
    GhostMember,
    /// The death of the coordinator changes nothing.
    CoordinatorForever,
    /// A rank is given twice.
    RankTwice,
    /// The world is not as large as was said.
    WorldTooLarge,
    /// A member of the last group does not say so when it joins.
    SeatForgotten,
    /// A surplus node asks for a new round.
    SurplusDisturbs,
    /// A node believes in its lease for twice its time.
    NoSelfFencing,
    /// The coordinator does not hear that a member is gone.
    LossUnheard,
    /// The coordinator does not hear of late nodes.
    LateUnheard,
    /// A change of the document in force is not heard.
    ChangeUnheard,
    /// Closing is overwritten by the next round.
    CloseOverwritten,
    /// Who leaves deletes nothing.
    LeaveLeaves,
    /// A refusal is taken for a success.
    RefusalIgnored,
    /// A late copy of a registration counts.
    LateCopies,
    /// Earlier rounds are not deleted, though that was answered.
    NothingSwept,
    /// A key is on no lease at all.
    NoLease,
    /// The coordinator does not hear who was reported.
    ReportUnheard,
    /// Late events: the coordinator sees everyone leave who joins.
    JoinUnheard,
    /// The guard does not look at the clock, so that a launcher which stands still is not fenced.
    NoGuard,
    /// A node that sees a later group without it does not hasten the end of its workers.
    TakesItsTime,
    /// A group is final although members of the last one may have workers.
    LastGroupUnchecked,
    /// Who enters does not say that its workers are gone.
    ReadyKept,
    /// A suspicion is taken for the proof of a death.
    SuspicionIsProof,
    /// Who slept takes up its place again, whoever has it by now.
    ResumeUnguarded,
    /// A request that was decided on one history is executed on another.
    HistoryUnchecked,
    /// A place in a group of another history counts as one in this.
    SeatOfAnyHistory,
    /// Who joins does not say which rounds it remembers, so that their numbers begin anew.
    RoundsForgotten,
    /// A server in memory does not say that there was one before it.
    PredecessorUnsaid,
    /// The launcher before there was a guard that looks at the clock: both of these, and no proofs.
    AsReleased,
}

/// Does something to every put of a transaction.
fn each_put(txn: &mut Txn, mut change: impl FnMut(&mut Put)) {
    for op in txn.success.iter_mut() {
        if let Op::Put(put) = op {
            change(put);
        }
    }
}

fn puts(txn: &Txn, part: &str) -> bool {
    txn.success.iter().any(|op| matches!(op, Op::Put(put) if is(&put.key, part)))
}

fn is_history(compare: &Compare) -> bool {
    matches!(&compare.range, KeyRange::Key(key) if is(key, "/rdzv/history"))
}

/// The history that a request was decided on.
fn history_of(txn: &Txn) -> Option<String> {
    let compare = txn.compares.iter().find(|compare| is_history(compare))?;
    match &compare.target {
        Target::Value(value) => serde_json::from_slice(value).ok(),
        _ => None,
    }
}

/// Changes what a node says when it joins.
fn joined(txn: &mut Txn, change: impl Fn(&mut Value)) {
    each_put(txn, |put| {
        if is(&put.key, "/member/")
            && let Ok(mut joined) = serde_json::from_slice::<Value>(&put.value)
        {
            change(&mut joined);
            put.value = joined.to_string().into();
        }
    });
}

fn is(key: &[u8], part: &str) -> bool {
    String::from_utf8_lossy(key).contains(part)
}

/// Puts every key that contains `part` on the run's lease.
fn outlive(txn: &mut Txn, part: &str) {
    each_put(txn, |put| {
        if is(&put.key, part) {
            put.lease = RUN_LEASE;
        }
    });
}

/// What becomes of a request on its way.
pub(crate) fn request(broken: Broken, keys: &Keys, purpose: Purpose, txn: &mut Txn) {
    let coordinates = matches!(
        purpose,
        Purpose::AssignRanks | Purpose::Freeze | Purpose::Finalize | Purpose::PublishChanges
    );
    match broken {
        Broken::OpenUnfenced if purpose == Purpose::Open => txn.compares.clear(),
        Broken::StaleCoordinator if coordinates => txn.compares.clear(),
        Broken::NumberReused => txn.success.retain(|op| match op {
            Op::Put(put) => put.key != keys.round(),
            _ => true,
        }),
        Broken::ConfirmForever => outlive(txn, "/ready/"),
        Broken::WaiterForever => outlive(txn, "/waiting/"),
        Broken::GhostMember => outlive(txn, "/member/"),
        Broken::CoordinatorForever => outlive(txn, "/rdzv/active"),
        Broken::NoLease => each_put(txn, |put| {
            if is(&put.key, "/spare/") {
                put.lease = 0;
            }
        }),
        Broken::RankTwice => ranks(txn, |ranked| ranked.rank = ranked.rank.saturating_sub(1)),
        Broken::WorldTooLarge => ranks(txn, |ranked| ranked.world += 1),
        Broken::SeatForgotten if purpose == Purpose::Join => each_put(txn, |put| {
            if is(&put.key, "/member/")
                && let Ok(joined) = decode::<Joined>(&put.key, &put.value)
            {
                put.value = encode(&Joined { seat: None, ..joined });
            }
        }),
        Broken::SurplusDisturbs => each_put(txn, |put| {
            if is(&put.key, "/spare/") {
                put.key = String::from_utf8_lossy(&put.key).replace("/spare/", "/waiting/").into();
            }
        }),
        Broken::CloseOverwritten if purpose == Purpose::Finalize => guard_by_number(keys, txn),
        Broken::LeaveLeaves if purpose == Purpose::Leave => txn.success.clear(),
        Broken::NothingSwept if purpose == Purpose::Sweep => {
            // So that the inspector knows what was asked for, but nothing is deleted.
            txn.compares.push(Compare::exists("nothing"));
        }
        Broken::LastGroupUnchecked if matches!(purpose, Purpose::Freeze | Purpose::Finalize) => {
            txn.compares.retain(|compare| match &compare.range {
                KeyRange::Key(_) => true,
                range => !is(range.start(), "/ready/"),
            });
        }
        Broken::ReadyKept if purpose != Purpose::Leave => txn.success.retain(|op| match op {
            Op::Delete(delete) => !is(delete.range.start(), "/ready/"),
            _ => true,
        }),
        // Only who takes up its place again announces itself and confirms in one step.
        Broken::ResumeUnguarded if puts(txn, "/member/") && puts(txn, "/ready/") => {
            txn.compares.clear();
        }
        Broken::HistoryUnchecked => txn.compares.retain(|compare| !is_history(compare)),
        Broken::SeatOfAnyHistory => {
            let history = history_of(txn);
            joined(txn, |joined| {
                if let (Some(of), Some(history)) =
                    (joined.pointer_mut("/seat/history"), history.as_deref())
                {
                    *of = history.into();
                }
            });
        }
        Broken::RoundsForgotten => joined(txn, |joined| {
            if let Some(round) = joined.pointer_mut("/earlier/round") {
                *round = 0.into();
            }
        }),
        Broken::LateCopies => txn.compares.retain(|compare| match &compare.range {
            KeyRange::Key(key) => !is(key, "/node/"),
            _ => true,
        }),
        _ => {}
    }
}

/// Guards the end of a round by its number, as if that were enough.
fn guard_by_number(keys: &Keys, txn: &mut Txn) {
    let active = txn.success.iter().find_map(|op| match op {
        Op::Put(put) if put.key == keys.active() => decode::<Active>(&put.key, &put.value).ok(),
        _ => None,
    });
    let Some(Active { round, previous: formed, .. }) = active else { return };
    let last = Target::Value(encode(&Rounds { round, formed, outlived: 0, extra: Extra::new() }));
    let range = KeyRange::key(keys.round());
    txn.compares = vec![Compare { range, relation: Relation::Equal, target: last }];
}

fn ranks(txn: &mut Txn, change: impl Fn(&mut Ranked)) {
    each_put(txn, |put| {
        if is(&put.key, "/rank/")
            && let Ok(mut ranked) = decode::<Ranked>(&put.key, &put.value)
        {
            change(&mut ranked);
            put.value = encode(&ranked);
        }
    });
}

/// What becomes of an answer.
pub(crate) fn answer(broken: Broken, purpose: Purpose, result: &mut TxnResult) {
    if broken == Broken::LastGroupUnchecked
        && purpose == Purpose::ReadMembership
        && let Some(OpResult::Range(last_ready)) = result.results.get_mut(SURVEYED_LAST_READY)
    {
        last_ready.kvs.clear();
    }
    if broken == Broken::RefusalIgnored && !matches!(purpose, Purpose::Leave | Purpose::Confirm) {
        result.succeeded = true;
    }
}

/// What becomes of changes to the document in force.
pub(crate) fn active_events(broken: Broken, random: &mut Random, events: &mut Vec<Event>) {
    if broken == Broken::ChangeUnheard && random.chance(200) {
        events.clear();
    }
}

/// The coordinator's watches, in order: nodes, waiting, suspects, members, ready, ready of the last group.
const WAITING: usize = 1;
const SUSPECTS: usize = 2;
const MEMBERS: usize = 3;
pub(crate) const READY: usize = 4;
const LAST_READY: usize = 5;

/// Where the survey has those who may have workers of the last group.
const SURVEYED_LAST_READY: usize = 6;

/// What becomes of what the coordinator watches.
pub(crate) fn watched_events(broken: Broken, watch: usize, events: &mut Vec<Event>) {
    let unheard = |event: &Event| match broken {
        Broken::LossUnheard => watch == MEMBERS && event.kind == EventKind::Delete,
        Broken::JoinUnheard => watch == MEMBERS && event.kind == EventKind::Put,
        Broken::LateUnheard => watch == WAITING,
        Broken::ReportUnheard => watch == SUSPECTS,
        Broken::LastGroupUnchecked => watch == LAST_READY,
        _ => false,
    };
    events.retain(|event| !unheard(event));
}

/// Those who have a rank are taken for confirmed.
pub(crate) fn confirms_for_others(broken: Broken) -> bool {
    broken == Broken::NoConfirm
}

/// What the coordinator would hear if everyone whose rank is in `freeze` had confirmed.
pub(crate) fn confirmations(freeze: &Txn, revision: Revision) -> Vec<Event> {
    let ranked = freeze.success.iter().filter_map(|op| match op {
        Op::Put(put) if is(&put.key, "/rank/") => Some(&put.key),
        _ => None,
    });
    let confirmed = |key: &Bytes| {
        let key = String::from_utf8_lossy(key).replace("/rank/", "/ready/").into();
        let address = Address { host: "nowhere".to_owned(), port: 1 };
        let value = encode(&BootstrapStore { address, token: String::new(), liveness: None });
        let kv = KeyValue { key, value, mod_revision: revision + 1, ..KeyValue::default() };
        Event { kind: EventKind::Put, kv, prev_kv: None }
    };
    ranked.map(confirmed).collect()
}

pub(crate) fn believes_too_long(broken: Broken) -> bool {
    broken == Broken::NoSelfFencing
}

/// The guard sees only that its launcher is gone.
pub(crate) fn has_no_guard(broken: Broken) -> bool {
    matches!(broken, Broken::NoGuard | Broken::AsReleased)
}

/// Who is left behind does not hasten the end of its workers.
pub(crate) fn takes_its_time(broken: Broken) -> bool {
    matches!(broken, Broken::TakesItsTime | Broken::AsReleased)
}

/// Nobody proves a death.
pub(crate) fn has_no_proofs(broken: Broken) -> bool {
    broken == Broken::AsReleased
}

/// Whose lease is ended for a report, though nothing is proved.
pub(crate) fn ends_lease_of(broken: Broken, purpose: Purpose, txn: &Txn) -> Option<String> {
    if broken != Broken::SuspicionIsProof || purpose != Purpose::Suspect {
        return None;
    }
    txn.success.iter().find_map(|op| match op {
        Op::Put(put) if is(&put.key, "/suspect/") => Keys::id_of(&put.key).map(str::to_owned),
        _ => None,
    })
}
