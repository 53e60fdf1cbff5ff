//! The server whose runs an operator looks at.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use rallypoint_core::agent::{OperatorAction, RestartBudget};
use rallypoint_core::kv::{
    Compare, KeyRange, KeyValue, KvError, LeaseId, Op, OpResult, Put, Range, Txn, TxnResult,
};
use rallypoint_core::rendezvous::documents::{decode, encode};
use rallypoint_core::rendezvous::keys::{Keys, RunKey};
use rallypoint_core::rendezvous::{Operator, OperatorStep};
use rallypoint_core::status::{LeaseMargin, RunStatus};
use tokio::time::timeout;

use crate::cli::AnyError;
use crate::client::{Client, ClientError};
use crate::config::{EtcdOptions, RALLYPOINT_BACKEND};
use crate::doctor::{Obstacle, way};
use crate::embedded::{RendezvousConfig, ThisHost};
use crate::launch::job::SECRET;
use crate::rendezvous::{PASSWORD, RendezvousParameters, add_password, parse_config};

/// The time limit for the first answer of a server.
const FIRST_ANSWER: Duration = Duration::from_secs(3);

/// The time limit for looking at the way to the server.
const WAY: Duration = Duration::from_millis(1500);

/// The time limit for an answer of a server.
const PATIENCE: Duration = Duration::from_secs(10);

/// Leases that are asked for at the same time.
const AT_ONCE: usize = 32;

/// Leases that are asked for at most: each is a request.
const MOST_LEASES: usize = 2048;

/// Attempts at a write that others are faster with each time.
const MOST_ATTEMPTS: usize = 16;

/// Where the server is, and how it is reached.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Rendezvous server: one host, on port 29400 by default, or the members of an etcd cluster, on port 2379
    #[arg(long, value_name = "HOST[:PORT],...")]
    rdzv_endpoint: String,
    /// Backend options, as for rallypoint run
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    rdzv_conf: String,
}

/// A server with runs. Looking at them changes nothing there: an operator is no node, and has no lease.
pub(super) struct RunServer {
    pub(super) client: Client,
    /// The prefix of the keys of all runs.
    pub(super) prefix: String,
}

impl ServerArgs {
    /// The server. `run_id` is checked if it is given.
    pub(super) async fn connect(&self, run_id: Option<&str>) -> Result<RunServer, AnyError> {
        let (endpoint, run_id) = (self.rdzv_endpoint.as_str(), run_id.unwrap_or("none"));
        let mut parameters = RendezvousParameters::new(RALLYPOINT_BACKEND, endpoint, run_id, 1, 1)?;
        parameters.config = parse_config(&self.rdzv_conf)?;
        add_password(&mut parameters.config, std::env::var(PASSWORD).ok());
        parameters.config.insert("is_host".to_owned(), "false".to_owned());
        let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
        let config =
            RendezvousConfig::from_parameters(parameters, &ThisHost::look(), secret.as_deref())?;
        let options = EtcdOptions::from_parameters(&config.parameters)?;
        let client = Client::connect(options.client_options()).await?;
        // A user may be allowed to read the keys of runs, and nothing else.
        let key = Keys::new(&options.handler.prefix, run_id).active();
        answers(&client.with_timeout(FIRST_ANSWER), key, &config.parameters.endpoint).await?;
        let client = client.with_timeout(PATIENCE);
        Ok(RunServer { client, prefix: options.handler.prefix })
    }
}

/// Whether a server answers, which is soon said: the operator has to know before anything else. The cause is told as a
/// launcher tells it that waits for its server.
async fn answers(client: &Client, key: String, servers: &str) -> Result<(), AnyError> {
    match client.range(KeyRange::key(key)).await {
        Err(error) if error.is_transient() && !error.is_tls_error() => {
            let obstacle = Obstacle::of(&error);
            let way = timeout(WAY, way(obstacle, servers)).await.unwrap_or_default();
            let (finding, remedy) = (obstacle.finding(), obstacle.remedy());
            Err(format!("no server answers at {servers}: {finding}{way}. {remedy}").into())
        }
        answered => Ok(answered.map(|_| ())?),
    }
}

impl RunServer {
    pub(super) fn keys(&self, run: &str) -> Keys {
        Keys::new(&self.prefix, run)
    }

    /// The ids of all runs, in the order of their keys: one small request for each.
    pub(super) async fn runs(&self) -> Result<Vec<String>, ClientError> {
        let (mut runs, mut last) = (Vec::new(), None::<KeyValue>);
        loop {
            let range = Keys::runs(&self.prefix, last.as_ref().map(|kv| kv.key.as_ref()));
            let range = Range { limit: 1, keys_only: true, ..Range::new(range) };
            let Some(kv) = self.client.range(range).await?.kvs.pop() else { return Ok(runs) };
            runs.extend(Keys::run_of(&self.prefix, &kv.key).map(str::to_owned));
            last = Some(kv);
        }
    }

    /// The status of all runs, without leases.
    pub(super) async fn statuses(&self) -> Result<Vec<RunStatus>, ClientError> {
        let mut found = Vec::new();
        for run in self.runs().await? {
            found.push(self.read(&run, false).await?);
        }
        Ok(found)
    }

    /// The status of a run, with the leases of its nodes.
    pub(super) async fn status(&self, run: &str) -> Result<RunStatus, ClientError> {
        self.read(run, true).await
    }

    async fn read(&self, run: &str, with_leases: bool) -> Result<RunStatus, ClientError> {
        let keys = self.keys(run);
        let kvs = self.documents(&keys).await?;
        let leases = match with_leases {
            true => self.leases(&keys, &kvs).await?,
            false => BTreeMap::new(),
        };
        Ok(RunStatus::new(run, &keys, &kvs, &leases))
    }

    /// The documents of a run, and the membership of its rounds, all of one revision.
    async fn documents(&self, keys: &Keys) -> Result<Vec<KeyValue>, ClientError> {
        loop {
            let found = self.client.txn(Txn::reading(keys.documents().map(Range::new))).await?;
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
            match self.client.txn(Txn::reading(ranges)).await {
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

    async fn leases(
        &self,
        keys: &Keys,
        kvs: &[KeyValue],
    ) -> Result<BTreeMap<LeaseId, LeaseMargin>, ClientError> {
        let of_node = |kv: &&KeyValue| matches!(keys.parse(&kv.key), Some(RunKey::Node(_)));
        let leases = kvs.iter().filter(of_node).map(|kv| kv.lease).filter(|lease| *lease != 0);
        let ask = |lease: LeaseId| async move {
            let status = self.client.lease_time_to_live(lease, false).await?;
            Ok(status.map(|status| (lease, LeaseMargin::from(&status))))
        };
        let asked = futures_util::stream::iter(leases.take(MOST_LEASES).map(ask));
        let answers: Vec<Result<_, ClientError>> = asked.buffer_unordered(AT_ONCE).collect().await;
        answers.into_iter().filter_map(Result::transpose).collect()
    }

    /// Takes the steps of a command until it is done. True if this changed the run.
    pub(super) async fn operate(
        &self,
        operator: &Operator,
        command: impl Fn(&TxnResult) -> OperatorStep,
    ) -> Result<Option<OperatorStep>, AnyError> {
        let mut found = self.client.txn(operator.read()).await?;
        for _ in 0..MOST_ATTEMPTS {
            match command(&found) {
                OperatorStep::Send(txn) => {
                    found = self.client.txn(txn).await?;
                    if found.succeeded {
                        return Ok(None);
                    }
                }
                over => return Ok(Some(over)),
            }
        }
        Err("the run changes all the time, and the command was refused each time; try again".into())
    }

    /// Records what an operator did, in the document that all launchers of the run follow.
    pub(super) async fn record(
        &self,
        keys: &Keys,
        action: &OperatorAction,
    ) -> Result<(), AnyError> {
        let key = keys.restarts();
        for _ in 0..MOST_ATTEMPTS {
            let found = self.client.range(KeyRange::key(key.clone())).await?;
            let (budget, unchanged) = match found.kvs.first() {
                Some(kv) => {
                    let unchanged = Compare::unchanged_since(key.clone(), kv.mod_revision);
                    (decode(&kv.key, &kv.value)?, unchanged)
                }
                None => (RestartBudget::default(), Compare::absent(key.clone())),
            };
            let recorded = encode(&budget.record(action.clone()));
            let put = Put::new(key.clone(), recorded).on_lease(keys.run_lease());
            let done = self.client.txn(Txn::when([unchanged]).then([Op::Put(put)])).await?;
            if done.succeeded {
                return Ok(());
            }
        }
        Err(format!("{key} changes all the time; try again").into())
    }
}

fn all(found: TxnResult) -> Vec<KeyValue> {
    let kvs = |result| match result {
        OpResult::Range(range) => range.kvs,
        _ => Vec::new(),
    };
    found.results.into_iter().flat_map(kvs).collect()
}
