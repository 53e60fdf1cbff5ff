//! The first sign that a group has to form again, and its reason.

use rallypoint_core::agent::GroupChange;
use rallypoint_core::events::EventBody;

/// Why a node asks for a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoundReason {
    /// For the first time.
    Begin,
    /// A worker failed, here or elsewhere.
    WorkerFailed,
    /// The job hung.
    Hung,
    /// A member was lost.
    NodeLost,
    /// A node wants to join, and there is room.
    NodeJoined,
    /// A launcher was asked to leave.
    Preempted,
    /// This node has lost its session.
    SessionLost,
    /// Other members have begun another round, or nothing says why.
    Other,
}

impl RoundReason {
    pub(super) const ALL: [Self; 8] = [
        Self::Begin,
        Self::WorkerFailed,
        Self::Hung,
        Self::NodeLost,
        Self::NodeJoined,
        Self::Preempted,
        Self::SessionLost,
        Self::Other,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::WorkerFailed => "worker_failed",
            Self::Hung => "hang",
            Self::NodeLost => "node_lost",
            Self::NodeJoined => "node_joined",
            Self::Preempted => "preempted",
            Self::SessionLost => "session_lost",
            Self::Other => "other",
        }
    }
}

/// The reason for another round that an event tells a member.
pub(super) fn sign(body: &EventBody) -> Option<RoundReason> {
    Some(match body {
        EventBody::WorkerExited { exit, stopping: false, .. } if !exit.is_success() => {
            RoundReason::WorkerFailed
        }
        EventBody::StartFailed { .. } => RoundReason::WorkerFailed,
        EventBody::MembersLost { .. } => RoundReason::NodeLost,
        EventBody::PlaceLost { .. } | EventBody::Fenced { .. } => RoundReason::SessionLost,
        EventBody::Signalled { .. } => RoundReason::Preempted,
        EventBody::GroupChanged { change } => match change {
            GroupChange::NodesWaiting(_) => RoundReason::NodeJoined,
            GroupChange::PeerLost(_) => RoundReason::NodeLost,
            GroupChange::PeerFailed(_) => RoundReason::WorkerFailed,
            GroupChange::Hung(_) => RoundReason::Hung,
            GroupChange::PeerLeaves(_) => RoundReason::Preempted,
            GroupChange::GoneAhead(_) | GroupChange::Replaced(_) => RoundReason::Other,
        },
        _ => return None,
    })
}
