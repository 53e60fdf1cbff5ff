//! What an operator did to a run, recorded with the author beside the restarts that the job has used.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rendezvous::documents::DisplayTime;

/// The number of actions that are kept.
pub(super) const MOST_ACTIONS: usize = 64;

/// An action of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAction {
    /// What was done.
    #[serde(flatten)]
    pub operation: Operation,
    /// The author, as `user@host`.
    pub by: String,
    /// Why, in the author's words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The round that was in progress.
    #[serde(default)]
    pub round: u64,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<DisplayTime>,
}

/// What an operator can do to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Operation {
    /// The run was closed.
    Close,
    /// The closed run was opened again.
    Reopen,
    /// The run was let go on without a quorum of its last group.
    Overrule,
    /// A node was told to stop its workers and to leave. It does so by itself: a lease that was revoked instead would
    /// let another node take its place while its workers still run (invariant L1).
    Evict {
        /// The id of the node.
        node: String,
    },
    /// An operation of a later version.
    #[serde(other)]
    Unknown,
}

impl OperatorAction {
    /// The author, and the reason if there is one.
    pub fn author(&self) -> String {
        match self.reason.as_str() {
            "" => self.by.clone(),
            reason => format!("{}: {reason}", self.by),
        }
    }
}

/// ```
/// use rallypoint_core::agent::{Operation, OperatorAction};
/// let operation = Operation::Evict { node: "h3_71".into() };
/// let (by, reason) = ("ali@login1".into(), "its disk is full".into());
/// let action = OperatorAction { operation, by, reason, round: 4, at: None };
/// assert_eq!(action.to_string(), "node h3_71 was evicted by ali@login1: its disk is full");
/// ```
impl fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let author = self.author();
        match &self.operation {
            Operation::Close => write!(f, "the run was closed by {author}"),
            Operation::Reopen => write!(f, "the run was opened again by {author}"),
            Operation::Overrule => {
                write!(f, "the run was let go on without the rest of its last group by {author}")
            }
            Operation::Evict { node } => write!(f, "node {node} was evicted by {author}"),
            Operation::Unknown => {
                write!(f, "the run was changed by {author}, with a later version")
            }
        }
    }
}
