//! Succession at run time: which host of the order serves, and how a node finds it. The rules are those of
//! [`rallypoint_core::rendezvous::succession`].
//!
//! - [`order`]: the hosts that may serve, and the question which of them does.
//! - [`host`]: one of these hosts: it answers from the start, and serves when its node decides so.
//! - [`seek`]: a node's search for its server.
//! - [`vote`]: whether a node counts for the first group.

mod host;
mod order;
mod seek;
mod vote;

pub(crate) use self::host::HostRole;
pub(crate) use self::order::{HostOrder, OrderSetup};
pub(crate) use self::seek::Seeker;
pub(crate) use self::vote::VoteNote;

/// The status of every request at a host that stands by.
pub(crate) const STANDS_BY: &str = "rallypoint: this host stands by, and another one serves";

/// The status of a grant at a server that may not grant leases at present.
pub(crate) const WITHHELD: &str = "rallypoint: this server has not heard half of its group lately, and grants no lease until it has";
