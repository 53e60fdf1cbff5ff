//! Succession: a job goes on when the host of its server is lost, and never has two groups.
//!
//! The server of a job is embedded in one of its nodes, and an order of hosts says which nodes may serve. Nothing is
//! replicated: a successor begins another, empty history, and the nodes bring along what they remember. Four rules keep
//! one group at a time.
//!
//! - Y1, [`claims`]: a node remembers the last group that it was a member of, and every later round that it has tried to
//!   confirm. It brings both wherever it joins. Before the first group, the hosts of the order are the group of round 0.
//! - Y2, [`quorum`]: a group forms only with more than half of the last group, and of every later round that may have
//!   formed one. At the server of the last group, half of the members that have not left suffice.
//! - Y3, [`right`]: a server grants and renews leases only while it has heard at least half of its running group lately.
//! - Y4, [`quorum`]: a successor waits until the workers of the last group are gone: each of its members has joined or
//!   is proved dead, or the time is over for which the old server can have renewed a lease.
//!
//! The rules Y1 and Y2 decide which group is the next one, and need no clock. The rules Y3 and Y4 limit how long the
//! workers of the group before it live, and need clocks whose rates differ by less than a
//! twenty-fifth.
//!
//! [`order`] decides which server a node uses, and which host opens one. Only liveness depends on it.

pub mod claims;
pub mod order;
pub mod quorum;
pub mod right;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A node's part in the succession of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Succession {
    /// The number of hosts that may serve.
    pub hosts: u32,
    /// Whether this node is on one of them, and no node of this run has confirmed a rank there before. Such a node is a
    /// member of the group of round 0.
    pub votes: bool,
}

/// The number of renewals of a lease in its time to live.
pub const RENEWALS_PER_TTL: u32 = 4;

/// How long a node counts as heard after the server sent the last response that the node has confirmed. A node confirms
/// a response by its next renewal, so this is two intervals of renewals, and a bit more.
pub fn heard_for(lease_ttl: Duration) -> Duration {
    2 * lease_ttl / RENEWALS_PER_TTL + lease_ttl / 24
}

/// How long after the last response of a server to a node no other node has workers on a lease of that server, if that
/// node was one of those which the server must hear (rule Y3).
pub fn outlives(lease_ttl: Duration) -> Duration {
    heard_for(lease_ttl) + lease_ttl
}
