//! The documents that the nodes of a run share, as JSON.
//!
//! Unknown fields are ignored, so that a later version may say more; a document that cannot be read is
//! reported with its key, never guessed at.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::gate::Limits;
use super::ranks::Seat;
use crate::kv::Revision;

/// How far the round in progress is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Nodes may join.
    Joinable,
    /// The ranks are given; each node must say that it is there.
    Frozen,
    /// All have. The group runs.
    Final,
    /// The run is over.
    Closed,
}

/// Names a node to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// Its id.
    pub id: String,
    /// The address that it gave.
    pub address: String,
}

impl std::fmt::Display for Author {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} ({})", self.id, self.address)
    }
}

/// `rdzv/active`: the round in progress. Never the roster, so that its size does not depend on the
/// number of nodes, and joining does not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// Which round.
    pub round: u64,
    /// How far it is.
    pub status: Status,
    /// The size of the group, which every node must agree on.
    pub limits: Limits,
    /// How ranks are given, likewise.
    pub rank_policy: String,
    /// The coordinator of the round, or who closed the run. That of a final one is in its group.
    pub author: Author,
    /// Why the round began, or the run was closed.
    pub reason: String,
    /// Why it stopped taking nodes; empty while they may join.
    pub frozen_because: String,
    /// The revision at which it began; 0 while nodes may join.
    pub began: Revision,
    /// The last round before this one that formed a group; 0 if none did.
    pub previous: u64,
    /// How many nodes the group has; 0 while they may join.
    pub world: u32,
    /// Which node has rank 0; empty while nodes may join.
    pub leader: String,
    /// Where rank 0 listens; only when final.
    pub store: Option<Address>,
    /// Late nodes that there is room for; only when final.
    pub waiting: usize,
    /// How many members of the group are gone; only when final.
    pub lost: usize,
    /// Some of them by name.
    pub lost_names: Vec<String>,
}

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// `rdzv/round`: what outlives the round in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The last number used.
    pub round: u64,
    /// The last round that formed a group; 0 if none did.
    pub formed: u64,
}

impl Active {
    /// What `rdzv/round` says beside this document.
    pub fn rounds(&self) -> Rounds {
        let formed = if self.status == Status::Final { self.round } else { self.previous };
        Rounds { round: self.round, formed }
    }

    /// Whether another node fits into the group.
    pub fn has_room(&self) -> bool {
        (self.world as usize) < self.limits.max
    }
}

/// `rdzv/node/{id}`: a node, for people who look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Node {
    /// Unique among all nodes of the run, also over time.
    pub id: String,
    /// Where others reach it.
    pub address: String,
    /// The name of its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// How many workers it runs.
    pub local_workers: u32,
    /// The rank that it would like to have.
    pub hint: Option<u32>,
    /// Where it stands.
    pub topology: Option<String>,
}

impl Node {
    /// Its name to others.
    pub fn author(&self) -> Author {
        Author { id: self.id.clone(), address: self.address.clone() }
    }
}

/// `rdzv/v_{n}/member/{id}`: a node joined a round.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Joined {
    /// When it first came, if that was before it joined.
    pub arrived: Option<Revision>,
    /// The rank that it would like to have.
    pub hint: Option<u32>,
    /// Where it stands.
    pub topology: Option<String>,
    /// Its place in the last group that it was in.
    pub seat: Option<Seat>,
}

/// `rdzv/v_{n}/rank/{id}`: a node's place in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranked {
    /// Its rank.
    pub rank: u32,
    /// How many nodes the group has.
    pub world: u32,
}

/// A document that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the document at {key} cannot be read: {reason}")]
pub struct Corrupt {
    /// Where it lies.
    pub key: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A document as bytes.
pub fn encode<T: Serialize>(document: &T) -> Bytes {
    // Structs of numbers and strings: there is nothing that JSON could not say.
    serde_json::to_vec(document).unwrap_or_default().into()
}

/// Reads the document that lies at `key`.
///
/// # Errors
/// If it is not what it should be.
pub fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, Corrupt> {
    serde_json::from_slice(value).map_err(|error| Corrupt {
        key: String::from_utf8_lossy(key).into_owned(),
        reason: error.to_string(),
    })
}
