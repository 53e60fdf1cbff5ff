//! Selections of the workers' output: by stream, and by local rank.

use std::collections::{BTreeMap, BTreeSet};

/// A selection of a worker's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Streams {
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

/// One selection for all workers of a node, or one for each local rank. A local rank that this node does not have is no
/// error, since nodes may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamSelection {
    All(Streams),
    Some(BTreeMap<u32, Streams>),
}

impl StreamSelection {
    /// The selected streams of this worker.
    pub(crate) fn of(&self, local_rank: u32) -> Streams {
        match self {
            Self::All(streams) => *streams,
            Self::Some(ranks) => ranks.get(&local_rank).copied().unwrap_or_default(),
        }
    }
}

/// A set of local ranks. The empty set stands for all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LocalRanks(pub(crate) BTreeSet<u32>);

impl LocalRanks {
    /// Whether the worker is in the set.
    pub(crate) fn has(&self, local_rank: u32) -> bool {
        self.0.is_empty() || self.0.contains(&local_rank)
    }
}
