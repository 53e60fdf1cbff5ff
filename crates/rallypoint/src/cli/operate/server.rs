//! The server whose runs an operator looks at.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rallypoint_core::agent::{OperatorAction, RestartBudget};
use rallypoint_core::kv::{Compare, KeyRange, Op, Put, Txn, TxnResult};
use rallypoint_core::rendezvous::documents::{decode, encode};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::{Operator, OperatorStep};
use rallypoint_core::status::RunStatus;
use tokio::time::{Instant, timeout_at};

use crate::cli::AnyError;
use crate::client::{Client, ClientError, ClientOptions};
use crate::config::{EtcdOptions, RALLYPOINT_BACKEND};
use crate::embedded::{RendezvousConfig, ThisHost};
use crate::launch::job::SECRET;
use crate::rendezvous::{PASSWORD, RendezvousParameters, add_password, parse_config};
use crate::runs::{RunReader, RunView, no_answer};

/// The time limit for the first answer of a server.
const FIRST_ANSWER: Duration = Duration::from_secs(3);

/// The time limit for an answer of a server.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time limit for further answers to the question which of several hosts serves.
const QUESTION: Duration = Duration::from_secs(1);

/// Attempts at a write that others are faster with each time.
const MOST_ATTEMPTS: usize = 16;

/// Where the server is, and how it is reached.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// Rendezvous server: one host or those that may serve, on port 29400 by default; or the members of an etcd cluster,
    /// each with its port
    #[arg(long, value_name = "HOST[:PORT],...")]
    rdzv_endpoint: String,
    /// Backend options, as for rallypoint run
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    rdzv_conf: String,
}

/// A server with runs.
pub(super) struct RunServer {
    pub(super) client: Client,
    pub(super) reader: RunReader<Client>,
    /// The endpoint, as messages name it.
    pub(super) endpoint: String,
}

/// How a server is reached.
pub(crate) struct Reach {
    pub(crate) options: ClientOptions,
    /// The prefix of the keys of all runs.
    pub(crate) prefix: String,
    /// The endpoint, as messages name it.
    pub(crate) endpoint: String,
}

impl Reach {
    /// Which of several hosts serves a job. Others may stand by or be gone, and a client that begins with those waits for
    /// them. The members of an etcd cluster do not know the question: none of them.
    async fn serving_host(&self) -> Option<usize> {
        if self.options.endpoints.len() < 2 {
            return None;
        }
        let endpoints = self.options.endpoints.iter().enumerate();
        let mut asked: FuturesUnordered<_> =
            endpoints.map(|(host, url)| self.ask(host, url)).collect();
        let (begun, mut serving) = (Instant::now(), None);
        // A host that is gone does not answer, and is not waited for when another one serves.
        while let Ok(Some(answer)) = match serving {
            None => timeout_at(begun + FIRST_ANSWER, asked.next()).await,
            Some(_) => timeout_at(begun + QUESTION, asked.next()).await,
        } {
            serving = serving.max(answer);
        }
        serving.map(|(_, Reverse(host))| host)
    }

    /// The last group of the server of this host, and the host; nothing if it does not serve a job.
    async fn ask(&self, host: usize, url: &str) -> Option<(u64, Reverse<usize>)> {
        let options = ClientOptions { endpoints: vec![url.to_owned()], ..self.options.clone() };
        let client = Client::connect(options).await.ok()?.with_timeout(FIRST_ANSWER);
        let formed = client.ask_whether_it_serves().await.ok()??;
        Some((formed, Reverse(host)))
    }
}

impl ServerArgs {
    /// How the server is reached. `run_id` is checked if it is given.
    pub(crate) fn reach(&self, run_id: Option<&str>) -> Result<Reach, AnyError> {
        let (endpoint, run_id) = (self.rdzv_endpoint.as_str(), run_id.unwrap_or("none"));
        let mut parameters = RendezvousParameters::new(RALLYPOINT_BACKEND, endpoint, run_id, 1, 1)?;
        parameters.config = parse_config(&self.rdzv_conf)?;
        add_password(&mut parameters.config, std::env::var(PASSWORD).ok());
        parameters.config.insert("is_host".to_owned(), "false".to_owned());
        let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
        let config =
            RendezvousConfig::from_parameters(parameters, &ThisHost::look(), secret.as_deref())?;
        let options = EtcdOptions::from_parameters(&config.parameters)?;
        let prefix = options.handler.prefix.clone();
        let endpoint = config.parameters.endpoint;
        Ok(Reach { options: options.client_options(), prefix, endpoint })
    }

    /// The server, which has answered.
    pub(super) async fn connect(&self, run_id: Option<&str>) -> Result<RunServer, AnyError> {
        let reach = self.reach(run_id)?;
        let serving = reach.serving_host().await;
        let Reach { mut options, prefix, endpoint } = reach;
        if let Some(host) = serving {
            options.endpoints = vec![options.endpoints.swap_remove(host)];
        }
        let client = Client::connect(options).await?;
        // A user may be allowed to read the keys of runs, and nothing else.
        let key = Keys::new(&prefix, run_id.unwrap_or("none")).active();
        if let Err(error) = client.with_timeout(FIRST_ANSWER).range(KeyRange::key(key)).await {
            return Err(no_answer(&error, &endpoint).await.into());
        }
        let client = client.with_timeout(PATIENCE);
        let reader = RunReader { keys: Arc::new(client.clone()), prefix };
        Ok(RunServer { client, reader, endpoint })
    }
}

impl RunServer {
    pub(super) fn keys(&self, run: &str) -> Keys {
        self.reader.of(run)
    }

    /// The status of all runs, without leases.
    pub(super) async fn statuses(&self) -> Result<Vec<RunStatus>, ClientError> {
        self.reader.statuses().await
    }

    /// A run, with the leases of its nodes.
    pub(super) async fn run(&self, run: &str) -> Result<RunView, ClientError> {
        self.reader.run(run).await
    }

    /// The status of a run, with the leases of its nodes.
    pub(super) async fn status(&self, run: &str) -> Result<RunStatus, ClientError> {
        self.run(run).await.map(|run| run.status)
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
