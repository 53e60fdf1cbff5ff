//! Which workers have which ranks, as torchrun gives them.
//!
//! Each node writes its [`RoleInfo`] under [`role_info_key`]. The node of rank 0 reads them all, and writes
//! what [`assign`] says under [`assigned_ranks_key`] of each node, which reads its own. The nodes need not
//! have the same number of workers, nor the same role.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where a node says what it has, in the round's store.
pub fn role_info_key(node_rank: u32) -> String {
    format!("torchelastic/role_info/{node_rank}")
}

/// Where a node finds its place, in the round's store.
pub fn assigned_ranks_key(node_rank: u32) -> String {
    format!("torchelastic/assigned_ranks/{node_rank}")
}

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleInfo {
    /// What its workers do. Those of one role are counted apart, besides.
    pub role: String,
    /// Its rank among the nodes.
    pub rank: u32,
    /// How many workers it has.
    pub local_world_size: u32,
}

/// The ranks of a node's workers: each has the base plus its local rank. In the store, a list of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u32; 4]", into = "[u32; 4]")]
pub struct Placement {
    /// The rank of its first worker.
    pub base_rank: u32,
    /// How many workers there are.
    pub world_size: u32,
    /// The rank of its first worker among those of the same role.
    pub base_role_rank: u32,
    /// How many workers have that role.
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

/// Why there are no ranks.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// What a node says cannot be read.
    #[error("the value at {key} is {value:?}: {source}")]
    Unreadable {
        /// Where it lies.
        key: String,
        /// What lies there.
        value: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A node speaks for another.
    #[error("the value at {} says rank {found}: two agents take themselves for the same node",
        role_info_key(*.expected))]
    WrongRank {
        /// Which node was asked.
        expected: u32,
        /// Which one answered.
        found: u32,
    },
    /// More workers than can be counted.
    #[error(
        "the workers of all nodes are more than {}: check the number of workers per node",
        u32::MAX
    )]
    TooMany,
}

impl RoleInfo {
    /// Reads what the node of this rank has written.
    ///
    /// # Errors
    /// [`PlacementError::Unreadable`].
    pub fn decode(node_rank: u32, value: &[u8]) -> Result<Self, PlacementError> {
        decode(role_info_key(node_rank), value)
    }

    /// What it writes.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

impl Placement {
    /// The place of a node if every node has the same number of workers and the same role: no node need be
    /// asked. torchrun does so under `TORCH_ELASTIC_WORKER_IDENTICAL=1`.
    pub fn identical(node_rank: u32, nodes: u32, local_workers: u32) -> Self {
        let base = node_rank.saturating_mul(local_workers);
        let world = nodes.saturating_mul(local_workers);
        Self::from([base, world, base, world])
    }

    /// Reads what was written for the node of this rank.
    ///
    /// # Errors
    /// [`PlacementError::Unreadable`].
    pub fn decode(node_rank: u32, value: &[u8]) -> Result<Self, PlacementError> {
        decode(assigned_ranks_key(node_rank), value)
    }

    /// What is written for it.
    pub fn encode(&self) -> String {
        encode(self)
    }
}

/// The place of each node, `nodes` being in the order of their ranks, from 0.
///
/// ```
/// use rallypoint_core::agent::placement::{Placement, RoleInfo, assign};
/// let node = |rank, role: &str, local_world_size| RoleInfo { role: role.into(), rank, local_world_size };
/// let placements = assign(&[node(0, "actor", 1), node(1, "learner", 4), node(2, "actor", 2)]).unwrap();
/// assert_eq!(placements[2].encode(), "[5,7,1,3]");
/// ```
///
/// # Errors
/// [`PlacementError::WrongRank`] if they are not; [`PlacementError::TooMany`].
pub fn assign(nodes: &[RoleInfo]) -> Result<Vec<Placement>, PlacementError> {
    let mut world_size: u32 = 0;
    let mut role_sizes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut bases = Vec::with_capacity(nodes.len());
    for (expected, node) in (0..).zip(nodes) {
        if node.rank != expected {
            return Err(PlacementError::WrongRank { expected, found: node.rank });
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
    // Numbers and strings: there is nothing that JSON could not say.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
