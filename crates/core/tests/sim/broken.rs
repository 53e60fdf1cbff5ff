//! Proof that the simulator sees: the same machines, with one thing done wrong between them and the
//! store. Most of these are bugs that PyTorch's or NVIDIA's rendezvous had, or that ours would have
//! without one of its guards.

use bytes::Bytes;
use rallypoint_core::kv::{
    Compare, Event, EventKind, KeyRange, KeyValue, Op, OpResult, Put, Relation, Revision, Target,
    Txn, TxnResult,
};
use rallypoint_core::rendezvous::Purpose;
use rallypoint_core::rendezvous::document::{
    Active, Address, Joined, Ranked, Rounds, decode, encode,
};
use rallypoint_core::rendezvous::keys::Keys;

use crate::plan::RUN_LEASE;
use crate::random::Random;

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
    /// A round does not know who was reported before it began.
    ReportForgotten,
    /// Late events: the coordinator sees everyone leave who joins.
    JoinUnheard,
}

/// Each variant, the seeds in which it must be found, and which invariants may find it.
pub(crate) const TABLE: [(Broken, u64, &[&str]); 25] = [
    (Broken::OpenUnfenced, 1_000, &["R1", "R2", "R3"]),
    (Broken::StaleCoordinator, 1_000, &["R1", "R2", "R3"]),
    (Broken::NumberReused, 1_000, &["R2"]),
    (Broken::NoConfirm, 1_000, &["R4"]),
    (Broken::ConfirmForever, 1_000, &["R4", "liveness"]),
    (Broken::WaiterForever, 5_000, &["liveness", "keys"]),
    (Broken::GhostMember, 1_000, &["liveness", "told", "keys"]),
    (Broken::CoordinatorForever, 1_000, &["liveness", "told"]),
    (Broken::RankTwice, 1_000, &["R1"]),
    (Broken::WorldTooLarge, 1_000, &["R1"]),
    (Broken::SeatForgotten, 5_000, &["precedence"]),
    (Broken::SurplusDisturbs, 1_000, &["surplus", "liveness", "quiet"]),
    (Broken::NoSelfFencing, 1_000, &["fence"]),
    (Broken::LossUnheard, 1_000, &["told", "liveness"]),
    (Broken::LateUnheard, 1_000, &["liveness"]),
    (Broken::ChangeUnheard, 1_000, &["liveness", "told"]),
    (Broken::CloseOverwritten, 5_000, &["R3"]),
    (Broken::LeaveLeaves, 5_000, &["liveness", "told", "keys", "quiet"]),
    (Broken::RefusalIgnored, 1_000, &["R1", "R2", "liveness"]),
    (Broken::LateCopies, 20_000, &["surplus", "liveness"]),
    (Broken::NothingSwept, 1_000, &["keys"]),
    (Broken::NoLease, 1_000, &["keys"]),
    (Broken::ReportUnheard, 1_000, &["told"]),
    (Broken::ReportForgotten, 1_000, &["at once"]),
    (Broken::JoinUnheard, 1_000, &["liveness"]),
];

/// Does something to every put of a transaction.
fn each_put(txn: &mut Txn, mut change: impl FnMut(&mut Put)) {
    for op in txn.success.iter_mut() {
        if let Op::Put(put) = op {
            change(put);
        }
    }
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
    let coordinates =
        matches!(purpose, Purpose::Rank | Purpose::Freeze | Purpose::Finish | Purpose::Note);
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
        Broken::CloseOverwritten if purpose == Purpose::Finish => guard_by_number(keys, txn),
        Broken::LeaveLeaves if purpose == Purpose::Leave => txn.success.clear(),
        Broken::NothingSwept if purpose == Purpose::Sweep => {
            // So that the inspector knows what was asked for, but nothing is deleted.
            txn.compares.push(Compare::exists("nothing"));
        }
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
    let last = Target::Value(encode(&Rounds { round, formed }));
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
    if broken == Broken::RefusalIgnored && !matches!(purpose, Purpose::Leave | Purpose::Confirm) {
        result.succeeded = true;
    }
    // A survey looks in the order in which the coordinator watches.
    if broken == Broken::ReportForgotten
        && purpose == Purpose::Survey
        && let Some(OpResult::Range(reports)) = result.results.get_mut(SUSPECTS)
    {
        reports.kvs.clear();
    }
}

/// What becomes of changes to the document in force.
pub(crate) fn active_events(broken: Broken, random: &mut Random, events: &mut Vec<Event>) {
    if broken == Broken::ChangeUnheard && random.chance(200) {
        events.clear();
    }
}

/// The coordinator's watches, in order: nodes, waiting, suspects, members, ready.
const WAITING: usize = 1;
const SUSPECTS: usize = 2;
const MEMBERS: usize = 3;
pub(crate) const READY: usize = 4;

/// What becomes of what the coordinator watches.
pub(crate) fn watched_events(broken: Broken, watch: usize, events: &mut Vec<Event>) {
    let unheard = |event: &Event| match broken {
        Broken::LossUnheard => watch == MEMBERS && event.kind == EventKind::Delete,
        Broken::JoinUnheard => watch == MEMBERS && event.kind == EventKind::Put,
        Broken::LateUnheard => watch == WAITING,
        Broken::ReportUnheard => watch == SUSPECTS,
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
        let value = encode(&Address { host: "nowhere".to_owned(), port: 1 });
        let kv = KeyValue { key, value, mod_revision: revision + 1, ..KeyValue::default() };
        Event { kind: EventKind::Put, kv, prev_kv: None }
    };
    ranked.map(confirmed).collect()
}

pub(crate) fn believes_too_long(broken: Broken) -> bool {
    broken == Broken::NoSelfFencing
}
