//! The loop that watches the workers of one start, and answers requests for their stacks.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use rallypoint_core::agent::{
    HangChange, HangOver, HangPolicy, HangRequest, HangWatch, NodeGroup, RestartBudget,
};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::keys::Keys;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::Client;
use crate::launch::hangs;
use crate::launch::restarts::RestartCounter;
use crate::launch::stacks::StackTargets;
use crate::launch::workers::ProgressSigns;
use crate::log_target::LAUNCH;
use crate::process::is_alive;
use crate::store::Store;
use crate::util::optional::{at, ready};

/// Watches the workers of one start.
pub(super) struct HangLoop {
    origin: Instant,
    watch: HangWatch,
    signs: Arc<Mutex<ProgressSigns>>,
    targets: StackTargets,
    pids: Vec<u32>,
    group: NodeGroup,
    store: Arc<dyn Store>,
    run: (Client, Keys),
    run_id: String,
    restarts: Arc<RestartCounter>,
    budget: watch::Receiver<RestartBudget>,
    /// The last request of the round that this node has answered, or answers.
    answered: Option<HangRequest>,
    /// The last hang of the round that is over.
    ended: Option<HangOver>,
    /// The last sign of progress that was seen.
    last_sign: Option<Time>,
}

impl HangLoop {
    pub(super) fn new(
        policy: HangPolicy,
        signs: ProgressSigns,
        targets: StackTargets,
        pids: Vec<u32>,
        (group, store): (NodeGroup, Arc<dyn Store>),
        (run, run_id): ((Client, Keys), String),
        restarts: Arc<RestartCounter>,
    ) -> Self {
        let origin = Instant::now();
        let budget = restarts.changes();
        let (watch, signs) = (HangWatch::new(policy, Time::ZERO), Arc::new(Mutex::new(signs)));
        let (answered, ended, last_sign) = (None, None, None);
        Self {
            origin,
            watch,
            signs,
            targets,
            pids,
            group,
            store,
            run,
            run_id,
            restarts,
            budget,
            answered,
            ended,
            last_sign,
        }
    }

    /// Runs until it is dropped.
    pub(super) async fn run(mut self) {
        let mut looking: Option<BoxFuture<'static, Option<Time>>> = None;
        let mut asking: Option<BoxFuture<'static, ()>> = None;
        let mut answering: Option<BoxFuture<'static, ()>> = None;
        let mut is_followed = true;
        loop {
            if let Some(request) = self.wanted() {
                answering = Some(self.answer(request));
            }
            let look_at = self.watch.next_look().map(|at| self.origin + at);
            tokio::select! {
                changed = self.budget.changed(), if is_followed => is_followed = changed.is_ok(),
                latest = ready(&mut looking) => {
                    looking = None;
                    self.last_sign = latest;
                    asking = self.seen(latest).or(asking);
                }
                () = ready(&mut asking) => asking = None,
                () = ready(&mut answering) => answering = None,
                () = at(look_at) => if self.watch.is_due(self.origin.elapsed()) {
                    looking = Some(self.look());
                },
            }
        }
    }

    /// Looks for signs of progress.
    fn look(&self) -> BoxFuture<'static, Option<Time>> {
        let (origin, signs, is_first) = (self.origin, self.signs.clone(), self.group.rank == 0);
        let known = self.last_sign.map(|at| (origin + at).into_std());
        Box::pin(async move {
            let latest = hangs::latest_sign(signs, is_first, known).await?;
            Some(Instant::from_std(latest).saturating_duration_since(origin))
        })
    }

    /// Asks all nodes for their stacks, if this is a hang, or says that the last one is over.
    fn seen(&mut self, latest: Option<Time>) -> Option<BoxFuture<'static, ()>> {
        let (round, restarts) = (self.group.round, self.restarts.clone());
        let (number, silent) = match self.watch.seen(self.origin.elapsed(), latest)? {
            HangChange::Began { number, silent } => (number, silent),
            HangChange::Over { number } => {
                tracing::info!(target: LAUNCH, "the workers of this node make progress again");
                let over = HangOver { round, number };
                return Some(Box::pin(async move { restarts.end_hang(over).await }));
            }
        };
        // Workers that have exited make no progress, and need not.
        if !self.pids.iter().any(|pid| is_alive(*pid)) {
            return None;
        }
        tracing::warn!(
            target: LAUNCH,
            ?silent, "no worker of this node makes progress; all nodes are asked where their workers are"
        );
        let millis = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let host = self.targets.host.clone();
        let request = HangRequest { round, number, host, millis, since: None };
        Some(Box::pin(async move { restarts.request_stacks(request).await }))
    }

    /// A request for the stacks of this group that has no answer yet. Also takes in the end of a hang.
    fn wanted(&mut self) -> Option<HangRequest> {
        let (now, round) = (self.origin.elapsed(), self.group.round);
        let (hang, over) = {
            let budget = self.budget.borrow();
            (budget.hang.clone(), budget.hang_over)
        };
        let hang = hang.filter(|request| request.round == round);
        let hang = hang.filter(|request| self.answered.as_ref() != Some(request));
        if let Some(hang) = &hang {
            self.watch.told(now, hang, &self.targets.host);
            self.answered = Some(hang.clone());
        }
        let over = over.filter(|over| over.round == round && self.ended != Some(*over));
        if let Some(over) = over {
            self.watch.over(now, over.number);
            self.ended = Some(over);
        }
        hang
    }

    fn answer(&self, request: HangRequest) -> BoxFuture<'static, ()> {
        let (targets, signs) = (self.targets.clone(), Some(self.signs.clone()));
        let peers = (self.group.clone(), self.store.clone());
        let answer = hangs::answer(targets, signs, peers, self.run.clone(), request);
        let run_id = self.run_id.clone();
        // What follows from the report is for operators to decide: torchrun restarts by its own rules.
        Box::pin(async move {
            if let Some((_, odd)) = answer.await {
                hangs::log_odd(&odd, None, &run_id);
            }
        })
    }
}
