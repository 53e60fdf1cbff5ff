//! The watches of a coordinator, which keep its membership up to date.

use crate::kv::{KeyRange, Revision, Watch};
use crate::rendezvous::keys::Keys;

/// The coordinator's watches, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watched {
    Nodes,
    Waiting,
    Suspects,
    Members,
    Ready,
    /// Nodes that may still have workers of the last group.
    LastReady,
    Objectors,
    /// Nodes for which the group has no room, until there are enough of them for its next size.
    Spares,
    /// Members of the last group that have left in good order.
    Left,
    /// What an operator has decided about the quorum.
    Overruled,
}

impl Watched {
    /// The last two only where hosts succeed each other as servers.
    pub(super) const ALL: [Self; 10] = [
        Self::Nodes,
        Self::Waiting,
        Self::Suspects,
        Self::Members,
        Self::Ready,
        Self::LastReady,
        Self::Objectors,
        Self::Spares,
        Self::Left,
        Self::Overruled,
    ];
}

/// The watches that keep a membership up to date. Where hosts succeed each other as servers, joins are reported since the
/// round `began`.
pub(super) fn watches(
    keys: &Keys,
    (round, previous): (u64, u64),
    began: Option<Revision>,
) -> Vec<Watch> {
    let watch = |watched: &Watched| match watched {
        // A node's document is put together with its join or registration, so only its deletion matters.
        Watched::Nodes => Watch { no_put: true, ..Watch::new(keys.nodes()) },
        Watched::Waiting => Watch::new(keys.all_waiting()),
        Watched::Suspects => Watch { no_delete: true, ..Watch::new(keys.suspects()) },
        Watched::Members => {
            Watch::new(keys.members(round)).from_revision(began.unwrap_or_default())
        }
        Watched::Ready => Watch { no_delete: true, ..Watch::new(keys.all_ready(round)) },
        Watched::LastReady => Watch::new(keys.all_ready(previous)),
        Watched::Objectors => Watch::new(keys.objectors()),
        Watched::Spares => Watch::new(keys.spares()),
        Watched::Left => Watch { no_delete: true, ..Watch::new(keys.all_left(previous)) },
        Watched::Overruled => Watch::new(KeyRange::key(keys.overruled())),
    };
    let count = if began.is_some() { Watched::ALL.len() } else { Watched::ALL.len() - 2 };
    Watched::ALL.iter().take(count).map(watch).collect()
}
