//! The job's restarts, and who is about to leave: one document that all nodes of the run share.

use std::future::Future;
use std::time::Duration;

use rallypoint_core::agent::{Departure, RestartAnswer, RestartBudget};
use rallypoint_core::kv::{
    Compare, Event, EventKind, KeyRange, KeyValue, LeaseId, Op, Put, Txn, Watch,
};
use rallypoint_core::rendezvous::documents::{decode, encode};
use rallypoint_core::rendezvous::keys::Keys;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::client::{Client, ClientError};
use crate::log_target::LAUNCH;

/// How long to wait before a server is asked again: at first, and in the end.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The budget, and how many restarts it allows.
pub(super) struct RestartCounter {
    max: u32,
    client: Client,
    key: String,
    lease: LeaseId,
    known: watch::Receiver<RestartBudget>,
    _following: AbortOnDropHandle<()>,
}

impl RestartCounter {
    /// The one of the run that has these keys.
    pub(super) fn new(client: &Client, keys: &Keys, max: u32) -> Self {
        let (client, key) = (client.clone(), keys.restarts());
        let (sender, known) = watch::channel(RestartBudget::default());
        let following = tokio::spawn(follow(client.clone(), key.clone(), sender));
        let _following = AbortOnDropHandle::new(following);
        Self { max, client, key, lease: keys.run_lease(), known, _following }
    }

    /// Follows what is consumed, on this node and on others.
    pub(super) fn changes(&self) -> watch::Receiver<RestartBudget> {
        self.known.clone()
    }

    /// Asks for a restart after a failure in `round`, whose workers have lived so long, until there is an answer.
    pub(super) async fn consume(&self, round: u64, blame: &str, lived: Duration) -> RestartAnswer {
        self.update(|budget| budget.consume(round, self.max, blame, lived)).await
    }

    /// Gives back what was asked for in `round`.
    pub(super) async fn refund(&self, round: u64, why: &str) {
        self.update(|budget| (budget.refund(round, why), ())).await;
    }

    /// Tells the other nodes of the group of `round` that this one stops its workers at this time, and why.
    pub(super) async fn announce(&self, round: u64, stops_at: Instant, why: &str) {
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

    /// How many restarts were used before `round`.
    pub(super) async fn used_before(&self, round: u64) -> u32 {
        self.update(|budget| (budget.clone(), budget.used_before(round))).await
    }

    /// Puts in force what `change` makes of the budget, and returns what it says of it.
    async fn update<T>(&self, change: impl Fn(&RestartBudget) -> (RestartBudget, T)) -> T {
        again(|| self.try_update(&change)).await
    }

    /// What is left of it if the server has forgotten: how many were used, and how soon. Its rounds begin anew.
    fn remembered(&self) -> RestartBudget {
        let RestartBudget { used, short_lives, .. } = *self.known.borrow();
        RestartBudget { used, short_lives, ..RestartBudget::default() }
    }

    /// Once. Nothing if another node was quicker. It may have been carried out also if it failed; to do it
    /// twice makes no difference.
    async fn try_update<T>(
        &self,
        change: &impl Fn(&RestartBudget) -> (RestartBudget, T),
    ) -> Result<Option<T>, ClientError> {
        let found = self.client.range(KeyRange::key(self.key.clone())).await?;
        let found = found.kvs.first();
        let budget = found.map_or_else(|| self.remembered(), read);
        let (next, said) = change(&budget);
        // What only this node remembers, the others must know as well.
        let is_known = found.is_some() || budget.used == 0;
        if next == budget && is_known {
            return Ok(Some(said));
        }
        let unchanged = match found {
            Some(kv) => Compare::unchanged_since(self.key.clone(), kv.mod_revision),
            None => Compare::absent(self.key.clone()),
        };
        let put = Put::new(self.key.clone(), encode(&next)).on_lease(self.lease);
        let done = self.client.txn(Txn::when([unchanged]).then([Op::Put(put)])).await?;
        Ok(done.succeeded.then_some(said))
    }
}

/// What stands there. What cannot be read was not written by a launcher, and counts as nothing.
fn read(kv: &KeyValue) -> RestartBudget {
    decode(&kv.key, &kv.value).unwrap_or_else(|error| {
        tracing::warn!(target: LAUNCH, %error, "the count of restarts begins anew");
        RestartBudget::default()
    })
}

/// Tries until it has an answer. Whoever waits for it can give up at any time.
async fn again<T, F>(mut attempt: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<Option<T>, ClientError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Ok(Some(done)) => return done,
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(
                    target: LAUNCH,
                    %error, "the count of restarts could not be reached"
                );
                sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
        }
    }
}

/// Keeps up with the document: watches it, then reads it, and begins anew when the watch cannot go on.
async fn follow(client: Client, key: String, known: watch::Sender<RestartBudget>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let range = KeyRange::key(key.clone());
        if let Ok(mut watcher) = client.watch([Watch::new(range.clone())]).await
            && let Ok(found) = client.range(range).await
        {
            pause = FIRST_PAUSE;
            if let Some(kv) = found.kvs.first() {
                known.send_replace(read(kv));
            }
            while let Ok(batch) = watcher.next().await {
                // It goes only with the run, or with a server that has forgotten everything.
                let news = |event: &&Event| {
                    event.kind == EventKind::Put && event.kv.mod_revision > found.revision
                };
                if let Some(event) = batch.events.iter().rfind(news) {
                    known.send_replace(read(&event.kv));
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

#[cfg(test)]
mod tests;
