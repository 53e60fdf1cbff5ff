//! Deliberately broken variants: the same nodes, with one fault between them and the store that an invariant must
//! detect. Most of these are bugs that PyTorch's or NVIDIA's rendezvous had, or that this one would have without one of
//! its guards.

use bytes::Bytes;
use rallypoint_core::kv::{
    Compare, CompareTarget, Event, EventKind, KeyRange, KeyValue, Op, OpResult, Put, Relation,
    Revision, Txn, TxnResult,
};
use rallypoint_core::rendezvous::documents::{
    Active, Address, BootstrapStore, Extra, Joined, Ranked, Rounds, decode, encode,
};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::sizes::Steps;
use rallypoint_core::rendezvous::succession::claims::Claims;
use rallypoint_core::rendezvous::{NodeConfig, Purpose};
use serde_json::Value;

use super::plan::RUN_LEASE;
use super::random::Random;

/// A broken variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Nothing,
    /// A round is opened whatever is in force.
    OpenUnfenced,
    /// A coordinator that was replaced is not fenced.
    StaleCoordinator,
    /// A round number may be used again when its coordinator is gone.
    NumberReused,
    /// A node is counted as confirmed because it has a rank.
    NoConfirm,
    /// A confirmation is on the run's lease, so it outlives its node.
    ConfirmForever,
    /// A waiting node is counted after its death.
    WaiterForever,
    /// A member is counted after its death.
    GhostMember,
    /// The death of the coordinator changes nothing.
    CoordinatorForever,
    /// A rank is assigned twice.
    RankTwice,
    /// The world size is too large.
    WorldTooLarge,
    /// A node joins without its previous assignment.
    PreviousAssignmentForgotten,
    /// A spare node registers as waiting.
    SurplusDisturbs,
    /// A node relies on its lease for twice its time to live.
    NoSelfFencing,
    /// The coordinator misses that a member is lost.
    LossUnheard,
    /// The coordinator misses late nodes.
    LateUnheard,
    /// A change of the document in force is missed.
    ChangeUnheard,
    /// Closing is overwritten by the next round.
    CloseOverwritten,
    /// A node that leaves deletes nothing.
    LeaveLeaves,
    /// A refusal is taken for a success.
    RefusalIgnored,
    /// A delayed duplicate of a registration is executed.
    LateCopies,
    /// Earlier rounds are not deleted, though that was answered.
    NothingSwept,
    /// A key is on no lease at all.
    NoLease,
    /// The coordinator misses suspect reports.
    ReportUnheard,
    /// The coordinator misses joins.
    JoinUnheard,
    /// The coordinator forms groups of any size within the limits.
    SizesIgnored,
    /// The coordinator makes a group grow that has just formed.
    GrowsAtOnce,
    /// The guard has no deadline, so that a suspended launcher is not fenced.
    NoGuard,
    /// A node that was replaced gives its workers the full time to stop.
    TakesItsTime,
    /// A group is final although members of the last one may have workers.
    LastGroupUnchecked,
    /// A node enters without the deletion of its confirmation.
    ReadyKept,
    /// A suspicion is taken for a proof of death.
    SuspicionIsProof,
    /// A suspended node restores its membership without a guard.
    ResumeUnguarded,
    /// A request that was decided on one history is executed on another.
    HistoryUnchecked,
    /// An assignment in another history counts as one in this.
    AssignmentOfAnyHistory,
    /// A node joins without the rounds that it remembers, so that round numbers are reused.
    RoundsForgotten,
    /// A server in memory does not announce its predecessor.
    PredecessorUnsaid,
    /// A successor is content with one node of the last group.
    NoMajority,
    /// A server grants and renews leases without hearing its group.
    NoSteppingDown,
    /// A successor does not wait for the workers of the last group.
    NoMargin,
    /// A server counts a member as heard when its renewal arrives.
    ArrivalConfirms,
    /// Each host that may serve opens a server.
    OrderSkipped,
    /// A node joins without the rounds that it has tried to confirm.
    ConfirmedForgotten,
    /// A launcher that is started again on its host counts for the group of round 0 once more.
    VotesAgain,
    /// The launcher before there was a guard that looks at the clock: both of these, and no proofs.
    AsReleased,
}

/// Changes what a node tells of groups when it joins.
fn claims(txn: &mut Txn, mut change: impl FnMut(&mut Claims)) {
    each_put(txn, |put| {
        if is(&put.key, "/member/")
            && let Ok(mut joined) = decode::<Joined>(&put.key, &put.value)
        {
            change(&mut joined.claims);
            put.value = encode(&joined);
        }
    });
}

/// Changes every put of a transaction.
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
        CompareTarget::Value(value) => serde_json::from_slice(value).ok(),
        _ => None,
    }
}

/// Changes the documents by which nodes join.
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

/// Breaks the configuration of a node.
pub(crate) fn config(broken: Broken, mut config: NodeConfig) -> NodeConfig {
    match broken {
        Broken::SizesIgnored => config.sizes.steps = Steps::Every,
        Broken::GrowsAtOnce => config.sizes.scale_up_after_ms = 0,
        _ => {}
    }
    config
}

/// Breaks a request.
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
        Broken::PreviousAssignmentForgotten if purpose == Purpose::Join => each_put(txn, |put| {
            if is(&put.key, "/member/")
                && let Ok(joined) = decode::<Joined>(&put.key, &put.value)
            {
                put.value = encode(&Joined { previous_assignment: None, ..joined });
            }
        }),
        Broken::NoMajority => claims(txn, |claims| {
            let groups = claims.confirmed.iter_mut().map(|one| &mut one.group);
            groups.chain(&mut claims.formed).for_each(|group| group.world = 1);
        }),
        Broken::NoMargin => claims(txn, |claims| claims.silent_ms = None),
        Broken::ConfirmedForgotten => claims(txn, |claims| claims.confirmed.clear()),
        Broken::SurplusDisturbs => each_put(txn, |put| {
            if is(&put.key, "/spare/") {
                put.key = String::from_utf8_lossy(&put.key).replace("/spare/", "/waiting/").into();
            }
        }),
        Broken::CloseOverwritten => {
            forget_events(keys, txn);
            if purpose == Purpose::Finalize {
                guard_by_number(keys, txn);
            }
        }
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
        // Only a resuming node joins and confirms in one transaction.
        Broken::ResumeUnguarded if puts(txn, "/member/") && puts(txn, "/ready/") => {
            txn.compares.clear();
        }
        Broken::HistoryUnchecked => txn.compares.retain(|compare| !is_history(compare)),
        Broken::AssignmentOfAnyHistory => {
            let history = history_of(txn);
            joined(txn, |joined| {
                if let (Some(of), Some(history)) =
                    (joined.pointer_mut("/previous_assignment/history"), history.as_deref())
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

/// Leaves the number of events out of `rdzv/round`, so that a closed run has the same one as before.
fn forget_events(keys: &Keys, txn: &mut Txn) {
    each_put(txn, |put| {
        if put.key == keys.round()
            && let Ok(rounds) = decode::<Rounds>(&put.key, &put.value)
        {
            put.value = encode(&Rounds { events: 0, ..rounds });
        }
    });
}

/// Guards the end of a round by its number alone.
fn guard_by_number(keys: &Keys, txn: &mut Txn) {
    let active = txn.success.iter().find_map(|op| match op {
        Op::Put(put) if put.key == keys.active() => decode::<Active>(&put.key, &put.value).ok(),
        _ => None,
    });
    let Some(Active { round, previous: formed, .. }) = active else { return };
    let (outlived, events, extra) = (0, 0, Extra::new());
    let last = CompareTarget::Value(encode(&Rounds { round, formed, outlived, events, extra }));
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

/// Breaks a reply.
pub(crate) fn answer(broken: Broken, purpose: Purpose, result: &mut TxnResult) {
    if broken == Broken::LastGroupUnchecked
        && purpose == Purpose::ReadMembership
        && let Some(OpResult::Range(last_ready)) = result.results.get_mut(READ_LAST_READY)
    {
        last_ready.kvs.clear();
    }
    if broken == Broken::RefusalIgnored && !matches!(purpose, Purpose::Leave | Purpose::Confirm) {
        result.succeeded = true;
    }
}

/// Breaks the events of the document in force.
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

/// The position of the members that may have workers of the last group in the read of the membership.
const READ_LAST_READY: usize = 6;

/// Breaks the events of the coordinator's watches.
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

/// Whether nodes with a rank count as confirmed.
pub(crate) fn confirms_for_others(broken: Broken) -> bool {
    broken == Broken::NoConfirm
}

/// The events of the coordinator's watch as if every node with a rank in `freeze` had confirmed.
pub(crate) fn confirmations(freeze: &Txn, revision: Revision) -> Vec<Event> {
    let ranked = freeze.success.iter().filter_map(|op| match op {
        Op::Put(put) if is(&put.key, "/rank/") => Some(&put.key),
        _ => None,
    });
    let confirmed = |key: &Bytes| {
        let key = String::from_utf8_lossy(key).replace("/rank/", "/ready/").into();
        let address = Address { host: "nowhere".to_owned(), port: 1 };
        let value = encode(&BootstrapStore {
            address,
            token: String::new(),
            liveness: None,
            runs_server: false,
        });
        let kv = KeyValue { key, value, mod_revision: revision + 1, ..KeyValue::default() };
        Event { kind: EventKind::Put, kv, prev_kv: None }
    };
    ranked.map(confirmed).collect()
}

pub(crate) fn believes_too_long(broken: Broken) -> bool {
    broken == Broken::NoSelfFencing
}

/// Whether the guard reacts only to the death of its launcher.
pub(crate) fn has_no_guard(broken: Broken) -> bool {
    matches!(broken, Broken::NoGuard | Broken::AsReleased)
}

/// Whether a node that was replaced gives its workers the full time to stop.
pub(crate) fn takes_its_time(broken: Broken) -> bool {
    matches!(broken, Broken::TakesItsTime | Broken::AsReleased)
}

/// Whether no death is proved.
pub(crate) fn has_no_proofs(broken: Broken) -> bool {
    broken == Broken::AsReleased
}

/// The node whose lease is revoked for a mere report.
pub(crate) fn ends_lease_of(broken: Broken, purpose: Purpose, txn: &Txn) -> Option<String> {
    if broken != Broken::SuspicionIsProof || purpose != Purpose::Suspect {
        return None;
    }
    txn.success.iter().find_map(|op| match op {
        Op::Put(put) if is(&put.key, "/suspect/") => Keys::id_of(&put.key).map(str::to_owned),
        _ => None,
    })
}
