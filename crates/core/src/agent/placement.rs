//! Rank assignment: the workers' ranks, as torchrun assigns them.
//!
//! Each node writes its [`RoleInfo`] under [`role_info_key`]. The rank-0 node reads them all, and writes
//! the result of [`assign`] under [`assigned_ranks_key`] of each node, which reads its own. Nodes may
//! differ in the number of workers and in their role.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use crate::rendezvous::keys::agent::{
    assigned_ranks as assigned_ranks_key, role_info as role_info_key,
};

/// The workers of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleInfo {
    /// The role of the workers. Each role also has ranks of its own.
    pub role: String,
    /// The rank of the node.
    pub rank: u32,
    /// The number of workers of the node.
    pub local_world_size: u32,
    /// The number of ports that the node wants of rank 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ports: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The ranks of a node's workers: the base plus the local rank. Encoded in the store as a list of four numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub struct Placement {
    /// The rank of the node's first worker.
    pub base_rank: u32,
    /// The number of workers of all nodes.
    pub world_size: u32,
    /// The rank of the node's first worker among the workers of the same role.
    pub base_role_rank: u32,
    /// The number of workers with that role.
    pub role_world_size: u32,
}

impl From<[u32; 4]> for Placement {
    fn from([base_rank, world_size, base_role_rank, role_world_size]: [u32; 4]) -> Self {
        Self { base_rank, world_size, base_role_rank, role_world_size }
    }
}

impl From<Placement> for [u32; 4] {
    fn from(placement: Placement) -> Self {
        let Placement { base_rank, world_size, base_role_rank, role_world_size } = placement;
        [base_rank, world_size, base_role_rank, role_world_size]
    }
}

/// Why no ranks could be assigned.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// The value of a node cannot be decoded.
    #[error("the value at {key} is {value:?}: {source}")]
    Unreadable {
        /// The key of the value.
        key: String,
        /// The value.
        value: String,
        /// The decoding error.
        source: serde_json::Error,
    },
    /// A node has written the rank of another.
    #[error("the value at {} says rank {found}: two agents take themselves for the same node",
        role_info_key(*.expected))]
    WrongRank {
        /// The rank in the key.
        expected: u32,
        /// The rank in the value.
        found: u32,
    },
    /// A node wants another number of ports than rank 0.
    #[error(
        "the node of rank {rank} has --ports {found}, and that of rank 0 {wanted}: give all nodes the same number"
    )]
    OtherPorts {
        /// The rank of the node.
        rank: u32,
        /// The number of ports that it wants.
        found: u32,
        /// The number of ports that the rank-0 node wants.
        wanted: u32,
    },
    /// The number of workers exceeds `u32::MAX`.
    #[error(
        "the workers of all nodes are more than {}: check the number of workers per node",
        u32::MAX
    )]
    TooMany,
}

impl RoleInfo {
    /// Decodes the value that the node of this rank has written.
    ///
    /// # Errors
    /// [`PlacementError::Unreadable`].
    pub fn decode(node_rank: u32, value: &[u8]) -> Result<Self, PlacementError> {
        decode(role_info_key(node_rank), value)
    }

    /// The value that a node writes.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

impl Placement {
    /// The placement of a node if every node has the same number of workers and the same role, without an exchange
    /// through the store. torchrun does so under `TORCH_ELASTIC_WORKER_IDENTICAL=1`.
    pub fn identical(node_rank: u32, nodes: u32, local_workers: u32) -> Self {
        let base = node_rank.saturating_mul(local_workers);
        let world = nodes.saturating_mul(local_workers);
        Self::from([base, world, base, world])
    }

    /// Decodes the value that was written for the node of this rank.
    ///
    /// # Errors
    /// [`PlacementError::Unreadable`].
    pub fn decode(node_rank: u32, value: &[u8]) -> Result<Self, PlacementError> {
        decode(assigned_ranks_key(node_rank), value)
    }

    /// The value that the rank-0 node writes.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

/// The placement of each node. `nodes` are in the order of their ranks, from 0.
///
/// ```
/// use rallypoint_core::agent::placement::{Placement, RoleInfo, assign};
/// let node = |rank, role: &str, local_world_size| RoleInfo { role: role.into(), rank, local_world_size, ports: 0 };
/// let placements = assign(&[node(0, "actor", 1), node(1, "learner", 4), node(2, "actor", 2)]).unwrap();
/// assert_eq!(placements[2].encode(), "[5,7,1,3]");
/// ```
///
/// # Errors
/// [`PlacementError::WrongRank`] if the nodes are in another order; [`PlacementError::OtherPorts`];
/// [`PlacementError::TooMany`].
pub fn assign(nodes: &[RoleInfo]) -> Result<Vec<Placement>, PlacementError> {
    let mut world_size: u32 = 0;
    let mut role_sizes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut bases = Vec::with_capacity(nodes.len());
    for (expected, node) in (0..).zip(nodes) {
        if node.rank != expected {
            return Err(PlacementError::WrongRank { expected, found: node.rank });
        }
        if node.ports != nodes[0].ports {
            let (found, wanted) = (node.ports, nodes[0].ports);
            return Err(PlacementError::OtherPorts { rank: expected, found, wanted });
        }
        let role_size = role_sizes.entry(&node.role).or_default();
        bases.push((world_size, *role_size));
        world_size =
            world_size.checked_add(node.local_world_size).ok_or(PlacementError::TooMany)?;
        *role_size += node.local_world_size;
    }
    let place = |(node, (base_rank, base_role_rank)): (&RoleInfo, (u32, u32))| {
        let role_world_size = role_sizes.get(node.role.as_str()).copied().unwrap_or_default();
        Placement { base_rank, world_size, base_role_rank, role_world_size }
    };
    Ok(nodes.iter().zip(bases).map(place).collect())
}

fn decode<T: for<'a> Deserialize<'a>>(key: String, value: &[u8]) -> Result<T, PlacementError> {
    serde_json::from_slice(value).map_err(|source| {
        let value = String::from_utf8_lossy(value).into_owned();
        PlacementError::Unreadable { key, value, source }
    })
}

fn encode<T: Serialize>(value: &T) -> String {
    // Numbers and strings always serialize.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
