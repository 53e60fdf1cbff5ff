//! One stream of watches, from its opening to its end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rallypoint_core::kv::{Revision, Watch};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::WatchError;
use crate::client::retry::Failure;
use crate::client::rpc::WatchStream;
use crate::client::{Client, StreamFailed};
use crate::convert::{self, WatchResponse};

/// An open stream on which every watch has been acknowledged.
pub(super) struct Live {
    pub(super) stream: WatchStream,
    /// The index of each watch by the server's id.
    pub(super) ids: BTreeMap<i64, usize>,
    /// Messages that arrived before the last acknowledgement.
    early: VecDeque<WatchResponse>,
    /// The store's revision at each acknowledgement.
    pub(super) created_at: Vec<Revision>,
    pub(super) cluster: u64,
    pub(super) since: Instant,
}

/// Why a stream could not be opened.
pub(super) enum OpenFailed {
    Again(Failure, Status),
    Never(WatchError),
}

impl From<StreamFailed> for OpenFailed {
    fn from(failed: StreamFailed) -> Self {
        match failed.error {
            Some(error) => Self::Never(error.into()),
            None => Self::Again(failed.failure, failed.status),
        }
    }
}

impl Live {
    /// Opens a stream, after `failures` failed attempts, and waits until each watch is acknowledged.
    pub(super) async fn open(
        client: &Client,
        watches: &[Watch],
        failures: u32,
    ) -> Result<Box<Self>, OpenFailed> {
        let patience = client.stream_timeout(failures);
        match Self::open_once(client, watches, patience).await {
            // Some versions of etcd answer "permission denied" to an expired token. The first refusal of that
            // kind therefore discards the token, and only the second one counts.
            Err(OpenFailed::Never(WatchError::Refused { reason, .. }))
                if client.shared.auth.user().is_some() && may_be_the_token(&reason) =>
            {
                client.shared.auth.renew();
                Self::open_once(client, watches, patience).await
            }
            opened => opened,
        }
    }

    async fn open_once(
        client: &Client,
        watches: &[Watch],
        patience: Duration,
    ) -> Result<Box<Self>, OpenFailed> {
        let bound = Instant::now() + patience;
        let requests = watches.iter().cloned().map(convert::watch_create).collect();
        let mut stream = WatchStream::open(client, requests, bound).await?;
        let mut ids = BTreeMap::new();
        let mut early = VecDeque::new();
        let mut created_at = Vec::with_capacity(watches.len());
        let mut cluster = 0;
        while created_at.len() < watches.len() {
            let Ok(message) = timeout_at(bound, stream.responses.answer()).await else {
                let status = Status::deadline_exceeded("the watch was not acknowledged in time");
                return Err(stream.responses.ended(status).into());
            };
            let message = WatchResponse::from(message?);
            if !message.created {
                early.push_back(message);
                continue;
            }
            // Acknowledgements come in the order of the requests.
            let watch = created_at.len();
            if message.canceled {
                return Err(refused_at_creation(&stream, watch, message));
            }
            ids.insert(message.id, watch);
            created_at.push(message.revision);
            cluster = message.cluster;
        }
        let since = Instant::now();
        Ok(Box::new(Self { stream, ids, early, created_at, cluster, since }))
    }

    /// The next message. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<WatchResponse, StreamFailed> {
        match self.early.pop_front() {
            Some(message) => Ok(message),
            None => Ok(self.stream.responses.next().await?.into()),
        }
    }
}

fn refused_at_creation(stream: &WatchStream, watch: usize, message: WatchResponse) -> OpenFailed {
    let reason = bare_reason(&message.reason);
    if is_passing(reason) {
        return stream.responses.ended(Status::unavailable(reason)).into();
    }
    OpenFailed::Never(WatchError::Refused {
        watch,
        endpoint: stream.responses.endpoint().to_owned(),
        reason: reason.to_owned(),
    })
}

fn may_be_the_token(reason: &str) -> bool {
    matches!(
        reason,
        "etcdserver: permission denied"
            | "etcdserver: invalid auth token"
            | "etcdserver: revision of auth store is old"
            | "etcdserver: user name is empty"
    )
}

/// The reason without the prefix of etcd's transport.
pub(super) fn bare_reason(reason: &str) -> &str {
    reason.rsplit_once(" desc = ").map_or(reason, |(_, bare)| bare)
}

/// Whether another server, or this one later, may serve a watch that was cancelled for this reason.
pub(super) fn is_passing(reason: &str) -> bool {
    matches!(
        reason,
        "" | "etcdserver: no leader"
            | "etcdserver: leader changed"
            | "etcdserver: server stopped"
            | "etcdserver: watch canceled"
    )
}
