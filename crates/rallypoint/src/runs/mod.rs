//! The runs of a server, as an operator reads them. Looking at them changes nothing: an operator is no node, and has no
//! lease.
//!
//! - `client`: a server that is reached over the network.
//! - `own`: the server in this process.

mod client;
mod own;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use rallypoint_core::kv::{
    Event, KeyRange, KeyValue, KvError, LeaseId, LeaseStatus, OpResult, Range, Txn, TxnResult,
};
use rallypoint_core::rendezvous::keys::{Keys, RunKey};
use rallypoint_core::status::{LeaseMargin, RunState, RunStatus};
use serde::Serialize;
use tokio::time::sleep;

pub(crate) use self::client::{RemoteKeys, no_answer};
pub(crate) use self::own::OwnKeys;
use crate::client::{ClientError, WatchError};

/// Leases that are asked for at the same time: each is a request.
const AT_ONCE: usize = 32;

/// The pause between two signs of life: a watch by itself says nothing while no server answers.
const LOOK: Duration = Duration::from_millis(1200);

/// The keys of a server, for reading.
#[async_trait]
pub(crate) trait KeySpace: Send + Sync + 'static {
    /// Runs a transaction that only reads.
    async fn read(&self, txn: Txn) -> Result<TxnResult, ClientError>;

    /// A lease; `None` if there is none of this id.
    async fn lease(&self, id: LeaseId) -> Result<Option<LeaseStatus>, ClientError>;

    /// Follows the changes of these keys, from now on.
    async fn watch(&self, keys: KeyRange) -> Result<Box<dyn Changes>, WatchError>;

    /// Whether the server answers, which is soon known.
    async fn answers(&self, key: &KeyRange) -> Result<(), ClientError>;

    /// What the server tells of itself.
    async fn facts(&self, keys: KeyRange) -> ServerFacts;

    /// Why the server does not answer, in a sentence, and what helps.
    async fn why(&self, error: &ClientError) -> String;
}

/// The changes of watched keys.
#[async_trait]
pub(crate) trait Changes: Send {
    /// Waits for the next changes. Cancel-safe. A lost connection is no error, and is resumed.
    async fn next(&mut self) -> Result<Vec<Event>, WatchError>;
}

/// What a server tells of itself; a value that it does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ServerFacts {
    /// The address, as the user gave it.
    pub(crate) endpoint: String,
    /// `rallypoint` or `etcd`.
    pub(crate) kind: Option<&'static str>,
    /// The version of etcd that it is, or conforms to.
    pub(crate) version: Option<String>,
    /// The newest revision.
    pub(crate) revision: Option<i64>,
    /// The size of the store in bytes.
    pub(crate) db_size: Option<i64>,
    /// The number of leases.
    pub(crate) leases: Option<usize>,
    /// The number of keys of all runs.
    pub(crate) keys: Option<i64>,
    /// The number of watches.
    pub(crate) watchers: Option<usize>,
    /// The problems that it reports.
    pub(crate) problems: Vec<String>,
}

/// Reads the runs below a prefix.
pub(crate) struct RunReader<K: ?Sized> {
    pub(crate) keys: Arc<K>,
    /// The prefix of the keys of all runs.
    pub(crate) prefix: String,
}

impl<K: KeySpace + ?Sized> RunReader<K> {
    /// The keys of a run.
    pub(crate) fn of(&self, run: &str) -> Keys {
        Keys::new(&self.prefix, run)
    }

    /// The run whose document a change is about; `None` for other keys, such as those of stores.
    pub(crate) fn changed<'a>(&self, event: &'a Event) -> Option<&'a str> {
        let run = Keys::run_of(&self.prefix, &event.kv.key)?;
        self.of(run).parse(&event.kv.key).map(|_| run)
    }

    /// Returns when the server does not answer, and why. A watch waits for it without a word.
    pub(crate) async fn until_away(&self) -> ClientError {
        let all = Keys::runs(&self.prefix, None);
        loop {
            sleep(LOOK).await;
            if let Err(error) = self.keys.answers(&all).await {
                return error;
            }
        }
    }

    /// The ids of all runs, in the order of their keys: one small request for each.
    pub(crate) async fn runs(&self) -> Result<Vec<String>, ClientError> {
        let (mut runs, mut last) = (Vec::new(), None::<KeyValue>);
        loop {
            let range = Keys::runs(&self.prefix, last.as_ref().map(|kv| kv.key.as_ref()));
            let range = Range { limit: 1, keys_only: true, ..Range::new(range) };
            let found = self.keys.read(Txn::reading([range])).await?;
            let Some(kv) = all(found).pop() else { return Ok(runs) };
            runs.extend(Keys::run_of(&self.prefix, &kv.key).map(str::to_owned));
            last = Some(kv);
        }
    }

    /// The status of all runs, without leases.
    pub(crate) async fn statuses(&self) -> Result<Vec<RunStatus>, ClientError> {
        let mut found = Vec::new();
        for run in self.runs().await? {
            let keys = self.of(&run);
            let kvs = self.documents(&keys).await?;
            found.push(RunStatus::new(&run, &keys, &kvs, &BTreeMap::new()));
        }
        Ok(found)
    }

    /// A run, with the leases of its nodes.
    pub(crate) async fn run(&self, run: &str) -> Result<RunView, ClientError> {
        let keys = self.of(run);
        let kvs = self.documents(&keys).await?;
        let margins = self.leases(leases_of(&keys, &kvs)).await?;
        let status = RunStatus::new(run, &keys, &kvs, &margins);
        let leases = node_leases(&keys, &kvs).map(|(id, lease)| (id.to_owned(), lease)).collect();
        Ok(RunView { status, leases })
    }

    /// The documents of a run, and the membership of its rounds, all of one revision.
    pub(crate) async fn documents(&self, keys: &Keys) -> Result<Vec<KeyValue>, ClientError> {
        loop {
            let found = self.keys.read(Txn::reading(keys.documents().map(Range::new))).await?;
            let revision = found.revision;
            let mut kvs = all(found);
            let rounds = RunStatus::rounds_of(keys, &kvs);
            let ranges: Vec<Range> = rounds
                .iter()
                .flat_map(|round| keys.membership(*round))
                .map(|range| Range { revision, ..Range::new(range) })
                .collect();
            if ranges.is_empty() {
                return Ok(kvs);
            }
            match self.keys.read(Txn::reading(ranges)).await {
                Ok(found) => {
                    kvs.extend(all(found));
                    return Ok(kvs);
                }
                // The store was compacted between the two reads.
                Err(ClientError::Kv(KvError::Compacted)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The margins of these leases, as far as they exist.
    pub(crate) async fn leases(
        &self,
        leases: impl IntoIterator<Item = LeaseId>,
    ) -> Result<BTreeMap<LeaseId, LeaseMargin>, ClientError> {
        let ask = |lease: LeaseId| async move {
            let status = self.keys.lease(lease).await?;
            Ok(status.map(|status| (lease, LeaseMargin::from(&status))))
        };
        let asked = futures_util::stream::iter(leases.into_iter().map(ask));
        let answers: Vec<Result<_, ClientError>> = asked.buffer_unordered(AT_ONCE).collect().await;
        answers.into_iter().filter_map(Result::transpose).collect()
    }
}

/// A run as it was read.
pub(crate) struct RunView {
    pub(crate) status: RunStatus,
    /// The leases of its nodes, by the ids of the nodes.
    leases: BTreeMap<String, LeaseId>,
}

impl RunView {
    /// The leases of its nodes: renewals are no changes of keys, so a watch does not tell them.
    pub(crate) fn leases(&self) -> Vec<LeaseId> {
        self.leases.values().copied().collect()
    }

    /// Takes margins that were read later. A lease that is gone has none.
    pub(crate) fn set_margins(&mut self, margins: &BTreeMap<LeaseId, LeaseMargin>) {
        for node in &mut self.status.nodes {
            let lease = self.leases.get(&node.id);
            node.lease = lease.and_then(|lease| margins.get(lease)).copied();
        }
    }
}

/// Whether the server has the run: a run that it does not have has an empty status.
pub(crate) fn is_known(run: &RunStatus) -> bool {
    run.state != RunState::None || run.round != 0 || !run.nodes.is_empty()
}

/// The leases of the nodes of a run.
pub(crate) fn leases_of<'a>(
    keys: &'a Keys,
    kvs: &'a [KeyValue],
) -> impl Iterator<Item = LeaseId> + 'a {
    node_leases(keys, kvs).map(|(_, lease)| lease)
}

/// The ids of the nodes of a run, and their leases.
fn node_leases<'a>(
    keys: &'a Keys,
    kvs: &'a [KeyValue],
) -> impl Iterator<Item = (&'a str, LeaseId)> + 'a {
    let of_node = |kv: &'a KeyValue| match keys.parse(&kv.key) {
        Some(RunKey::Node(id)) if kv.lease != 0 => Some((id, kv.lease)),
        _ => None,
    };
    kvs.iter().filter_map(of_node)
}

fn all(found: TxnResult) -> Vec<KeyValue> {
    let kvs = |result| match result {
        OpResult::Range(range) => range.kvs,
        _ => Vec::new(),
    };
    found.results.into_iter().flat_map(kvs).collect()
}
