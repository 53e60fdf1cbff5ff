//! Named values that a node stores for the other nodes of a round: one key for each, so that two nodes with
//! different names do not overwrite each other's values.

use std::time::Duration;

use bytes::Bytes;
use rallypoint_core::kv::LeaseId;
use rallypoint_core::rendezvous::keys::Keys;

use crate::client::Client;
use crate::store::{EtcdStore, Store, StoreError};

/// Stores `value` under `name` for the nodes of `round`; the value lives as long as `lease`.
///
/// ```
/// use std::time::Duration;
/// use rallypoint::client::{Client, ClientOptions};
/// use rallypoint::core::rendezvous::keys::Keys;
/// use rallypoint::rendezvous::{load_extra_data, store_extra_data};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use rallypoint::server::{ServerOptions, serve};
/// # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let endpoint = listener.local_addr()?.to_string();
/// # tokio::spawn(serve(listener, ServerOptions::default(), std::future::pending()));
/// let client = Client::connect(ClientOptions::new([endpoint])).await?;
/// let keys = Keys::new("/torchelastic/p2p", "job-7");
/// store_extra_data(&client, &keys, 0, 3, "dashboard", "http://10.0.0.1:8080").await?;
/// let found = load_extra_data(&client, &keys, 3, "dashboard", Duration::from_secs(30)).await?;
/// assert_eq!(found, "http://10.0.0.1:8080");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`StoreError::TooLarge`], or [`StoreError::Client`] if the server could not be asked.
pub async fn store_extra_data(
    client: &Client,
    keys: &Keys,
    lease: LeaseId,
    round: u64,
    name: &str,
    value: impl Into<Bytes>,
) -> Result<(), StoreError> {
    let store = EtcdStore::new(client.clone(), keys.extra_data(round), lease, Duration::ZERO);
    store.set(name.as_bytes(), value.into()).await
}

/// Loads the value that a node stored under `name` for `round`. Waits at most `timeout` for it.
///
/// # Errors
/// [`StoreError::Timeout`] names the round and the name if no node has stored a value.
pub async fn load_extra_data(
    client: &Client,
    keys: &Keys,
    round: u64,
    name: &str,
    timeout: Duration,
) -> Result<Bytes, StoreError> {
    let store = EtcdStore::new(client.clone(), keys.extra_data(round), 0, timeout);
    store.get(name.as_bytes()).await.map_err(|error| match error {
        StoreError::Timeout { waited, .. } => {
            let place = keys.extra_data(round);
            let missing = vec![format!("extra data {name:?} of round {round} (below {place})")];
            StoreError::Timeout { waited, missing }
        }
        other => other,
    })
}
