//! Which server a node uses, and which host opens one.
//!
//! Safety does not depend on it: two servers may be open at the same time, and at most one of them has enough nodes for
//! a group. All nodes decide by the same order, so that they come to the same server when all hosts can be reached.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

/// What a host of the order answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostAnswer {
    /// Nothing.
    Silent,
    /// It does not serve. Its node remembers a group of this round, or was told of it by a node that asked; 0 if it
    /// knows of none.
    StandsBy {
        /// The round.
        remembers: u64,
    },
    /// It serves. The last group of its history has this round; 0 if there is none.
    Serves {
        /// The round.
        formed: u64,
    },
}

/// What a node does to have a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// It uses the server of this host.
    Use(usize),
    /// It opens the server of its own host.
    Open,
    /// It waits for this host to open its server.
    WaitFor(usize),
}

/// Decides by the answers of all hosts, in the order of the hosts. `own` is the position of the node's own host.
///
/// The server with the latest group comes first, and then the first of the order. If none serves, the first host opens
/// one whose node remembers the latest group. Before any group, that is the first host alone.
pub fn choose(own: Option<usize>, answers: &[HostAnswer]) -> Course {
    let serving = answers.iter().enumerate().filter_map(|(host, answer)| match answer {
        HostAnswer::Serves { formed } => Some((*formed, Reverse(host))),
        _ => None,
    });
    if let Some((_, Reverse(host))) = serving.max() {
        return Course::Use(host);
    }
    let standing_by = answers.iter().enumerate().filter_map(|(host, answer)| match answer {
        HostAnswer::StandsBy { remembers } => Some((*remembers, Reverse(host))),
        _ => None,
    });
    let opener = match standing_by.max() {
        Some((remembers, Reverse(host))) if remembers > 0 => host,
        _ => 0,
    };
    if own == Some(opener) { Course::Open } else { Course::WaitFor(opener) }
}

#[cfg(test)]
mod tests;
