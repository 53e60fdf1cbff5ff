//! The last exit of a node whose run goes on without it, for operators who look for the node.

use serde::{Deserialize, Serialize};

use super::outcome::{NodeOutcome, RunResult};
use crate::rendezvous::documents::DisplayTime;
use crate::text::{LONGEST_REASON, bounded};

/// `rdzv/exit/{name}`: how a node's part in a run ended while the run went on.
///
/// ```
/// use rallypoint_core::agent::{NodeExit, NodeOutcome, RunResult};
/// let result = |outcome: NodeOutcome| {
///     RunResult { exit_code: outcome.exit_code(None), outcome, failures: Vec::new() }
/// };
/// let exit = NodeExit::of(&result(NodeOutcome::Signalled(15)), "h4-71", "h4", Some(4)).unwrap();
/// assert_eq!(exit.name(), "rank_4");
/// assert_eq!(exit.to_string(), "h4-71 ended with exit code 143: the launcher got signal 15 (SIGTERM)");
/// let done = result(NodeOutcome::NotNeeded("the job is done".into()));
/// assert_eq!(NodeExit::of(&done, "h4-71", "h4", None), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeExit {
    /// The id of the node; if it had none yet, the name of its host.
    pub node: String,
    /// The name of its host.
    #[serde(default)]
    pub host: String,
    /// The node rank that it wanted.
    #[serde(default)]
    pub rank: Option<u32>,
    /// The exit code of the launcher.
    pub code: i32,
    /// Why it ended, in a sentence.
    #[serde(default)]
    pub reason: String,
    /// When.
    #[serde(default)]
    pub at: Option<DisplayTime>,
}

impl NodeExit {
    /// The exit of this node; `None` if the run ends with it, or can do without the node.
    pub fn of(result: &RunResult, node: &str, host: &str, rank: Option<u32>) -> Option<Self> {
        match &result.outcome {
            NodeOutcome::NodeFailed(_) | NodeOutcome::Evicted(_) | NodeOutcome::Signalled(_) => {}
            NodeOutcome::Succeeded(_)
            | NodeOutcome::NotNeeded(_)
            | NodeOutcome::WorkerFailed(_)
            | NodeOutcome::RunFailed(_) => return None,
        }
        let reason = result.outcome.to_string();
        let line = reason.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        Some(Self {
            node: node.to_owned(),
            host: host.to_owned(),
            rank,
            code: result.exit_code,
            reason: bounded(line, LONGEST_REASON),
            at: None,
        })
    }

    /// The name of its key. A later exit of the same node rank, or else of the same host, takes its place, so there
    /// are no more of them than ranks or hosts.
    pub fn name(&self) -> String {
        match self.rank {
            Some(rank) => format!("rank_{rank}"),
            None => format!("host_{}", self.host.replace('/', "_")),
        }
    }
}

impl std::fmt::Display for NodeExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { node, code, reason, .. } = self;
        write!(f, "{node} ended with exit code {code}: {reason}")
    }
}
