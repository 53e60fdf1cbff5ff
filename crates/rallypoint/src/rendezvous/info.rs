//! The result of a rendezvous: the group, as one of its nodes sees it.

use std::sync::Arc;
use std::time::Duration;

use crate::store::{Store, StoreError};

/// A group, as seen by one of its nodes.
#[derive(Clone)]
pub struct RendezvousInfo {
    /// A store that the group shares, new for each round.
    pub store: Arc<dyn Store>,
    /// This node's rank in the group: 0 to `world_size - 1`.
    pub rank: u32,
    /// The number of nodes in the group.
    pub world_size: u32,
    /// The number of the round. Round numbers only grow.
    pub round: u64,
    /// The address at which workers connect to rank 0.
    pub bootstrap_store_info: RendezvousStoreInfo,
}

impl std::fmt::Debug for RendezvousInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RendezvousInfo")
            .field("round", &self.round)
            .field("rank", &self.rank)
            .field("world_size", &self.world_size)
            .field("bootstrap_store_info", &self.bootstrap_store_info)
            .finish_non_exhaustive()
    }
}

/// The address at which workers connect to rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RendezvousStoreInfo {
    /// The host name or address of rank 0.
    pub master_addr: String,
    /// The port of rank 0.
    pub master_port: u16,
}

impl RendezvousStoreInfo {
    /// The key of the address in a store.
    pub const MASTER_ADDR_KEY: &str = "MASTER_ADDR";
    /// The key of the port in a store.
    pub const MASTER_PORT_KEY: &str = "MASTER_PORT";

    /// Publishes the address of rank 0 in the store, if this is rank 0, and reads it from there on every rank.
    ///
    /// `listens` is what rank 0 publishes: its address and a port that it has already reserved. Other ranks give
    /// `None`.
    ///
    /// # Errors
    /// The errors of the store. Without `listens` at rank 0, every rank waits until the store's time-out.
    pub async fn build(
        rank: u32,
        store: &dyn Store,
        listens: Option<(&str, u16)>,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        if let (0, Some((address, port))) = (rank, listens) {
            let (address, port) = (address.to_owned().into(), port.to_string().into());
            let pairs = [
                (Self::MASTER_ADDR_KEY.as_bytes(), address),
                (Self::MASTER_PORT_KEY.as_bytes(), port),
            ];
            store.multi_set(&pairs).await?;
        }
        let keys = [Self::MASTER_ADDR_KEY.as_bytes(), Self::MASTER_PORT_KEY.as_bytes()];
        store.wait(&keys, timeout).await?;
        let found = store.multi_get(&keys).await?;
        let text = |index: usize| String::from_utf8_lossy(&found[index]).into_owned();
        let port = text(1);
        let master_port = port.parse().map_err(|_| StoreError::Corrupt {
            key: Self::MASTER_PORT_KEY.to_owned(),
            what: format!("{port:?} is no port"),
        })?;
        Ok(Self { master_addr: text(0), master_port })
    }
}
