//! Where the servers truly differ: which arm answers what, and why.

use crate::harness::Arm;

/// What one arm does where not all do the same.
#[derive(Debug, Clone, Copy)]
pub struct Differences {
    /// Whether a progress request on a stream without watches is answered. etcd 3.4 answers; from
    /// 3.5 on it waits for the first watch, since "all watches are synced" says nothing of none.
    pub progress_without_watches: bool,
    /// Whether the answer to Alarm has a header. etcd 3.4 forgot it.
    pub alarm_header: bool,
}

/// The differences of one arm. Ours follows the newer etcd.
pub fn of(arm: Arm) -> Differences {
    let newer = arm != Arm::Etcd34;
    Differences { progress_without_watches: !newer, alarm_header: newer }
}
