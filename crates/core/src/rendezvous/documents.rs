//! The documents that the nodes of a run share, as JSON, in format 1.
//!
//! Every document has a format number. One of another format is refused by naming both, never guessed at. Within a
//! format a later version may add fields: an older one reads the document without them, and whoever rewrites a
//! document keeps the fields that it does not know.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ranks::PreviousAssignment;
use crate::kv::Revision;

/// The format of the documents that this version writes and reads.
pub const FORMAT: u32 = 1;

/// The fields of a document that this version does not know.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// A field that says nothing is left out, which is how it reads where it is missing.
pub(super) fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// Names one history of a run on a server. A server that lost its memory begins another.
///
/// ```
/// use rallypoint_core::rendezvous::documents::RunHistory;
/// let history = RunHistory::new(0xab);
/// assert_eq!(history.to_string(), "00000000000000ab");
/// assert_eq!("00000000000000ab".parse(), Ok(history));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunHistory(u64);

impl RunHistory {
    /// The history of this number, which should be random.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// What `rdzv/history` holds. Its bytes are compared, so they are the same for every version.
    pub(super) fn to_json(self) -> Bytes {
        format!("\"{self}\"").into()
    }
}

impl fmt::Display for RunHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<RunHistory> for String {
    fn from(history: RunHistory) -> Self {
        history.to_string()
    }
}

impl std::str::FromStr for RunHistory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = u64::from_str_radix(text, 16);
        number.map(Self).map_err(|error| format!("{text:?} is no history: {error}"))
    }
}

impl TryFrom<String> for RunHistory {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

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

/// The smallest and the largest number of nodes that a group may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The smallest number of nodes.
    pub min: usize,
    /// The largest number of nodes.
    pub max: usize,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.min, self.max)
    }
}

/// Names a node to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeName {
    /// Its id.
    pub id: String,
    /// The address that it gave.
    #[serde(default)]
    pub address: String,
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.id, self.address)
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", from = "String")]
pub enum RunOutcome {
    /// The job is done.
    Succeeded,
    /// The job failed, and a restart might help. Also what a later version says that this one does not know.
    #[default]
    Failed,
    /// The job failed in a way that a restart does not mend.
    NonRetryable,
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "done",
            Self::Failed => "failed",
            Self::NonRetryable => "failed for good",
        })
    }
}

impl From<String> for RunOutcome {
    fn from(text: String) -> Self {
        match text.as_str() {
            "succeeded" => Self::Succeeded,
            "non_retryable" => Self::NonRetryable,
            _ => Self::Failed,
        }
    }
}

/// `rdzv/active`: the round in progress. Never the roster, so that its size does not depend on the
/// number of nodes, and joining does not change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// The history that the round belongs to.
    pub history: RunHistory,
    /// Which round.
    pub round: u64,
    /// How far it is.
    pub status: Status,
    /// The size of the group, which every node must agree on.
    pub limits: Limits,
    /// How ranks are given, likewise.
    pub rank_policy: String,
    /// The coordinator of the round, or who closed the run. That of a final one is in its group.
    pub coordinator: NodeName,
    /// Why the round began, or the run was closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reason: String,
    /// How the run ended; only when closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outcome: Option<RunOutcome>,
    /// Why it stopped taking nodes; empty while they may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub frozen_because: String,
    /// The revision at which it began; 0 while nodes may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub began: Revision,
    /// The last round before this one that formed a group; 0 if none did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub previous: u64,
    /// The last group of a forgotten history whose workers are known to be gone; 0 if nobody remembers one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outlived: u64,
    /// How many nodes the group has; 0 while they may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub world: u32,
    /// Which node has rank 0; empty while nodes may join.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rank0: String,
    /// The store that rank 0 serves; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub store: Option<BootstrapStore>,
    /// Late nodes that there is room for; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waiting: usize,
    /// How many members of the group are gone; only when final.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost: usize,
    /// Some of them by name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub lost_names: Vec<String>,
    /// What a later version says besides.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where a node listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// A listening socket that a node holds as long as it, or any of its workers, lives: when its host refuses a
/// connection there, they are dead. It greets with its token, so that it cannot be taken for another's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LivenessAddress {
    /// A name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// What it greets with.
    pub token: String,
}

/// What rank 0 says when it confirms: where it listens for the workers, and how its members say hello there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapStore {
    /// Where it listens.
    #[serde(flatten)]
    pub address: Address,
    /// What a member must show to be watched over.
    #[serde(default)]
    pub token: String,
    /// The liveness socket of rank 0.
    #[serde(default, skip_serializing_if = "is_default")]
    pub liveness: Option<LivenessAddress>,
}

/// `rdzv/round`: what outlives the round in progress. It is written whenever `rdzv/active` is, so both have
/// the same revision as long as the latter exists. What a later version adds here it says in `rdzv/active` too, which
/// is what the others watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The last number used.
    pub round: u64,
    /// The last round that formed a group; 0 if none did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub formed: u64,
    /// The last group of a forgotten history whose workers are known to be gone; 0 if nobody remembers one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub outlived: u64,
    /// What a later version says besides.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Active {
    /// What `rdzv/round` says beside this document, with the `extra` that it had.
    pub fn rounds(&self, extra: Extra) -> Rounds {
        let Self { round, outlived, .. } = *self;
        Rounds { round, formed: self.formed(), outlived, extra }
    }

    /// The last round that formed a group; 0 if none did.
    pub fn formed(&self) -> u64 {
        if self.status == Status::Final { self.round } else { self.previous }
    }

    /// Whether another node fits into the group.
    pub fn has_room(&self) -> bool {
        (self.world as usize) < self.limits.max
    }
}

/// `rdzv/node/{id}`: a node, for people who look, and the sign that it lives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeDocument {
    /// Unique among all nodes of the run, also over time.
    pub id: String,
    /// Where others reach it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub address: String,
    /// The name of its host.
    #[serde(default, skip_serializing_if = "is_default")]
    pub host: String,
    /// Its process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pid: u32,
    /// How many workers it runs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub local_workers: u32,
    /// The rank that it would like to have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hint: Option<u32>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: Option<String>,
    /// The socket that is refused when the node and its workers are dead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub liveness: Option<LivenessAddress>,
}

impl NodeDocument {
    /// Its name to others.
    pub fn name(&self) -> NodeName {
        NodeName { id: self.id.clone(), address: self.address.clone() }
    }
}

/// `rdzv/v_{n}/member/{id}`: a node joined a round.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Joined {
    /// When it first came, if that was before it joined.
    #[serde(default, skip_serializing_if = "is_default")]
    pub arrived: Option<Revision>,
    /// The rank that it would like to have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hint: Option<u32>,
    /// Where it stands.
    #[serde(default, skip_serializing_if = "is_default")]
    pub topology: Option<String>,
    /// Its place in the last group that it was in.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seat: Option<PreviousAssignment>,
    /// What it remembers of histories before this one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub earlier: Earlier,
}

/// `rdzv/objector/{id}`: a node disagrees with the round in progress, before any group has formed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objection {
    /// The size of the group, as this node has it.
    pub limits: Limits,
    /// How ranks are given, likewise.
    pub rank_policy: String,
    /// The node.
    pub node: NodeName,
}

impl Objection {
    /// Whether both would be of one group.
    pub fn has_the_terms_of(&self, other: &Self) -> bool {
        (self.limits, &self.rank_policy) == (other.limits, &other.rank_policy)
    }
}

/// What a node remembers of earlier histories of the run, on a server that has forgotten them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Earlier {
    /// The highest round that was opened.
    pub round: u64,
    /// The highest round that formed a group; 0 if none did.
    #[serde(default)]
    pub formed: u64,
}

impl Earlier {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The higher of both, number by number.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { round: self.round.max(other.round), formed: self.formed.max(other.formed) }
    }
}

/// [`PREDECESSOR`](super::keys::PREDECESSOR): a server that keeps nothing follows another, whose nodes may still have
/// workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// How long before the start of this server the one before it last renewed a lease, in milliseconds.
    pub silent_ms: u64,
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
pub enum DocumentError {
    /// It is of another format.
    #[error(
        "the document at {key} has format {found}, and this version reads format {FORMAT}: run the same version \
         on every node, or give the run another id"
    )]
    Format {
        /// Where it lies.
        key: String,
        /// Its format; 0 if it says none, as before format 1.
        found: u32,
    },
    /// It is not what it should be.
    #[error("the document at {key} cannot be read: {reason}")]
    Corrupt {
        /// Where it lies.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A document with its format number.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    format: u32,
    #[serde(flatten)]
    document: T,
}

/// A document as bytes.
pub fn encode<T: Serialize>(document: &T) -> Bytes {
    // Structs of numbers and strings: there is nothing that JSON could not say.
    serde_json::to_vec(&Envelope { format: FORMAT, document }).unwrap_or_default().into()
}

/// Reads the document that lies at `key`.
///
/// # Errors
/// If it is of another format, or is not what it should be.
pub fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, DocumentError> {
    let key = || String::from_utf8_lossy(key).into_owned();
    let corrupt =
        |error: serde_json::Error| DocumentError::Corrupt { key: key(), reason: error.to_string() };
    match serde_json::from_slice::<Envelope<T>>(value) {
        Ok(Envelope { format: FORMAT, document }) => Ok(document),
        Ok(Envelope { format: found, .. }) => Err(DocumentError::Format { key: key(), found }),
        // One of another format need not look like one of this.
        Err(error) => match serde_json::from_slice::<Extra>(value) {
            Ok(fields) => match fields.get("format").map_or(Some(0), serde_json::Value::as_u64) {
                Some(found) if found != u64::from(FORMAT) => {
                    let found = u32::try_from(found).unwrap_or(u32::MAX);
                    Err(DocumentError::Format { key: key(), found })
                }
                _ => Err(corrupt(error)),
            },
            Err(error) => Err(corrupt(error)),
        },
    }
}

#[cfg(test)]
mod tests;
