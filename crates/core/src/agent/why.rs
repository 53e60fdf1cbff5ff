//! The reasons of the agent's decisions.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::failure::{WorkerFailure, signal_name};
use super::messages::GroupChange;
use super::operator::OperatorAction;
use super::outcome::RunClosure;

/// The reason of a decision of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The node has just started.
    Begin,
    /// The group changed.
    Changed(GroupChange),
    /// A worker of this node failed.
    WorkerFailed(WorkerFailure),
    /// The node lost its session, for this reason.
    SessionLost(String),
    /// The workers got no ranks, for this reason.
    NotPlaced(String),
    /// Not all workers could be started, for this reason.
    NotStarted(String),
    /// The run was closed.
    Closed(RunClosure),
    /// An operator evicted this node.
    Evicted(OperatorAction),
    /// The job hangs, and no restart is left.
    Hung(String),
    /// The launcher received this signal.
    Signal(i32),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => f.write_str("this node is new"),
            Self::Changed(change) => change.fmt(f),
            Self::WorkerFailed(failure) => failure.fmt(f),
            Self::SessionLost(reason) => write!(f, "the session was lost: {reason}"),
            Self::NotPlaced(reason) => write!(f, "the workers got no ranks: {reason}"),
            Self::NotStarted(reason) => write!(f, "the workers could not be started: {reason}"),
            Self::Closed(closed) => closed.fmt(f),
            Self::Evicted(action) => write!(f, "this node was evicted by {}", action.author()),
            Self::Hung(reason) => write!(f, "the job hangs: {reason}"),
            Self::Signal(signal) => {
                let name = signal_name(*signal).unwrap_or("unnamed");
                write!(f, "the launcher got signal {signal} ({name})")
            }
        }
    }
}

impl fmt::Display for GroupChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodesWaiting(1) => f.write_str("a node waits to join"),
            Self::NodesWaiting(nodes) => write!(f, "{nodes} nodes wait to join"),
            Self::PeerLost(nodes) if nodes.is_empty() => f.write_str("a member was lost"),
            Self::PeerLost(nodes) => write!(f, "members were lost: {}", nodes.join(", ")),
            Self::GoneAhead(reason) => write!(f, "the other nodes started another round: {reason}"),
            Self::Replaced(round) => write!(f, "round {round} formed without this node"),
            Self::PeerLeaves(departure) => write!(f, "a member leaves: {}", departure.why),
            Self::Hung(blame) => write!(f, "the job hangs: {blame}"),
            Self::PeerFailed(blame) => write!(f, "a worker of another node failed: {blame}"),
        }
    }
}
