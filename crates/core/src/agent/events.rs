//! Membership events: the one place that decides from a node's view why its workers must stop, for the launcher and for
//! agents of other programs.

use super::messages::{AgentInput, GroupChange};
use super::operator::OperatorAction;
use super::outcome::{CloseReason, RunClosure};
use super::restarts::{RestartBudget, RestartVerdict};
use super::why::Why;
use crate::rendezvous::RendezvousView;

/// The group that an agent was told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownGroup {
    /// The round of the group.
    pub round: u64,
    /// Whether this node has asked for a restart in this round.
    pub asked: bool,
}

/// The inputs that follow for an agent from its view of the group and from the restart budget, the most urgent first.
pub fn membership_events(
    view: &RendezvousView,
    budget: &RestartBudget,
    membership: Option<KnownGroup>,
) -> Vec<AgentInput> {
    if let Some(closed) = &view.closed {
        return vec![AgentInput::Closed(closed.into())];
    }
    let is_member = |known: &KnownGroup| view.member_of == Some(known.round);
    let Some(KnownGroup { round, asked }) = membership.filter(is_member) else {
        return Vec::new();
    };
    let mut news = Vec::new();
    let mut changed = |change| news.push(AgentInput::Changed { round, change });
    if let Some(later) = view.replaced_by {
        changed(GroupChange::Replaced(later));
    } else if !view.lost.is_empty() {
        changed(GroupChange::PeerLost(lost(view, budget, round)));
    } else if view.nodes_waiting == 0 {
        // Also while a node checks whether it still has its rank.
    } else if view.round < round {
        // The document went with the lease of its coordinator.
        changed(GroupChange::PeerLost(lost(view, budget, round)));
    } else if view.round > round {
        changed(GroupChange::GoneAhead(format!("round {} has begun", view.round)));
    }
    let charge = budget.last.as_ref().filter(|charge| charge.round == round && !asked);
    if let Some(charge) = charge.filter(|charge| charge.verdict == RestartVerdict::Counted) {
        changed(match charge.hang {
            true => GroupChange::Hung(charge.blame.clone()),
            false => GroupChange::PeerFailed(charge.blame.clone()),
        });
    }
    if let Some(departure) = budget.departure.as_ref().filter(|departure| departure.round == round)
    {
        changed(GroupChange::PeerLeaves(departure.clone()));
    }
    if view.round == round && view.lost.is_empty() && view.nodes_waiting > 0 {
        changed(GroupChange::NodesWaiting(view.nodes_waiting));
    }
    let hang = budget.hang.as_ref().filter(|request| request.round == round);
    news.extend(hang.cloned().map(AgentInput::StacksWanted));
    let over = budget.hang_over.filter(|over| over.round == round);
    news.extend(over.map(AgentInput::HangOver));
    news
}

/// The lost members, with the operator who evicted them. The loss of a coordinator takes the list of lost members with
/// it, but not the record of an eviction.
fn lost(view: &RendezvousView, budget: &RestartBudget, round: u64) -> Vec<String> {
    let evicted =
        |id: &str, action: &OperatorAction| format!("{id}, evicted by {}", action.author());
    match view.lost.is_empty() {
        true => budget.evictions_in(round).map(|(id, action)| evicted(id, action)).collect(),
        false => {
            let with_author = |id: &String| match budget.eviction_of(id) {
                Some(action) => evicted(id, action),
                None => id.clone(),
            };
            view.lost.iter().map(with_author).collect()
        }
    }
}

/// Why the workers of the node `id` must stop, for an agent that needs no more than that; `None` if they need not.
/// `fenced` is how the node has lost its session, if it has. Of the budget, evictions count: restarts and departures are
/// those of launchers.
pub fn must_stop(
    view: &RendezvousView,
    budget: &RestartBudget,
    fenced: Option<String>,
    id: &str,
) -> Option<Why> {
    if let Some(loss) = fenced {
        return Some(Why::SessionLost(loss));
    }
    if let Some(action) = budget.eviction_of(id) {
        return Some(Why::Evicted(action.clone()));
    }
    let round = view.member_of?;
    let membership = Some(KnownGroup { round, asked: false });
    let by_itself = view.closed.as_ref().is_some_and(|closed| closed.by.id == id);
    let reason = |input| match input {
        AgentInput::Closed(RunClosure { reason: CloseReason::Succeeded, .. }) => None,
        AgentInput::Closed(_) if by_itself => None,
        AgentInput::Closed(closed) => Some(Why::Closed(closed)),
        AgentInput::Changed { change, .. } => Some(Why::Changed(change)),
        _ => None,
    };
    let evictions = RestartBudget { actions: budget.actions.clone(), ..RestartBudget::default() };
    membership_events(view, &evictions, membership).into_iter().find_map(reason)
}

/// The number of nodes that ask for a new round, for an agent that is told only a number, as torchrun's is. It is 0 if
/// and only if the workers need not stop, by [`must_stop`]. A node that is fenced or evicted, or whose run another node
/// has closed as failed, counts at least itself.
pub fn num_nodes_waiting(
    view: &RendezvousView,
    budget: &RestartBudget,
    fenced: Option<String>,
    id: &str,
) -> usize {
    match must_stop(view, budget, fenced, id) {
        Some(_) => view.nodes_waiting.max(1),
        None => 0,
    }
}

#[cfg(test)]
mod tests;
