//! The keys of a server that is reached over the network.

use std::time::Duration;

use async_trait::async_trait;
use rallypoint_core::kv::{Event, KeyRange, LeaseId, LeaseStatus, Range, Txn, TxnResult, Watch};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::{Changes, KeySpace, ServerFacts};
use crate::client::{Client, ClientError, ClientOptions, ClusterMember, WatchError, Watcher};
use crate::doctor::{Obstacle, way};

/// The time limit for the sign of life of a server.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// The time limit for looking at the way to the server.
const WAY: Duration = Duration::from_millis(1200);

/// The time limit for an answer of a server.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server at an endpoint. The client is made by the first read, on the runtime that reads.
pub(crate) struct RemoteKeys {
    options: ClientOptions,
    /// The endpoint, as the user gave it.
    endpoint: String,
    client: OnceCell<Client>,
}

impl RemoteKeys {
    pub(crate) fn new(options: ClientOptions, endpoint: String) -> Self {
        Self { options, endpoint, client: OnceCell::new() }
    }

    /// The same server, for another runtime.
    pub(crate) fn clone_unconnected(&self) -> Self {
        Self::new(self.options.clone(), self.endpoint.clone())
    }

    async fn client(&self) -> Result<&Client, ClientError> {
        let connect = async || {
            let client = Client::connect(self.options.clone()).await?;
            Ok(client.with_timeout(PATIENCE))
        };
        self.client.get_or_try_init(connect).await
    }
}

#[async_trait]
impl KeySpace for RemoteKeys {
    async fn read(&self, txn: Txn) -> Result<TxnResult, ClientError> {
        self.client().await?.txn(txn).await
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<LeaseStatus>, ClientError> {
        self.client().await?.lease_time_to_live(id, false).await
    }

    async fn watch(&self, keys: KeyRange) -> Result<Box<dyn Changes>, WatchError> {
        let client = self.client().await?.with_timeout(SIGN_OF_LIFE);
        KeySpace::watch(&client, keys).await
    }

    async fn answers(&self, key: &KeyRange) -> Result<(), ClientError> {
        self.client().await?.answers(key).await
    }

    async fn facts(&self, keys: KeyRange) -> ServerFacts {
        let endpoint = self.endpoint.clone();
        let Ok(client) = self.client().await else {
            return ServerFacts { endpoint, ..ServerFacts::default() };
        };
        ServerFacts { endpoint, ..client.facts(keys).await }
    }

    async fn why(&self, error: &ClientError) -> String {
        no_answer(error, &self.endpoint).await
    }
}

/// Why no server answers at `servers`, and what helps. It is told as a launcher tells it that waits for its server.
pub(crate) async fn no_answer(error: &ClientError, servers: &str) -> String {
    if !error.is_transient() || error.is_tls_error() {
        return crate::error_chain(error);
    }
    let obstacle = Obstacle::of(error);
    let way = timeout(WAY, way(obstacle, servers)).await.unwrap_or_default();
    let (finding, remedy) = (obstacle.finding(), obstacle.remedy());
    format!("no server answers at {servers}: {finding}{way}. {remedy}")
}

#[async_trait]
impl KeySpace for Client {
    async fn read(&self, txn: Txn) -> Result<TxnResult, ClientError> {
        self.txn(txn).await
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<LeaseStatus>, ClientError> {
        self.lease_time_to_live(id, false).await
    }

    async fn watch(&self, keys: KeyRange) -> Result<Box<dyn Changes>, WatchError> {
        Ok(Box::new(Self::watch(self, [Watch::new(keys)]).await?))
    }

    async fn answers(&self, key: &KeyRange) -> Result<(), ClientError> {
        let range = Range { limit: 1, keys_only: true, ..Range::new(key.clone()) };
        self.with_timeout(SIGN_OF_LIFE).range(range).await.map(drop)
    }

    /// A user may be allowed to read the keys of runs, and nothing else.
    async fn facts(&self, keys: KeyRange) -> ServerFacts {
        let client = self.with_timeout(SIGN_OF_LIFE);
        let counted = Range { count_only: true, ..Range::new(keys) };
        let (status, members, leases, keys) =
            tokio::join!(client.status(), client.members(), client.leases(), client.range(counted));
        let kind = members.ok().map(|members| match members.iter().any(ClusterMember::is_ours) {
            true => "rallypoint",
            false => "etcd",
        });
        let status = status.ok();
        ServerFacts {
            endpoint: String::new(),
            kind,
            version: status.as_ref().map(|status| status.version.clone()),
            revision: status.as_ref().map(|status| status.revision),
            db_size: status.as_ref().map(|status| status.db_size),
            leases: leases.ok().map(|leases| leases.len()),
            keys: keys.ok().map(|keys| keys.count),
            watchers: None,
            problems: status.map(|status| status.errors).unwrap_or_default(),
        }
    }

    async fn why(&self, error: &ClientError) -> String {
        crate::error_chain(error)
    }
}

#[async_trait]
impl Changes for Watcher {
    async fn next(&mut self) -> Result<Vec<Event>, WatchError> {
        Ok(Self::next(self).await?.events)
    }
}
