//! The broken variants, the number of seeds within which each must be found, and the invariants that may find it.

use crate::world::broken::Broken;
use crate::world::plan::FaultFilter;

/// The faults of the runs in which the variants are looked for.
pub(crate) const WORLD: FaultFilter = FaultFilter::Kind;

/// Each variant, the number of seeds within which it must be found, and the invariants that may find it.
pub(crate) const TABLE: [(Broken, u64, &[&str]); 26] = [
    (Broken::OpenUnfenced, 1_000, &["R1", "R2", "R3"]),
    (Broken::StaleCoordinator, 1_000, &["R1", "R2", "R3"]),
    (Broken::NumberReused, 1_000, &["R2", "quiet", "at once"]),
    (Broken::NoConfirm, 1_000, &["R4"]),
    (Broken::ConfirmForever, 1_000, &["R4", "liveness"]),
    (Broken::WaiterForever, 5_000, &["liveness", "keys"]),
    (Broken::GhostMember, 1_000, &["liveness", "told", "keys"]),
    (Broken::CoordinatorForever, 1_000, &["liveness", "told"]),
    (Broken::RankTwice, 1_000, &["R1"]),
    (Broken::WorldTooLarge, 1_000, &["R1"]),
    (Broken::PreviousAssignmentForgotten, 5_000, &["precedence"]),
    (Broken::SurplusDisturbs, 1_000, &["surplus", "liveness", "quiet"]),
    (Broken::NoSelfFencing, 1_000, &["fence"]),
    (Broken::LossUnheard, 1_000, &["told", "liveness"]),
    (Broken::LateUnheard, 1_000, &["liveness"]),
    (Broken::ChangeUnheard, 1_000, &["liveness", "told", "at once"]),
    (Broken::CloseOverwritten, 5_000, &["R3"]),
    (Broken::LeaveLeaves, 5_000, &["liveness", "told", "keys", "quiet"]),
    (Broken::RefusalIgnored, 1_000, &["R1", "R2", "liveness", "sound"]),
    (Broken::LateCopies, 20_000, &["surplus", "liveness"]),
    (Broken::NothingSwept, 1_000, &["keys"]),
    (Broken::NoLease, 1_000, &["keys"]),
    (Broken::ReportUnheard, 1_000, &["told"]),
    (Broken::JoinUnheard, 1_000, &["liveness"]),
    (Broken::SizesIgnored, 1_000, &["R1"]),
    (Broken::GrowsAtOnce, 1_000, &["surplus"]),
];

/// The variants of the rules that keep one group at a time.
///
/// Three rules have no variant here. The comparison of the history: a request of a lost history fails by its lease first.
/// The history of a previous assignment: it only orders ranks. The group that a node remembers: where the server
/// announces its predecessor, the memory only shortens the wait.
pub(crate) const ONE_GROUP: [(Broken, u64, &[&str]); 7] = [
    (Broken::LastGroupUnchecked, 1_000, &["L1", "liveness"]),
    (Broken::ReadyKept, 1_000, &["liveness", "L1", "keys", "at once"]),
    (Broken::SuspicionIsProof, 1_000, &["L1", "fence"]),
    (Broken::NoGuard, 5_000, &["L1"]),
    (Broken::ResumeUnguarded, 5_000, &["L1", "R1", "R2"]),
    (Broken::RoundsForgotten, 5_000, &["R2"]),
    (Broken::PredecessorUnsaid, 5_000, &["L1"]),
];

/// The variants of the rules by which hosts succeed each other as servers.
pub(crate) const SUCCESSION: [(Broken, u64, &[&str]); 7] = [
    (Broken::NoMajority, 5_000, &["L1", "R1", "R2"]),
    (Broken::NoSteppingDown, 10_000, &["L1", "precedence"]),
    (Broken::NoMargin, 5_000, &["L1"]),
    (Broken::ArrivalConfirms, 100_000, &["L1"]),
    (Broken::OrderSkipped, 5_000, &["liveness", "quiet"]),
    (Broken::ConfirmedForgotten, 5_000, &["L1", "R1", "R2"]),
    (Broken::VotesAgain, 50_000, &["L1", "R1", "R2"]),
];
