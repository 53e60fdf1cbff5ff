//! A hang: whether the workers make progress, and the report of where the workers of all nodes are.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use rallypoint_core::agent::stacks::{HangDocument, HangReport, NodeStacks, OddNodes};
use rallypoint_core::agent::{AgentInput, HangFinding, HangRequest, NodeGroup, OnHang};
use rallypoint_core::kv::Put;
use rallypoint_core::rendezvous::documents::encode;
use rallypoint_core::rendezvous::keys::Keys;
use rallypoint_core::rendezvous::keys::agent::stacks as stacks_key;
use tokio::time::{Instant, timeout, timeout_at};

use super::peers::Peers;
use super::stacks::StackTargets;
use super::workers::ProgressSigns;
use crate::client::Client;
use crate::log_target::LAUNCH;
use crate::store::Store;
use crate::util::blocking::blocking;

/// The time limit for the stacks of one node.
const STACKS: Duration = Duration::from_secs(5);

/// The time limit for the answers of all nodes, from the request on.
const ANSWERS: Duration = Duration::from_secs(10);

/// The time limit for reading signs of progress, which may be on a network file system.
const LOOK: Duration = Duration::from_secs(5);

/// The least time to read an answer: nodes that do not answer must not use up the time of those that have.
const GRACE: Duration = Duration::from_millis(100);

/// How many answers are read at the same time.
const AT_ONCE: usize = 64;

/// The last sign of progress of the workers, or `None` if there is none. `is_first`: whether the node has rank 0.
/// `known`: the last sign that was seen, which stays the last one if the signs cannot be read in time.
pub(crate) async fn latest_sign(
    signs: Arc<Mutex<ProgressSigns>>,
    is_first: bool,
    known: Option<std::time::Instant>,
) -> Option<std::time::Instant> {
    let look = move || unless_busy(&signs).map(|mut signs| signs.latest(is_first));
    match timeout(LOOK, blocking(look)).await {
        Ok(Some(latest)) => latest,
        Ok(None) | Err(_) => {
            tracing::warn!(target: LAUNCH, waited = ?LOOK, "signs of progress take too long to be read");
            known
        }
    }
}

/// The signs, unless an earlier look waits for a file system. One thread waits there, and not one for each look.
pub(super) fn unless_busy(signs: &Mutex<ProgressSigns>) -> Option<MutexGuard<'_, ProgressSigns>> {
    match signs.try_lock() {
        Ok(signs) => Some(signs),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The steps of the workers' last beats, as far as they can be read in time.
async fn steps(signs: Arc<Mutex<ProgressSigns>>) -> Vec<Option<u64>> {
    let read = move || unless_busy(&signs).map(|signs| signs.steps()).unwrap_or_default();
    timeout(LOOK, blocking(read)).await.unwrap_or_default()
}

/// Takes the stacks of this node's workers and publishes them in the round's store. Rank 0 reports those of all nodes
/// instead, also to the run, and returns what it found.
pub(crate) async fn answer(
    targets: StackTargets,
    signs: Option<Arc<Mutex<ProgressSigns>>>,
    (group, store): (NodeGroup, Arc<dyn Store>),
    (client, keys): (Client, Keys),
    request: HangRequest,
) -> Option<(HangReport, OddNodes)> {
    let deadline = Instant::now() + ANSWERS;
    let steps = async {
        match signs {
            Some(signs) => steps(signs).await,
            None => Vec::new(),
        }
    };
    let stacks = async {
        let targets = targets.with_debug_servers(&group.store).await;
        targets.take(STACKS).await
    };
    let (mut stacks, steps) = tokio::join!(stacks, steps);
    for (worker, step) in stacks.workers.iter_mut().zip(steps) {
        worker.step = step;
    }
    if group.rank == 0 {
        let (report, odd) = gather(stacks, &group, store.as_ref(), &request, deadline).await;
        tracing::warn!(target: LAUNCH, "{report}");
        publish(&client, &keys, &HangDocument::reported(&request, &report, &odd)).await;
        return Some((report, odd));
    }
    let key = stacks_key(request.number, group.rank);
    let publish = store.set(key.as_bytes(), stacks.encode().into());
    match timeout_at(deadline, publish).await {
        Ok(Ok(())) => tracing::info!(
            target: LAUNCH,
            "the workers of {} make no progress; the node of rank 0 reports where all workers are",
            request.host
        ),
        Ok(Err(error)) => {
            tracing::warn!(target: LAUNCH, %error, "{}", described(&stacks));
        }
        Err(_) => tracing::warn!(target: LAUNCH, "{}", described(&stacks)),
    }
    None
}

/// Leaves the report in the run, for operators. The log has it, too, so a server that does not answer is not waited for.
async fn publish(client: &Client, keys: &Keys, report: &HangDocument) {
    let put = Put::new(keys.hang(), encode(report)).on_lease(keys.run_lease());
    if let Err(error) = client.with_timeout(STACKS).put(put).await {
        tracing::debug!(target: LAUNCH, %error, "the report of a hang could not be written");
    }
}

/// [`answer`] of a launcher, whose agent decides what follows.
pub(super) async fn answer_for_agent(
    targets: StackTargets,
    signs: Option<Arc<Mutex<ProgressSigns>>>,
    (group, store, peers): (NodeGroup, Arc<dyn Store>, Arc<Peers>),
    request: HangRequest,
) -> Option<AgentInput> {
    let HangRequest { round, number, .. } = request;
    let (is_first, deadline) = (group.rank == 0, Instant::now() + ANSWERS);
    let spares = async {
        match is_first {
            true => timeout_at(deadline, peers.spares()).await.unwrap_or_default(),
            false => 0,
        }
    };
    let run = (peers.run().client.clone(), peers.run().keys.clone());
    let answered = answer(targets, signs, (group, store), run, request);
    let (found, spares) = tokio::join!(answered, spares);
    let (report, odd) = found?;
    let finding = HangFinding { round, number, headline: report.headline(), odd, spares };
    Some(AgentInput::HangReported(finding))
}

/// The stacks of this node, for a log that no report of rank 0 will have.
fn described(stacks: &NodeStacks) -> String {
    format!("where the workers are could not be published: {}", stacks.describe())
}

/// The report of all nodes, those that answer until the deadline and the ranks of those that do not; and the odd nodes.
async fn gather(
    own: NodeStacks,
    group: &NodeGroup,
    store: &dyn Store,
    request: &HangRequest,
    deadline: Instant,
) -> (HangReport, OddNodes) {
    let answers = stream::iter(1..group.nodes).map(|rank| async move {
        let key = stacks_key(request.number, rank);
        let until = deadline.max(Instant::now() + GRACE);
        let found = timeout_at(until, store.get(key.as_bytes())).await;
        let found = found.ok().and_then(|found| found.ok());
        (rank, found.and_then(|found| NodeStacks::decode(&found)))
    });
    let mut answers = answers.buffer_unordered(AT_ONCE);
    let (mut nodes, mut missing) = (vec![own], Vec::new());
    while let Some((rank, answer)) = answers.next().await {
        match answer {
            Some(stacks) => nodes.push(stacks),
            None => missing.push(rank),
        }
    }
    missing.sort_unstable();
    (HangReport::new(request, &nodes, &missing), OddNodes::of(&nodes, missing.len()))
}

/// Logs which nodes are to blame for a hang, and what helps if nothing follows by itself. `on_hang` is `None` in the agent
/// of another launcher, which has no such option.
pub(crate) fn log_odd(odd: &OddNodes, on_hang: Option<OnHang>, run_id: &str) {
    let (hosts, reason) = (odd.hosts(), &odd.reason);
    let Some(node) = odd.nodes.first() else {
        tracing::warn!(target: LAUNCH, "no node is to blame, and the job stays as it is: {reason}");
        return;
    };
    let evict = format!("; `rallypoint evict {run_id} {}` lets the job go on without it", node.id);
    let remedy = match on_hang {
        Some(OnHang::Restart { .. }) => String::new(),
        Some(OnHang::Report) => evict + ", and --on-hang restart does so by itself",
        None => evict,
    };
    tracing::warn!(target: LAUNCH, "the odd node is {hosts}: {reason}{remedy}");
}

/// Logs where workers are that do not stop, before they are killed.
pub(crate) async fn before_the_kill(targets: StackTargets, limit: Duration) {
    let left: BTreeSet<u32> = targets.left().collect();
    let mut stacks = targets.take(limit).await;
    stacks.workers.retain(|worker| left.contains(&worker.rank));
    tracing::warn!(target: LAUNCH, "workers that do not stop, and are about to be killed: {}", stacks.describe());
}

#[cfg(test)]
mod tests;
