//! The nodes that are to blame for a hang: the one place that decides it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::NodeStacks;

/// One odd node is allowed for this number of nodes, and one in a smaller group.
const NODES_FOR_EACH_ODD: usize = 8;

/// A node that is to blame for a hang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OddNode {
    /// The id of the node.
    pub id: String,
    /// The name of its host.
    pub host: String,
}

/// The nodes whose workers are elsewhere than those of all others, and the reason; or why no node is to blame.
///
/// A node is odd if most ranks of the group are at one place, and one of its own is not. No node is odd unless the stacks
/// leave no doubt: those of all nodes are known, at least two of three ranks are at the same place, and the others are
/// on one node, or on one of eight.
///
/// ```
/// use rallypoint_core::agent::stacks::{Frame, NodeStacks, OddNodes, WorkerStack};
///
/// let worker = |rank, function: &str| {
///     let frames = vec![Frame { function: function.into(), file: "train.py".into(), line: 7 }];
///     WorkerStack { rank, step: None, frames, note: None }
/// };
/// let node = |id: &str, workers| NodeStacks { host: format!("host-{id}"), node: id.into(), workers };
/// let nodes = [
///     node("a", vec![worker(0, "step"), worker(1, "step")]),
///     node("b", vec![worker(2, "load"), worker(3, "step")]),
/// ];
/// let odd = OddNodes::of(&nodes, 0);
/// assert_eq!(odd.nodes[0].id, "b");
/// assert_eq!(odd.reason, "3 of 4 ranks are in step (train.py:7), and the others are on host-b");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OddNodes {
    /// The nodes; empty if none is to blame.
    pub nodes: Vec<OddNode>,
    /// Why these nodes, or why none.
    pub reason: String,
}

impl OddNodes {
    /// The odd ones of these nodes. `missing`: the number of nodes whose stacks are not known.
    pub fn of(nodes: &[NodeStacks], missing: usize) -> Self {
        match Self::found(nodes, missing) {
            Ok((nodes, reason)) => Self { nodes, reason },
            Err(reason) => Self { nodes: Vec::new(), reason },
        }
    }

    /// The names of their hosts.
    pub fn hosts(&self) -> String {
        let hosts: Vec<&str> = self.nodes.iter().map(|node| node.host.as_str()).collect();
        hosts.join(", ")
    }

    fn found(nodes: &[NodeStacks], missing: usize) -> Result<(Vec<OddNode>, String), String> {
        if missing > 0 {
            return Err(format!("{missing} of the group's nodes did not answer"));
        }
        let workers = || nodes.iter().flat_map(|node| &node.workers);
        if let Some(unknown) = workers().find(|worker| worker.frames.is_empty()) {
            return Err(format!("the stack of rank {} is not known", unknown.rank));
        }
        // A stack of the language and one of the kernel differ also at the same place.
        if workers().any(|worker| worker.note.is_some() != worker_is_noted(nodes)) {
            return Err("not all stacks could be taken in the same way".to_owned());
        }
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for worker in workers() {
            *places.entry(worker.place()).or_default() += 1;
        }
        let all = workers().count();
        let Some((place, most)) = places.into_iter().max_by_key(|(_, ranks)| *ranks) else {
            return Err("no worker is left".to_owned());
        };
        if most == all {
            return Err("all ranks are at the same place".to_owned());
        }
        if most * 3 < all * 2 {
            return Err("fewer than two of three ranks are at the same place".to_owned());
        }
        let is_odd = |node: &&NodeStacks| node.workers.iter().any(|w| w.place() != place);
        let odd: Vec<&NodeStacks> = nodes.iter().filter(is_odd).collect();
        if odd.len() > (nodes.len() / NODES_FOR_EACH_ODD).max(1) {
            let (odd, nodes) = (odd.len(), nodes.len());
            return Err(format!("the ranks at other places are on {odd} of {nodes} nodes"));
        }
        if odd.iter().any(|node| node.node.is_empty()) {
            return Err("the node at another place has an earlier version".to_owned());
        }
        let odd: Vec<OddNode> = odd
            .into_iter()
            .map(|node| OddNode { id: node.node.clone(), host: node.host.clone() })
            .collect();
        let hosts: Vec<&str> = odd.iter().map(|node| node.host.as_str()).collect();
        let reason = format!(
            "{most} of {all} ranks are in {place}, and the others are on {}",
            hosts.join(", ")
        );
        Ok((odd, reason))
    }
}

/// Whether the first worker has a note, which says that its stack is that of the kernel.
fn worker_is_noted(nodes: &[NodeStacks]) -> bool {
    nodes.iter().flat_map(|node| &node.workers).next().is_some_and(|worker| worker.note.is_some())
}

#[cfg(test)]
mod tests;
