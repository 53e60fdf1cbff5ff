//! The document that the nodes of a run share.
//!
//! It is JSON, so that people can read it with `etcdctl get` and other programs can too:
//!
//! ```json
//! {"format": 1, "sequence": 42, "writer": "10.0.0.1_7_0_c4a1",
//!  "limits": {"min": 2, "max": 4}, "round": 3, "complete": false, "closed": null, "last_call": 41,
//!  "participants": {"10.0.0.1_7_0_c4a1": null}, "wait_list": [], "redundancy_list": [],
//!  "nodes": {"10.0.0.1_7_0_c4a1": {"heartbeat": 17, "arrived": 40}},
//!  "group": {"round": 2, "ranks": {"10.0.0.1_7_0_c4a1": 0}}}
//! ```
//!
//! `sequence` and `writer` make every write unlike any other, so whoever does not know whether its own
//! write came about can read the document back and compare the bytes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::rendezvous::documents::Limits;
use crate::rendezvous::documents::{RunHistory, RunOutcome};
use crate::rendezvous::ranks::{Candidate, PreviousAssignment, RankPolicy, assign, select};
use crate::rendezvous::window::MembershipCounts;

/// The format that this version reads and writes.
pub const FORMAT: u32 = 1;

/// Everything that the nodes of a run share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedState {
    /// The format of the document: [`FORMAT`].
    pub format: u32,
    /// Grows with each write.
    pub sequence: u64,
    /// Who wrote it.
    pub writer: String,
    /// How large a group may be. All nodes must agree.
    pub limits: Limits,
    /// The round in progress. Rounds begin at 1 and only grow.
    pub round: u64,
    /// Whether its group has formed.
    pub complete: bool,
    /// Who closed the run, and why; nothing while it is open.
    pub closed: Option<DynamicClosure>,
    /// The name of the last call, if there is one: the sequence number of the write that began it.
    pub last_call: Option<u64>,
    /// Who is in the round; with its rank once the group has formed, and then nobody is taken out.
    pub participants: BTreeMap<String, Option<u32>>,
    /// Late nodes that the next round has room for.
    pub wait_list: BTreeSet<String>,
    /// Late nodes that it has no room for.
    pub redundancy_list: BTreeSet<String>,
    /// The nodes that live, as far as whoever wrote last could see.
    pub nodes: BTreeMap<String, SharedNode>,
    /// The last group that formed.
    pub group: Option<SharedGroup>,
}

/// One node that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedNode {
    /// How often it has shown that it lives. A number and no moment, since clocks differ.
    pub heartbeat: u64,
    /// The sequence number of the write with which it came.
    pub arrived: u64,
}

/// A group that formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedGroup {
    /// In which round.
    pub round: u64,
    /// Who was in, with which rank.
    pub ranks: BTreeMap<String, u32>,
}

/// How a run was closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicClosure {
    /// By which node.
    pub by: String,
    /// As what.
    #[serde(default)]
    pub outcome: RunOutcome,
    /// Why.
    pub reason: String,
}

/// A document that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StateError {
    /// It is no document of ours.
    #[error("it is not the JSON of a rendezvous ({0}); if nothing else uses the key, delete it")]
    Garbage(#[from] serde_json::Error),
    /// Another version wrote it.
    #[error(
        "it has format {0}, and this version reads format {FORMAT}; run one version everywhere"
    )]
    Format(u32),
    /// It contradicts itself.
    #[error("it contradicts itself ({0}); if nothing else uses the key, delete it")]
    Contradiction(String),
}

impl SharedState {
    /// The state of a run in which nothing has happened yet.
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
    /// [`StateError`] tells what is wrong with it.
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
        // The format first: a document of another version may well lack what ours must have.
        let Envelope { format } = serde_json::from_slice(bytes)?;
        if format != FORMAT {
            return Err(StateError::Format(format));
        }
        let state: Self = serde_json::from_slice(bytes)?;
        state.check().map_err(StateError::Contradiction)?;
        Ok(state)
    }

    /// The document, to be written.
    pub fn to_json(&self) -> Vec<u8> {
        // Maps with text as keys and numbers can always be written; an empty document would be reported
        // by whoever reads it.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What would break the rules if it were believed.
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

    /// The participants that live.
    pub fn live_participants(&self) -> usize {
        self.participants.keys().filter(|id| self.nodes.contains_key(*id)).count()
    }

    /// Whether `id` takes part in the round, and lives.
    pub fn takes_part(&self, id: &str) -> bool {
        self.participants.contains_key(id) && self.nodes.contains_key(id)
    }

    /// Whether a group of the participants that live would take another node.
    pub fn has_room(&self) -> bool {
        self.live_participants() < self.limits.max
    }

    /// Who has come, and who lives but has not.
    pub fn roll(&self) -> MembershipCounts {
        let to_come = |id: &&String| !self.participants.contains_key(*id);
        let members =
            self.nodes.keys().filter(to_come).filter(|id| self.seat(id).is_some()).count();
        MembershipCounts {
            joined: self.participants.len(),
            members_to_come: members,
            others_to_come: self.nodes.keys().filter(to_come).count() - members,
            // A store that only compares and sets has no leases: who is silent too long is removed from the document.
            unresolved: 0,
            returned: self.participants.keys().filter(|id| self.seat(id).is_some()).count(),
        }
    }

    /// Puts a node into the round in progress.
    pub(super) fn join(&mut self, id: &str) {
        self.wait_list.remove(id);
        self.redundancy_list.remove(id);
        self.arrive(id);
        self.participants.insert(id.to_owned(), None);
    }

    /// Notes that a node is there, whatever it does.
    pub(super) fn arrive(&mut self, id: &str) {
        let arrived = self.sequence + 1;
        self.nodes.entry(id.to_owned()).or_insert(SharedNode { heartbeat: 0, arrived });
    }

    /// Takes a node out. Who formed a group stays on its roster; that it is missing among the nodes
    /// tells the others that they lost it.
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

    /// Begins the next round.
    pub(super) fn open_next(&mut self) {
        self.round += 1;
        self.complete = false;
        self.last_call = None;
        self.participants.clear();
    }

    /// Forms the group: as many as may, those of the last group first.
    pub(super) fn form_group(&mut self) {
        let candidates = self.participants.keys().map(|id| Candidate {
            id: id.clone(),
            arrived: self.nodes.get(id).map_or(i64::MAX, |node| node.arrived as i64),
            previous: self.seat(id),
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

    /// The place that a node had in the last group.
    fn seat(&self, id: &str) -> Option<PreviousAssignment> {
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

    /// Begins the last call when there are enough, and calls it off when there are not.
    pub(super) fn call(&mut self) {
        if self.complete || self.participants.len() < self.limits.min {
            self.last_call = None;
        } else if self.last_call.is_none() {
            self.last_call = Some(self.sequence + 1);
        }
    }

    /// Closes the run, unless somebody has.
    pub fn close(&mut self, by: &str, outcome: RunOutcome, reason: &str) {
        let closed = || DynamicClosure { by: by.to_owned(), outcome, reason: reason.to_owned() };
        self.closed.get_or_insert_with(closed);
    }

    /// Marks the state as the next one, written by `writer`, who shows by it that it lives.
    pub fn sign(&mut self, writer: &str) {
        self.sequence += 1;
        self.writer = writer.to_owned();
        if let Some(node) = self.nodes.get_mut(writer) {
            node.heartbeat += 1;
        }
    }

    /// How many nodes would like a new round, for a member of round `mine`: late ones that there is
    /// room for, members that are lost, and nodes that have gone ahead.
    pub fn waiting(&self, mine: u64) -> usize {
        if self.closed.is_some() {
            // There will be no new round, so nobody may be stopped for it.
            return 0;
        }
        if self.round != mine || !self.complete {
            return self.participants.len().max(1);
        }
        let late = if self.has_room() { self.wait_list.len() } else { 0 };
        late + self.participants.len() - self.live_participants()
    }
}
