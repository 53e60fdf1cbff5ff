//! What a member makes of what is known of its group and its run: the one place that decides why workers must stop,
//! for the launcher and for agents of other programs alike.

use super::budget::{Budget, Verdict};
use super::ending::{Closed, Closing};
use super::interface::{Change, Input};
use super::why::Why;
use crate::rendezvous::RendezvousView;

/// The group that an agent knows of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// Its round.
    pub round: u64,
    /// Whether this node has asked for a restart in it.
    pub asked: bool,
}

/// What follows for an agent from what is so, the most urgent first.
pub fn news(view: &RendezvousView, budget: &Budget, membership: Option<Membership>) -> Vec<Input> {
    if let Some(closed) = &view.closed {
        return vec![Input::Closed(closed.into())];
    }
    let is_member = |known: &Membership| view.member_of == Some(known.round);
    let Some(Membership { round, asked }) = membership.filter(is_member) else {
        return Vec::new();
    };
    let mut news = Vec::new();
    let mut changed = |change| news.push(Input::Changed { round, change });
    if let Some(later) = view.replaced_by {
        changed(Change::Replaced(later));
    } else if !view.lost.is_empty() {
        changed(Change::PeerLost(view.lost.clone()));
    } else if view.nodes_waiting == 0 {
        // Also while a node finds out whether it still has its place.
    } else if view.round < round {
        // The document went with the lease of its coordinator.
        changed(Change::PeerLost(Vec::new()));
    } else if view.round > round {
        changed(Change::GoneAhead(format!("round {} has begun", view.round)));
    }
    let charge = budget.last.as_ref().filter(|charge| charge.round == round && !asked);
    if let Some(charge) = charge.filter(|charge| charge.verdict == Verdict::Counted) {
        changed(Change::PeerFailed(charge.blame.clone()));
    }
    if let Some(departure) = budget.departure.as_ref().filter(|departure| departure.round == round)
    {
        changed(Change::PeerLeaves(departure.clone()));
    }
    if view.round == round && view.lost.is_empty() && view.nodes_waiting > 0 {
        changed(Change::NodesWaiting(view.nodes_waiting));
    }
    news
}

/// Why the workers of the node `id` must stop, for an agent that only wants to know that: nothing if they need not.
/// `fenced` says how the node has lost its place, if it has.
pub fn must_stop(view: &RendezvousView, fenced: Option<String>, id: &str) -> Option<Why> {
    if let Some(loss) = fenced {
        return Some(Why::SessionLost(loss));
    }
    let round = view.member_of?;
    let membership = Some(Membership { round, asked: false });
    let by_itself = view.closed.as_ref().is_some_and(|closed| closed.by.id == id);
    let reason = |input| match input {
        Input::Closed(Closed { closing: Closing::Done, .. }) => None,
        Input::Closed(_) if by_itself => None,
        Input::Closed(closed) => Some(Why::Closed(closed)),
        Input::Changed { change, .. } => Some(Why::Changed(change)),
        _ => None,
    };
    news(view, &Budget::default(), membership).into_iter().find_map(reason)
}

#[cfg(test)]
mod tests;
