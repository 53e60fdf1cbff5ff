//! The keys of the server in this process: no connection, no password and no certificate are between them.

use std::sync::OnceLock;
use std::time::Duration;

use async_trait::async_trait;
use rallypoint_core::kv::{Event, KeyRange, LeaseId, LeaseStatus, Txn, TxnResult};
use tonic::Status;

use super::{Changes, KeySpace, ServerFacts};
use crate::client::{ClientError, WatchError};
use crate::server::{LocalChanges, LocalServer};

/// The server of this process, once it has read its log.
#[derive(Default)]
pub(crate) struct OwnKeys(OnceLock<(LocalServer, String)>);

impl OwnKeys {
    /// The server has read its log, and listens at this address.
    pub(crate) fn serves(&self, server: LocalServer, address: String) {
        let _ = self.0.set((server, address));
    }

    fn server(&self) -> Result<&LocalServer, ClientError> {
        let starting = || unavailable("the server is starting: it reads its log");
        self.0.get().map(|(server, _)| server).ok_or_else(starting)
    }
}

fn unavailable(why: &str) -> ClientError {
    ClientError::Unavailable {
        request: "read",
        endpoint: "this process".to_owned(),
        attempts: 1,
        waited: Duration::ZERO,
        source: Status::unavailable(why),
    }
}

fn stopping() -> ClientError {
    unavailable("the server is stopping")
}

#[async_trait]
impl KeySpace for OwnKeys {
    async fn read(&self, txn: Txn) -> Result<TxnResult, ClientError> {
        Ok(self.server()?.read(&txn).ok_or_else(stopping)??)
    }

    async fn lease(&self, id: LeaseId) -> Result<Option<LeaseStatus>, ClientError> {
        self.server()?.lease(id).ok_or_else(stopping)
    }

    async fn watch(&self, keys: KeyRange) -> Result<Box<dyn Changes>, WatchError> {
        Ok(Box::new(self.server()?.watch(keys).ok_or_else(stopping)?))
    }

    async fn answers(&self, _: &KeyRange) -> Result<(), ClientError> {
        if self.server()?.is_serving() { Ok(()) } else { Err(stopping()) }
    }

    async fn facts(&self, keys: KeyRange) -> ServerFacts {
        let Some((server, endpoint)) = self.0.get() else { return ServerFacts::default() };
        ServerFacts { endpoint: endpoint.clone(), ..server.facts(keys).unwrap_or_default() }
    }

    async fn why(&self, error: &ClientError) -> String {
        match error {
            ClientError::Unavailable { source, .. } => source.message().to_owned(),
            error => crate::error_chain(error),
        }
    }
}

#[async_trait]
impl Changes for LocalChanges {
    async fn next(&mut self) -> Result<Vec<Event>, WatchError> {
        let changed = Self::next(self).await.ok_or_else(|| WatchError::Client(stopping()))?;
        changed.map_err(|compact_revision| WatchError::Compacted {
            watch: 0,
            wanted: 0,
            compact_revision,
        })
    }
}
