//! The status of a run, from its documents.

use std::collections::{BTreeMap, BTreeSet};

use super::documents::{Documents, LiveNode};
use super::reason::reason;
use super::rounds;
use super::{
    ClosedStatus, FailureStatus, HangStatus, LeaseMargin, MissingNode, NodeCounts, NodeState,
    NodeStatus, RestartStatus, RunState, RunStatus,
};
use crate::agent::RoundFailure;
use crate::agent::stacks::HangDocument;
use crate::events::RunEvent;
use crate::kv::{KeyValue, LeaseId};
use crate::rendezvous::documents::{Active, LEFT_OR_EXPIRED, Status};
use crate::rendezvous::keys::{Keys, RunKey};

impl RunStatus {
    /// The rounds whose [`membership`](Keys::membership) the status needs, by the [documents](Keys::documents) of the
    /// run: the round in progress, and the last one that formed a group.
    pub fn rounds_of(keys: &Keys, documents: &[KeyValue]) -> BTreeSet<u64> {
        // Those of thousands of nodes say nothing of it.
        let of_rounds =
            |kv: &&KeyValue| matches!(keys.parse(&kv.key), Some(RunKey::Active | RunKey::Round));
        let found = Documents::new(keys, documents.iter().filter(of_rounds));
        let rounds = found.rounds.iter().flat_map(|rounds| [rounds.round, rounds.formed]);
        let active = found.active.iter().flat_map(|active| [active.round, active.previous]);
        rounds.chain(active).filter(|round| *round > 0).collect()
    }

    /// The hang that goes on, with where its workers are.
    pub(super) fn current_hang(&self) -> Option<&HangDocument> {
        self.last_hang.as_ref().filter(|_| self.hang.is_some())
    }

    /// The status of a run by its [documents](Keys::documents) and the [membership](Keys::membership) of its
    /// [rounds](Self::rounds_of), all of one revision. `leases` are those of the nodes, as far as they were read.
    pub fn new<'a>(
        run: &str,
        keys: &Keys,
        kvs: impl IntoIterator<Item = &'a KeyValue>,
        leases: &BTreeMap<LeaseId, LeaseMargin>,
    ) -> Self {
        let mut found = Documents::new(keys, kvs);
        let (last_hang, failure) = (found.last_hang(), found.failure.take());
        let events = std::mem::take(&mut found.events);
        let events: Vec<RunEvent> = events.into_values().collect();
        let active = found.active.as_ref();
        let state = match active.map(|active| active.status) {
            None => RunState::None,
            Some(Status::Joinable) => RunState::Joinable,
            Some(Status::Frozen) => RunState::Frozen,
            Some(Status::Final) => RunState::Final,
            Some(Status::Closed) => RunState::Closed,
        };
        let round = found.rounds.as_ref().map_or(0, |rounds| rounds.round);
        let round = active.map_or(round, |active| active.round);
        let nodes = nodes(&found, state, leases);
        let counts = counts(active, state, &nodes);
        let missing = missing((&found, &events), state, &nodes, counts);
        let budget = &found.budget;
        let last_failure = budget.last.clone().map(|last| {
            let RoundFailure { round, blame, verdict, hang } = last;
            FailureStatus { round, blame, verdict, hang }
        });
        let hang = last_hang.as_ref().filter(|hang| found.goes_on(hang)).map(HangStatus::new);
        let closed = active.filter(|_| state == RunState::Closed);
        let in_progress = active.filter(|_| state != RunState::Closed);
        let mut problems = found.problems.clone();
        problems.extend(rank_of_several(&found, active));
        let mut status = Self {
            run: run.to_owned(),
            state,
            reason: String::new(),
            since: active.and_then(|active| active.since),
            round,
            round_reason: in_progress.map(|active| active.reason.clone()).unwrap_or_default(),
            counts,
            sizes: active.map(|active| active.sizes.clone()).unwrap_or_default(),
            restarts: RestartStatus {
                used: budget.used,
                max: budget.max,
                left: budget.max.map(|max| max.saturating_sub(budget.used)),
            },
            coordinator: in_progress.map(|active| active.coordinator.id.clone()),
            lacks_quorum: in_progress
                .filter(|active| active.lacks_quorum.is_some())
                .map(|active| active.waits_for.clone()),
            closed: closed.map(|closed| ClosedStatus {
                by: closed.coordinator.to_string(),
                outcome: closed.outcome.unwrap_or_default(),
                reason: closed.reason.clone(),
            }),
            last_failure,
            hang,
            nodes,
            missing,
            actions: budget.actions.clone(),
            problems,
            failure,
            last_hang,
            events,
        };
        status.reason = reason(&status);
        status
    }
}

/// Every live node, and the lost members of the group in progress.
fn nodes(
    found: &Documents,
    state: RunState,
    leases: &BTreeMap<LeaseId, LeaseMargin>,
) -> Vec<NodeStatus> {
    let group = group(found, state);
    let members = found.active.as_ref().and_then(|active| found.joined.get(&active.round));
    let arrived = |(id, live): (&String, &LiveNode)| {
        let joined = found.joined.values().filter_map(|members| members.get(id));
        let earlier = joined.filter_map(|joined| joined.joined.arrived).min();
        (earlier.map_or(live.since, |earlier| earlier.min(live.since)), id.clone())
    };
    let mut order: Vec<_> = found.nodes.iter().map(arrived).collect();
    order.sort();
    let order: BTreeMap<&str, usize> =
        order.iter().zip(1..).map(|((_, id), place)| (id.as_str(), place)).collect();
    let live = found.nodes.iter().map(|(id, live)| NodeStatus {
        id: id.clone(),
        rank: group.and_then(|ranks| ranks.get(id).copied()).or(live.document.rank_hints.hint),
        state: node_state(found, state, id),
        host: live.document.host.clone(),
        address: live.document.address.clone(),
        pid: live.document.pid,
        workers: live.document.local_workers,
        order: order.get(id.as_str()).copied().unwrap_or(0),
        started: live.document.started,
        joined: members.and_then(|members| members.get(id)).and_then(|at| at.joined.joined),
        lease: leases.get(&live.lease).copied(),
        note: note(found, id),
    });
    let is_lost = |id: &&String| !found.nodes.contains_key(*id);
    let lost = group.into_iter().flatten().filter(|(id, _)| is_lost(id)).map(|(id, rank)| {
        let note =
            found.budget.eviction_of(id).map(|action| format!("evicted by {}", action.author()));
        NodeStatus {
            id: id.clone(),
            rank: Some(*rank),
            state: NodeState::Lost,
            host: String::new(),
            address: String::new(),
            pid: 0,
            workers: 0,
            order: 0,
            started: None,
            joined: None,
            lease: None,
            note: note.unwrap_or_default(),
        }
    });
    let mut nodes: Vec<NodeStatus> = live.chain(lost).collect();
    let place = |node: &NodeStatus| (node.rank.unwrap_or(u32::MAX), node.order, node.id.clone());
    nodes.sort_by_key(place);
    nodes
}

/// The ranks of the group that runs or is about to, or of the last one.
fn group(found: &Documents, state: RunState) -> Option<&BTreeMap<String, u32>> {
    match state {
        RunState::Closed => None,
        state => found.ranks.get(&group_round(found, state)),
    }
}

/// The round of that group.
fn group_round(found: &Documents, state: RunState) -> u64 {
    match (state, found.active.as_ref()) {
        (RunState::Final | RunState::Frozen, Some(active)) => active.round,
        (RunState::Joinable, Some(active)) => active.previous,
        _ => found.rounds.as_ref().map_or(0, |rounds| rounds.formed),
    }
}

fn node_state(found: &Documents, state: RunState, id: &str) -> NodeState {
    let active = found.active.as_ref();
    let round = active.map_or(0, |active| active.round);
    let formed = found.rounds.as_ref().map_or(0, |rounds| rounds.formed);
    let previous = active.map_or(formed, |active| active.previous);
    let is_ranked = found.ranks.get(&round).is_some_and(|ranks| ranks.contains_key(id));
    let is_ready = |round| found.ready.get(&round).is_some_and(|ready| ready.contains_key(id));
    let joined = found.joined.get(&round).and_then(|members| members.get(id));
    // A node that joined since is alive, whatever was reported before.
    let is_suspect = |joined| found.suspects.get(id).is_some_and(|reported| *reported > joined);
    match (state, joined) {
        (RunState::Final, Some(joined)) if is_ranked => {
            return if is_suspect(joined.at) { NodeState::Suspect } else { NodeState::Member };
        }
        (RunState::Frozen, Some(_)) if is_ranked => {
            return if is_ready(round) { NodeState::Confirmed } else { NodeState::Joined };
        }
        (RunState::Joinable, Some(_)) => return NodeState::Joined,
        // It has left the group, and not the run.
        (RunState::Final | RunState::Frozen, None) if is_ranked => return NodeState::Lost,
        _ => {}
    }
    if found.objectors.contains_key(id) {
        NodeState::Objector
    } else if found.waiting.contains_key(id) {
        NodeState::Waiting
    } else if found.spare.contains_key(id) {
        NodeState::Spare
    } else if is_ready(previous) || state == RunState::Closed && is_ready(round) {
        match found.suspects.contains_key(id) {
            true => NodeState::Suspect,
            false => NodeState::Stopping,
        }
    } else {
        NodeState::Idle
    }
}

/// What else is known of a node.
fn note(found: &Documents, id: &str) -> String {
    if let Some(action) = found.budget.eviction_of(id) {
        return format!("evicted by {}", action.author());
    }
    if let Some(objection) = found.objectors.get(id) {
        let (limits, policy) = (objection.limits, &objection.rank_policy);
        let round = found.active.as_ref().map(|active| active.sizes.clone()).unwrap_or_default();
        let sizes = objection.sizes.differences(&round);
        let sizes: String = sizes
            .map(|(what, theirs, rounds)| format!(", {what} {theirs} (the round has {rounds})"))
            .collect();
        return format!("has min:max nodes {limits}{sizes} and rank policy {policy}");
    }
    let round = found.active.as_ref().map_or(0, |active| active.round);
    let unreached = found.ready.get(&round).and_then(|ready| ready.get(id)).cloned().flatten();
    unreached.map(|why| format!("has {why}")).unwrap_or_default()
}

fn counts(active: Option<&Active>, state: RunState, nodes: &[NodeStatus]) -> NodeCounts {
    let number =
        |wanted: &[NodeState]| nodes.iter().filter(|node| wanted.contains(&node.state)).count();
    use NodeState::{Confirmed, Joined, Lost, Member, Spare, Suspect, Waiting};
    let present = match state {
        RunState::Final => number(&[Member, Suspect]),
        RunState::Frozen | RunState::Joinable => number(&[Joined, Confirmed]),
        RunState::None | RunState::Closed => 0,
    };
    let limits = active.map(|active| active.limits);
    let min = limits.map_or(0, |limits| limits.min);
    let smallest = active.map_or(0, |active| active.sizes.smallest(active.limits));
    NodeCounts {
        present,
        min,
        max: limits.map_or(0, |limits| limits.max),
        needed: if state == RunState::Joinable { smallest.saturating_sub(present) } else { 0 },
        waiting: number(&[Waiting]),
        spare: number(&[Spare]),
        lost: number(&[Lost]),
    }
}

/// Limit of the node ranks that are listed as missing. A document of another version, or one that was written by hand, may
/// ask for billions of nodes.
const MOST_RANKS: usize = 1 << 16;

/// The nodes that the run lacks: lost members, and node ranks that no node of a round that takes nodes wants.
fn missing(
    (found, events): (&Documents, &[RunEvent]),
    state: RunState,
    nodes: &[NodeStatus],
    counts: NodeCounts,
) -> Vec<MissingNode> {
    let is_lost = |node: &&NodeStatus| node.state == NodeState::Lost;
    let losses = rounds::losses(events, group_round(found, state));
    let exit_of = |id: &str| found.exits.iter().find(|exit| exit.node == id).cloned();
    let why = |node: &NodeStatus| match (node.note.as_str(), losses.get(node.id.as_str())) {
        ("", Some(because)) if ![LEFT_OR_EXPIRED, ""].contains(because) => (*because).to_owned(),
        // A node that leaves says so.
        ("", _) if exit_of(&node.id).is_some() => "it left".to_owned(),
        ("", _) => LEFT_OR_EXPIRED.to_owned(),
        (note, _) => note.to_owned(),
    };
    let mut missing: Vec<MissingNode> = nodes
        .iter()
        .filter(is_lost)
        .map(|node| MissingNode {
            id: Some(node.id.clone()),
            rank: node.rank,
            why: why(node),
            last_exit: exit_of(&node.id),
        })
        .collect();
    if state == RunState::Joinable && counts.needed > 0 {
        let round = found.active.as_ref().map_or(0, |active| active.round);
        let members = found.joined.get(&round);
        let wanted = members.into_iter().flatten().map(|(_, at)| at.joined.rank_hints.hint);
        let wanted: Option<BTreeSet<u32>> = wanted.collect();
        // A node without a hint may have any rank.
        if let Some(wanted) = wanted.filter(|wanted| !wanted.is_empty()) {
            let known: BTreeSet<u32> = missing.iter().filter_map(|node| node.rank).collect();
            let smallest = counts.present + counts.needed;
            let nodes = u32::try_from(smallest).unwrap_or(u32::MAX);
            let highest = wanted.last().copied().unwrap_or(0).saturating_add(1);
            let free = (0..nodes.max(highest))
                .filter(|rank| !wanted.contains(rank) && !known.contains(rank));
            missing.extend(free.take(counts.needed.min(MOST_RANKS)).map(|rank| MissingNode {
                id: None,
                rank: Some(rank),
                why: "no node has come for this node rank".to_owned(),
                last_exit: found.exits.iter().find(|exit| exit.rank == Some(rank)).cloned(),
            }));
        }
    }
    missing
}

/// Node ranks that several nodes of the round in progress want.
fn rank_of_several(found: &Documents, active: Option<&Active>) -> Vec<String> {
    let mut wanted: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let members = active.and_then(|active| found.joined.get(&active.round));
    for (id, at) in members.into_iter().flatten() {
        if let Some(rank) = at.joined.rank_hints.hint {
            wanted.entry(rank).or_default().push(id);
        }
    }
    let several = wanted.into_iter().filter(|(_, ids)| ids.len() > 1);
    several
        .map(|(rank, ids)| format!("node rank {rank} was given to {}", super::some_of(ids)))
        .collect()
}
