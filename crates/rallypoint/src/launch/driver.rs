//! The loop between the agent and the world: what happened goes in, what comes out is done.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rallypoint_core::agent::{
    Agent, Exited, Group, Input, NoGroup, Outcome, Output, SIGKILL, Start, Why,
};
use rallypoint_core::kv::Time;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::news::{Known, News};
use super::peers::{Peers, exit_barrier, ranks};
use super::signals::Signals;
use super::waiting::Waiting;
use super::workers::{Crew, Outfit, StartError};
use crate::rendezvous::RendezvousInfo;

/// How long killed workers may take to be gone. The kernel cannot end one that waits for a device.
const DEATH: Duration = Duration::from_secs(10);

/// How long restarts may take at the end to be given back.
const FORGIVING: Duration = Duration::from_secs(1);

/// What an agent is driven with.
pub(super) struct Parts {
    pub(super) agent: Agent,
    pub(super) peers: Arc<Peers>,
    pub(super) signals: Signals,
    pub(super) outfit: Outfit,
    pub(super) waiting: Waiting,
    /// The signal by which workers are told that they will be stopped.
    pub(super) notice_signal: i32,
    /// Every node is known to have the same workers.
    pub(super) identical: bool,
}

/// How it ended, and the workers of the last start.
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) crew: Option<Crew>,
    pub(super) signals: Signals,
}

pub(super) struct Driver {
    parts: Parts,
    origin: Instant,
    news: News,
    /// The group that the node is in, and what it shares.
    group: Option<(Group, RendezvousInfo)>,
    /// The round in which a restart was asked for.
    asked: Option<u64>,
    crew: Option<Crew>,
    stop: Option<Stop>,
    /// What is waited for: one thing at a time.
    errand: Option<BoxFuture<'static, Event>>,
    counting: Option<BoxFuture<'static, Input>>,
    /// The run is being closed.
    closing: Option<AbortOnDropHandle<()>>,
    /// Restarts are being given back, which nobody waits for.
    forgiving: JoinSet<()>,
    outcome: Option<Outcome>,
}

/// Workers that are to go.
struct Stop {
    attempt: u64,
    signal: i32,
    kill_at: Instant,
    /// They were killed, and have until then to be gone.
    give_up_at: Option<Instant>,
}

/// What came of an errand.
enum Event {
    Met(Result<(Group, RendezvousInfo), NoGroup>),
    Started(Crew, Result<(), StartError>),
    Told(Input),
}

impl Driver {
    pub(super) fn new(parts: Parts) -> Self {
        let news = parts.peers.news();
        Self {
            parts,
            origin: Instant::now(),
            news,
            group: None,
            asked: None,
            crew: None,
            stop: None,
            errand: None,
            counting: None,
            closing: None,
            forgiving: JoinSet::new(),
            outcome: None,
        }
    }

    /// Runs until the agent has nothing left to do, and has told the others.
    pub(super) async fn run(mut self) -> End {
        self.handle(Input::Begin);
        let outcome = loop {
            if let Some(outcome) = self.outcome.take() {
                break outcome;
            }
            self.show();
            let wake = self.parts.agent.next_wake().map(|wake| self.origin + wake);
            let kill = self.stop.as_ref().map(|stop| stop.give_up_at.unwrap_or(stop.kill_at));
            let event = tokio::select! {
                biased;
                signal = self.parts.signals.next() => Some(Event::Told(Input::Signal(signal))),
                () = self.news.changed() => None,
                () = at(kill) => self.kill(),
                event = ready(&mut self.errand) => {
                    self.errand = None;
                    Some(event)
                }
                input = ready(&mut self.counting) => {
                    self.counting = None;
                    Some(Event::Told(input))
                }
                // When they are gone, all of their ends have been told before.
                exited = next_exit(&self.crew) => Some(Event::Told(Input::Exited(exited))),
                attempt = gone(&self.crew, self.stop.is_some()) => {
                    self.stop = None;
                    Some(Event::Told(Input::Stopped { attempt }))
                }
                () = at(wake) => Some(Event::Told(Input::Wake)),
                () = self.parts.waiting.tick() => {
                    self.parts.peers.refresh();
                    None
                }
            };
            self.take(event);
        };
        self.parts.waiting.show(None, None);
        self.end().await;
        End { outcome, crew: self.crew, signals: self.parts.signals }
    }

    /// Tells the others what is left to tell. The node leaves last: what it closes must be closed by then.
    async fn end(&mut self) {
        (self.errand, self.counting) = (None, None);
        let forgiven = async { while self.forgiving.join_next().await.is_some() {} };
        if timeout(FORGIVING, forgiven).await.is_err() {
            tracing::debug!("a restart could not be given back in time");
        }
        if let Some(closing) = self.closing.take() {
            let _ = closing.await;
        }
        self.parts.peers.leave().await;
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn take(&mut self, event: Option<Event>) {
        match event {
            None => {}
            Some(Event::Told(input)) => self.handle(input),
            Some(Event::Met(Err(no_group))) => self.handle(Input::NotFormed(no_group)),
            Some(Event::Met(Ok((group, info)))) => {
                self.group = Some((group.clone(), info));
                self.news.begin();
                self.handle(Input::Formed(group));
            }
            Some(Event::Started(crew, started)) => {
                let attempt = crew.attempt();
                self.crew = Some(crew);
                // They may have been told to go before they were there.
                self.signal_again();
                if let Err(error) = started {
                    self.handle(Input::NotStarted { attempt, reason: error.to_string() });
                }
            }
        }
        let group = self.group.as_ref().map(|(group, _)| group.round);
        let known = group.map(|round| Known { round, asked: self.asked == Some(round) });
        for input in self.news.tell(self.now(), known) {
            self.handle(input);
        }
    }

    fn handle(&mut self, input: Input) {
        self.parts.agent.handle(self.now(), input);
        while let Some(output) = self.parts.agent.poll_output() {
            self.obey(output);
        }
    }

    fn obey(&mut self, output: Output) {
        match output {
            Output::Meet { why } => self.meet(&why),
            Output::AssignRanks(group) => self.assign_ranks(group),
            Output::StartWorkers(start) => self.start(start),
            Output::NotifyWorkers { stops_at, why, .. } => {
                let seconds = stops_at.saturating_sub(self.now()).as_secs_f64();
                tracing::info!(%why, seconds, "the workers are told that they will be stopped");
                if let Some(crew) = &self.crew {
                    crew.notify(self.parts.notice_signal);
                }
            }
            Output::StopWorkers { attempt, signal, kill_at, why } => {
                tracing::info!(%why, "stopping the workers");
                let kill_at = self.origin + kill_at;
                self.stop = Some(Stop { attempt, signal, kill_at, give_up_at: None });
                self.signal_again();
            }
            Output::CountRestart { round, blame } => {
                self.asked = Some(round);
                let peers = self.parts.peers.clone();
                self.counting = Some(Box::pin(async move {
                    let answer = peers.ledger.charge(round, &blame).await;
                    Input::Counted { round, answer }
                }));
            }
            Output::ForgiveRestart { round, why } => {
                let peers = self.parts.peers.clone();
                self.forgiving.spawn(async move {
                    peers.ledger.forgive(round, &why.to_string()).await;
                });
            }
            Output::ExitBarrier { round } => {
                let Some((group, info)) = &self.group else { return };
                let (store, nodes) = (info.store.clone(), group.nodes);
                self.errand = Some(Box::pin(async move {
                    Event::Told(exit_barrier(store.as_ref(), round, nodes).await)
                }));
            }
            Output::Close(closing) => {
                let peers = self.parts.peers.clone();
                let closing = tokio::spawn(async move { peers.close(&closing).await });
                self.closing = Some(AbortOnDropHandle::new(closing));
            }
            Output::Leave => (self.errand, self.counting) = (None, None),
            Output::Finish(outcome) => self.outcome = Some(outcome),
        }
    }

    fn meet(&mut self, why: &Why) {
        if *why != Why::Begin {
            tracing::info!(%why, "meeting the other nodes again");
        }
        (self.group, self.counting) = (None, None);
        self.news.begin();
        let peers = self.parts.peers.clone();
        self.errand = Some(Box::pin(async move { Event::Met(peers.meet().await) }));
    }

    fn assign_ranks(&mut self, group: Group) {
        let Some((_, info)) = &self.group else { return };
        let (store, outfit) = (info.store.clone(), self.parts.outfit.clone());
        let identical = self.parts.identical;
        self.errand = Some(Box::pin(async move {
            let job = &outfit.job;
            let placed =
                ranks(store.as_ref(), &group, &job.role, job.local_workers, identical).await;
            Event::Told(placed)
        }));
    }

    fn start(&mut self, start: Start) {
        let (round, attempt) = (start.group.round, start.attempt);
        let (first, world) = (start.placement.base_rank, start.placement.world_size);
        let last = first + self.parts.outfit.job.local_workers - 1;
        let nodes = start.group.nodes;
        tracing::info!(round, nodes, attempt, "starting workers {first} to {last} of {world}");
        // The last ones are gone; what they left is, too.
        self.crew = None;
        let outfit = self.parts.outfit.clone();
        self.errand = Some(Box::pin(async move {
            let (crew, started) = Crew::start(&outfit, &start).await;
            Event::Started(crew, started)
        }));
    }

    /// Sends workers that are to go the signal that they are to go by.
    fn signal_again(&mut self) {
        if let (Some(stop), Some(crew)) = (&self.stop, &self.crew)
            && stop.attempt == crew.attempt()
        {
            crew.signal(stop.signal);
        }
    }

    /// The time is over that workers had to go, or to be gone.
    fn kill(&mut self) -> Option<Event> {
        let stop = self.stop.as_mut()?;
        if stop.give_up_at.is_some() {
            let attempt = stop.attempt;
            self.stop = None;
            let left = self.crew.as_ref().map(Crew::left).unwrap_or_default();
            let reason = format!("process groups {left:?} are still there {DEATH:?} after SIGKILL");
            return Some(Event::Told(Input::NotStopped { attempt, reason }));
        }
        if stop.signal != SIGKILL {
            tracing::warn!("the workers did not stop in time, and are killed");
        }
        stop.signal = SIGKILL;
        stop.give_up_at = Some(Instant::now() + DEATH);
        self.signal_again();
        None
    }

    /// Says what is waited for, where somebody looks.
    fn show(&mut self) {
        let detail = self.news.waits_for();
        self.parts.waiting.show(self.parts.agent.waits_for(), detail);
    }
}

async fn ready<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn next_exit(crew: &Option<Crew>) -> Exited {
    match crew {
        Some(crew) => crew.next_exit().await,
        None => std::future::pending().await,
    }
}

/// Waits until nothing is left of workers that are to go.
async fn gone(crew: &Option<Crew>, stopping: bool) -> u64 {
    match crew {
        Some(crew) if stopping => {
            crew.gone().await;
            crew.attempt()
        }
        _ => std::future::pending().await,
    }
}
