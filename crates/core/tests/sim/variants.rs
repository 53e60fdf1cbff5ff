//! The broken variants, the number of seeds within which each must be found, and the invariants that may find it.

use crate::world::broken::Broken;
use crate::world::plan::FaultFilter;

/// The world in which they are looked for.
pub(crate) const WORLD: FaultFilter = FaultFilter::Kind;

/// Each variant, the seeds in which it must be found, and which invariants may find it.
pub(crate) const TABLE: [(Broken, u64, &[&str]); 24] = [
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
    (Broken::ChangeUnheard, 1_000, &["liveness", "told"]),
    (Broken::CloseOverwritten, 5_000, &["R3"]),
    (Broken::LeaveLeaves, 5_000, &["liveness", "told", "keys", "quiet"]),
    (Broken::RefusalIgnored, 1_000, &["R1", "R2", "liveness", "sound"]),
    (Broken::LateCopies, 20_000, &["surplus", "liveness"]),
    (Broken::NothingSwept, 1_000, &["keys"]),
    (Broken::NoLease, 1_000, &["keys"]),
    (Broken::ReportUnheard, 1_000, &["told"]),
    (Broken::JoinUnheard, 1_000, &["liveness"]),
];

/// Those of the rules that keep one group at a time. The compare of the history, and that of the history of an assignment, have
/// none: a request of a forgotten history fails by its lease first, and a forgotten assignment only orders ranks. Nor has the
/// group that a node remembers: where the server says that it follows another, remembering only shortens the wait.
pub(crate) const ONE_GROUP: [(Broken, u64, &[&str]); 7] = [
    (Broken::LastGroupUnchecked, 1_000, &["L1", "liveness"]),
    (Broken::ReadyKept, 1_000, &["liveness", "L1", "keys", "at once"]),
    (Broken::SuspicionIsProof, 1_000, &["L1", "fence"]),
    (Broken::NoGuard, 5_000, &["L1"]),
    (Broken::ResumeUnguarded, 5_000, &["L1", "R1", "R2"]),
    (Broken::RoundsForgotten, 5_000, &["R2"]),
    (Broken::PredecessorUnsaid, 5_000, &["L1"]),
];
