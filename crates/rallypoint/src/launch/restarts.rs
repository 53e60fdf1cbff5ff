//! The restart counter: the job's restarts and announced departures, in one document that all nodes of the run share.

use std::time::Duration;

use rallypoint_core::agent::{
    Departure, HangOver, HangRequest, HangRestart, Operation, OperatorAction, RestartAnswer,
    RestartBudget,
};
use rallypoint_core::kv::{Compare, KeyRange, KeyValue, LeaseId, Op, Put, Txn};
use rallypoint_core::rendezvous::documents::{decode, encode};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, ClientError};
use crate::log_target::LAUNCH;
use crate::util::clock::display_time;
use crate::util::follow::{FollowedKey, KeyState};
use crate::util::retry::{SERVER_BACKOFF, retry_forever};

/// The shared restart budget, and its limit.
pub(crate) struct RestartCounter {
    max: u32,
    client: Client,
    key: String,
    lease: LeaseId,
    known: FollowedKey<RestartBudget>,
}

impl RestartCounter {
    /// The counter of the run with these keys.
    pub(crate) fn new(client: &Client, keys: &Keys, max: u32) -> Self {
        let (client, key) = (client.clone(), keys.restarts());
        // The document is deleted only with the run, or by a server that has lost its state; what was known before
        // stays in force then.
        let decode = |known: &RestartBudget, state: KeyState<'_>| match state {
            KeyState::Present(kv) => Some(known.remembered_in(read(kv))),
            KeyState::Absent(_) => None,
        };
        let known = FollowedKey::new(client.clone(), key.clone(), RestartBudget::default(), decode);
        Self { max, client, key, lease: keys.run_lease(), known }
    }

    /// The budget as it changes, by this node and by others.
    pub(crate) fn changes(&self) -> watch::Receiver<RestartBudget> {
        self.known.latest().clone()
    }

    /// Asks for a restart after a failure in `round`, whose workers `lived` this long. Retries until there is an answer.
    pub(crate) async fn consume(&self, round: u64, blame: &str, lived: Duration) -> RestartAnswer {
        self.update(|budget| budget.consume(round, self.max, blame, lived)).await
    }

    /// Refunds the restart of `round`.
    pub(crate) async fn refund(&self, round: u64, why: &str) {
        self.update(|budget| (budget.refund(round, why), ())).await;
    }

    /// Announces to the other nodes of the group of `round` that this one stops its workers at this time, and why.
    pub(crate) async fn announce(&self, round: u64, stops_at: Instant, why: &str) {
        let departure = || {
            let left = stops_at.saturating_duration_since(Instant::now()).as_millis();
            Departure {
                round,
                millis: u64::try_from(left).unwrap_or(u64::MAX),
                why: why.to_owned(),
            }
        };
        self.update(|budget| (budget.announce(departure()), ())).await;
    }

    /// Asks all nodes of the group for the stacks of their workers.
    pub(crate) async fn request_stacks(&self, request: HangRequest) {
        let since = Some(display_time().minus(request.silent()));
        let request = HangRequest { since, ..request };
        self.update(|budget| (budget.request_stacks(request.clone()), ())).await;
    }

    /// Says that the hang is over that this node has reported.
    pub(crate) async fn end_hang(&self, over: HangOver) {
        self.update(|budget| (budget.end_hang(over), ())).await;
    }

    /// Restarts the job, which hangs, and evicts the odd nodes in the name of the node `by`. Retries until there is an
    /// answer.
    pub(super) async fn restart_hung(&self, restart: &HangRestart, by: &str) -> RestartAnswer {
        let eviction = |node: &String| OperatorAction {
            operation: Operation::Evict { node: node.clone() },
            by: by.to_owned(),
            reason: restart.blame.clone(),
            round: restart.round,
            at: Some(display_time()),
        };
        let evictions: Vec<OperatorAction> = restart.without.iter().map(eviction).collect();
        self.update(|budget| budget.restart_hung(restart, self.max, &evictions)).await
    }

    /// The number of restarts used before `round`. One node of the group, `writes_limit`, also writes the limit, for
    /// operators.
    pub(crate) async fn used_before(&self, round: u64, writes_limit: bool) -> u32 {
        let limited = |budget: &RestartBudget| match writes_limit {
            true => budget.limited_to(self.max),
            false => budget.clone(),
        };
        self.update(|budget| (limited(budget), budget.used_before(round))).await
    }

    /// Applies `change` to the budget by compare-and-set, and returns its result.
    async fn update<T>(&self, change: impl Fn(&RestartBudget) -> (RestartBudget, T)) -> T {
        let failed = |error: ClientError| {
            tracing::debug!(target: LAUNCH, %error, "the restart budget could not be reached");
        };
        loop {
            let updated = retry_forever(SERVER_BACKOFF, || self.try_update(&change), failed);
            // Otherwise another node was faster.
            if let Some(said) = updated.await {
                return said;
            }
        }
    }

    /// One attempt. `None` if another node wrote first. A failed attempt may have been executed; the change is
    /// idempotent.
    async fn try_update<T>(
        &self,
        change: &impl Fn(&RestartBudget) -> (RestartBudget, T),
    ) -> Result<Option<T>, ClientError> {
        let found = self.client.range(KeyRange::key(self.key.clone())).await?;
        let found = found.kvs.first();
        let stored = found.map(read).unwrap_or_default();
        let (next, said) = change(&self.known.latest().borrow().remembered_in(stored.clone()));
        // After the server lost its state, the remembered counts are written even without a change.
        if next == stored {
            return Ok(Some(said));
        }
        // A document without a limit is none of a launcher.
        let next = next.limited_to(self.max);
        let unchanged = match found {
            Some(kv) => Compare::unchanged_since(self.key.clone(), kv.mod_revision),
            None => Compare::absent(self.key.clone()),
        };
        let put = Put::new(self.key.clone(), encode(&next)).on_lease(self.lease);
        let done = self.client.txn(Txn::when([unchanged]).then([Op::Put(put)])).await?;
        Ok(done.succeeded.then_some(said))
    }
}

/// Decodes the budget. An undecodable value was not written by a launcher, and counts as empty.
fn read(kv: &KeyValue) -> RestartBudget {
    decode(&kv.key, &kv.value).unwrap_or_else(|error| {
        tracing::warn!(target: LAUNCH, %error, "the restart budget is unreadable, and starts again from 0");
        RestartBudget::default()
    })
}

#[cfg(test)]
mod tests;
