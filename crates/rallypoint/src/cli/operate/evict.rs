//! `rallypoint evict`: makes a node leave its run.
//!
//! The node stops its workers by itself and then leaves. Its lease is not revoked: that would delete its keys at once,
//! and another node could take its place while its workers still run (invariants L1 and R5).

use std::time::Duration;

use clap::Args;
use rallypoint_core::agent::{Operation, OperatorAction};
use rallypoint_core::kv::{EventKind, KeyRange, Watch};
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::status::{NodeState, NodeStatus, RunStatus};
use tokio::time::timeout;

use super::confirm::{author, confirm};
use super::server::{RunServer, ServerArgs};
use super::status::known;
use super::text::printable;
use super::{block_on, print};
use crate::cli::AnyError;
use crate::util::clock::display_time;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
The node stops its workers, leaves the run and exits with 77, or with 0 if its workers were
done; under torchrun, with 0 in any case. Its group re-forms without it, and no restart is used.
A spare takes its place if there is one. Every node says who evicted it and why. A launcher that is started again on the same host
is a new node, and may join.

NODE is an id as `rallypoint status RUN` lists it, or the name of a host that has one node of
the run.

Examples:
  rallypoint evict --rdzv-endpoint head:29400 job-7 gpu17 --reason 'ECC errors'
  rallypoint evict --rdzv-endpoint head:29400 job-7 gpu17-4711-463a3eea0cfc0958 --yes

Asks on a terminal before it does anything; without a terminal it needs --yes.

Exit codes: 0 the node has left; 1 there is no such node, it has not left in time, or no server
answers; 2 the command line is wrong.";

#[derive(Debug, Args)]
pub(crate) struct Evict {
    /// Run id
    #[arg(value_name = "RUN")]
    run_id: String,
    /// Node: its id, or its host
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Why, in words: every node of the run says it
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Time limit for the node to stop its workers and leave, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    wait: u64,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Evict {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        let Self { run_id, node, server, reason, wait, yes } = self;
        block_on(async {
            let server = server.connect(Some(&run_id)).await?;
            let status = server.status(&run_id).await?;
            known(&status)?;
            let node = find(&status, &node)?;
            let (id, host) = (node.id.clone(), printable(&node.host));
            let shown = printable(&id);
            confirm(
                &format!("Evict node {shown} ({host}) from run {run_id:?}, and stop its workers?"),
                yes,
            )?;
            let keys = server.keys(&run_id);
            let operation = Operation::Evict { node: id.clone() };
            let (by, round, at) = (author(), status.round, Some(display_time()));
            let action = OperatorAction { operation, by, reason, round, at };
            let left = left(&server, &keys, &id, &action);
            match timeout(Duration::from_secs(wait), left).await {
                Ok(left) => left?,
                Err(_) => {
                    return Err(format!(
                        "node {shown} was told to leave, and has not within {wait} s: its workers do not stop, or its \
                         agent hangs; rallypoint status {run_id} shows it"
                    )
                    .into());
                }
            }
            print(&format!("node {shown} has left run {run_id:?}\n"))
        })
    }
}

/// The live node of this id, or the only one of this host.
fn find<'a>(status: &'a RunStatus, named: &str) -> Result<&'a NodeStatus, AnyError> {
    let mut live = status.nodes.iter().filter(|node| node.state != NodeState::Lost);
    if let Some(node) = live.clone().find(|node| node.id == named) {
        return Ok(node);
    }
    let of_host: Vec<&NodeStatus> = live
        .clone()
        .filter(|node| [&node.host, &node.address].contains(&&named.to_owned()))
        .collect();
    let ids = |nodes: &mut dyn Iterator<Item = &NodeStatus>| {
        nodes.map(|node| printable(&node.id)).collect::<Vec<_>>().join(", ")
    };
    match of_host.as_slice() {
        [node] => Ok(node),
        [] => Err(format!(
            "run {:?} has no live node {named:?}; it has {}",
            status.run,
            ids(&mut live)
        )
        .into()),
        several => Err(format!(
            "host {named:?} has several nodes of run {:?}; give the id of one: {}",
            status.run,
            ids(&mut several.iter().copied())
        )
        .into()),
    }
}

/// Tells the node to leave, and waits until it has.
async fn left(
    server: &RunServer,
    keys: &Keys,
    id: &str,
    action: &OperatorAction,
) -> Result<(), AnyError> {
    let key = KeyRange::key(keys.node(id));
    let mut watcher = server.client.watch([Watch::new(key.clone())]).await?;
    server.record(keys, action).await?;
    if server.client.range(key).await?.kvs.is_empty() {
        return Ok(());
    }
    loop {
        let batch = watcher.next().await?;
        if batch.events.iter().any(|event| event.kind == EventKind::Delete) {
            return Ok(());
        }
    }
}
