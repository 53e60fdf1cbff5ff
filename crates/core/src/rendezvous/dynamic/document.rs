//! The document that the nodes of a run share.
//!
//! The document is JSON, so that people can read it with `etcdctl get`, and other programs can parse it:
//!
//! ```json
//! {"format": 1, "sequence": 42, "writer": "10.0.0.1_7_0_c4a1",
//!  "limits": {"min": 2, "max": 4}, "round": 3, "complete": false, "closed": null, "last_call": 41,
//!  "participants": {"10.0.0.1_7_0_c4a1": null}, "wait_list": [], "redundancy_list": [],
//!  "nodes": {"10.0.0.1_7_0_c4a1": {"heartbeat": 17, "arrived": 40}},
//!  "group": {"round": 2, "ranks": {"10.0.0.1_7_0_c4a1": 0}}}
//! ```
//!
//! `sequence` and `writer` make every write unique. A writer that does not know the outcome of its write reads
//! the document back and compares the bytes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::rendezvous::documents::Limits;
use crate::rendezvous::documents::{RunHistory, RunOutcome};
use crate::rendezvous::ranks::{Candidate, PreviousAssignment, RankPolicy, assign, select};
use crate::rendezvous::window::MembershipCounts;

/// The document format that this version reads and writes.
pub const FORMAT: u32 = 1;

/// The state that the nodes of a run share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedState {
    /// The format of the document: [`FORMAT`].
    pub format: u32,
    /// The number of the write. It grows by one with each write.
    pub sequence: u64,
    /// The id of the node that wrote the document.
    pub writer: String,
    /// The smallest and largest size of a group. All nodes must agree on them.
    pub limits: Limits,
    /// The present round. Rounds begin at 1, and their numbers only grow.
    pub round: u64,
    /// Whether the group of the present round has formed.
    pub complete: bool,
    /// How the run was closed; `None` while it is open.
    pub closed: Option<DynamicClosure>,
    /// The sequence number of the write that began the last call; `None` without one.
    pub last_call: Option<u64>,
    /// The nodes in the round, with their ranks once the group has formed. After that, no participant is removed.
    pub participants: BTreeMap<String, Option<u32>>,
    /// Late nodes for which the next round has room.
    pub wait_list: BTreeSet<String>,
    /// Late nodes for which the next round has no room: spares.
    pub redundancy_list: BTreeSet<String>,
    /// The live nodes, as the last writer saw them.
    pub nodes: BTreeMap<String, SharedNode>,
    /// The last group that formed.
    pub group: Option<SharedGroup>,
}

/// A live node in the shared document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedNode {
    /// The number of the node's heartbeats. It is a count and not a time, since clocks of hosts differ.
    pub heartbeat: u64,
    /// The sequence number of the write by which the node arrived.
    pub arrived: u64,
}

/// A formed group in the shared document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedGroup {
    /// The round of the group.
    pub round: u64,
    /// The rank of each member, by its node id.
    pub ranks: BTreeMap<String, u32>,
}

/// How a run of a dynamic rendezvous was closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicClosure {
    /// The id of the node that closed the run.
    pub by: String,
    /// The outcome of the run.
    #[serde(default)]
    pub outcome: RunOutcome,
    /// The reason for closing it.
    pub reason: String,
}

/// Why a shared document cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes are not a document of a dynamic rendezvous.
    #[error("it is not the JSON of a rendezvous ({0}); if nothing else uses the key, delete it")]
    Garbage(#[from] serde_json::Error),
    /// Another version wrote the document.
    #[error(
        "it has format {0}, and this version reads format {FORMAT}; run one version everywhere"
    )]
    Format(u32),
    /// The document is inconsistent.
    #[error("it contradicts itself ({0}); if nothing else uses the key, delete it")]
    Contradiction(String),
}

impl SharedState {
    /// The initial state of a run.
    pub fn fresh(limits: Limits, round: u64) -> Self {
        Self {
            format: FORMAT,
            sequence: 0,
            writer: String::new(),
            limits,
            round: round.max(1),
            complete: false,
            closed: None,
            last_call: None,
            participants: BTreeMap::new(),
            wait_list: BTreeSet::new(),
            redundancy_list: BTreeSet::new(),
            nodes: BTreeMap::new(),
            group: None,
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`StateError`] says why the document cannot be used.
    ///
    /// ```
    /// use rallypoint_core::rendezvous::dynamic::SharedState;
    /// use rallypoint_core::rendezvous::documents::Limits;
    /// let state = SharedState::fresh(Limits { min: 1, max: 2 }, 1);
    /// assert_eq!(SharedState::from_json(&state.to_json()).unwrap(), state);
    /// let error = SharedState::from_json(br#"{"format": 7}"#).unwrap_err().to_string();
    /// assert!(error.contains("format 7"), "{error}");
    /// ```
    pub fn from_json(bytes: &[u8]) -> Result<Self, StateError> {
        #[derive(Deserialize)]
        struct Envelope {
            format: u32,
        }
        // The format comes first, because a document of another version may lack required fields.
        let Envelope { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(StateError::Format(format));
        }
        let state: Self = serde_json::from_slice(bytes)?;
        state.check().map_err(StateError::Contradiction)?;
        Ok(state)
    }

    /// The JSON of the document.
    pub fn to_json(&self) -> Vec<u8> {
        // Maps with strings as keys can always be serialized; a reader would report an empty document.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Checks that the document is consistent.
    fn check(&self) -> Result<(), String> {
        let ranks: BTreeSet<u32> = self.participants.values().flatten().copied().collect();
        let count = self.participants.len();
        if self.complete && (ranks.len() != count || !ranks.into_iter().eq(0..count as u32)) {
            return Err(format!("round {} is complete, but its ranks have gaps", self.round));
        }
        if let Some(group) = self.group.as_ref().filter(|group| group.round > self.round) {
            return Err(format!("a group formed in round {} of {}", group.round, self.round));
        }
        Ok(())
    }

    /// The number of live participants.
    pub fn live_participants(&self) -> usize {
        self.participants.keys().filter(|id| self.nodes.contains_key(*id)).count()
    }

    /// Whether the node `id` is a live participant of the round.
    pub fn takes_part(&self, id: &str) -> bool {
        self.participants.contains_key(id) && self.nodes.contains_key(id)
    }

    /// Whether a group of the live participants has room for another node.
    pub fn has_room(&self) -> bool {
        self.live_participants() < self.limits.max
    }

    /// The counts by which the join window decides.
    pub fn counts(&self) -> MembershipCounts {
        let to_come = |id: &&String| !self.participants.contains_key(*id);
        let members =
            self.nodes.keys().filter(to_come).filter(|id| self.previous(id).is_some()).count();
        MembershipCounts {
            joined: self.participants.len(),
            members_to_come: members,
            others_to_come: self.nodes.keys().filter(to_come).count() - members,
            // Without leases, there are no unresolved nodes: a node without heartbeats is removed from the document.
            unresolved: 0,
            returned: self.participants.keys().filter(|id| self.previous(id).is_some()).count(),
            // It matters only where nodes are planned.
            last_world: 0,
        }
    }

    /// Adds a node to the present round.
    pub(super) fn join(&mut self, id: &str) {
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        self.arrive(id);
        self.participants.insert(id.to_owned(), None);
    }

    /// Adds a node to the live nodes, unless it is one already.
    pub(super) fn arrive(&mut self, id: &str) {
        let arrived = self.sequence + 1;
        self.nodes.entry(id.to_owned()).or_insert(SharedNode { heartbeat: 0, arrived });
    }

    /// Removes a node. A member of a formed group stays a participant; its absence from `nodes` shows the other
    /// members that it is lost.
    pub(super) fn remove(&mut self, id: &str) {
        self.nodes.remove(id);
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        if !self.complete {
            self.participants.remove(id);
        } else if self.live_participants() == 0 {
            self.open_next();
        }
    }

    /// Opens the next round.
    pub(super) fn open_next(&mut self) {
        self.round += 1;
        self.complete = false;
        self.last_call = None;
        self.participants.clear();
    }

    /// Forms the group of at most `limits.max` participants, and prefers members of the last group.
    pub(super) fn form_group(&mut self) {
        let candidates = self.participants.keys().map(|id| Candidate {
            id: id.clone(),
            arrived: self.nodes.get(id).map_or(i64::MAX, |node| node.arrived as i64),
            previous: self.previous(id),
            ..Candidate::default()
        });
        let chosen = select(candidates.collect(), self.limits.max);
        let ranks = assign(RankPolicy::Stable, &chosen);
        let all = std::mem::take(&mut self.participants);
        self.redundancy_list.extend(all.into_keys().filter(|id| !ranks.contains_key(id)));
        self.participants = ranks.iter().map(|(id, rank)| (id.clone(), Some(*rank))).collect();
        self.complete = true;
        self.last_call = None;
        self.group = Some(SharedGroup { round: self.round, ranks });
    }

    /// The assignment of a node in the last group.
    fn previous(&self, id: &str) -> Option<PreviousAssignment> {
        let group = self.group.as_ref()?;
        let rank = *group.ranks.get(id)?;
        let world = u32::try_from(group.ranks.len()).unwrap_or(u32::MAX);
        Some(PreviousAssignment {
            history: RunHistory::new(0),
            round: group.round,
            rank,
            world,
            held: false,
        })
    }

    /// Begins the last call when there are enough participants, and cancels it when there are not.
    pub(super) fn call(&mut self) {
        if self.complete || self.participants.len() < self.limits.min {
            self.last_call = None;
        } else if self.last_call.is_none() {
            self.last_call = Some(self.sequence + 1);
        }
    }

    /// Closes the run, unless it is closed.
    pub fn close(&mut self, by: &str, outcome: RunOutcome, reason: &str) {
        let closed = || DynamicClosure { by: by.to_owned(), outcome, reason: reason.to_owned() };
        self.closed.get_or_insert_with(closed);
    }

    /// Marks the state as the next write, made by `writer`. The write is also a heartbeat of the writer.
    pub fn sign(&mut self, writer: &str) {
        self.sequence += 1;
        self.writer = writer.to_owned();
        if let Some(node) = self.nodes.get_mut(writer) {
            node.heartbeat += 1;
        }
    }

    /// The number of nodes that wait for a new round, for a member of round `mine`: late nodes for which there is
    /// room, lost members, and participants of a later round.
    pub fn waiting(&self, mine: u64) -> usize {
        if self.closed.is_some() {
            // No new round follows, so no member may be stopped for one.
            return 0;
        }
        if self.round != mine || !self.complete {
            return self.participants.len().max(1);
        }
        let late = if self.has_room() { self.wait_list.len() } else { 0 };
        late + self.participants.len() - self.live_participants()
    }
}
