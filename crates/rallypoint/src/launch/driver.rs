//! The loop between the agent and the world: what happened goes in, what comes out is done.

mod obey;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rallypoint_core::agent::{Agent, Exit, Exited, Group, Input, Membership, NoGroup, Outcome};
use rallypoint_core::kv::Time;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::news::News;
use super::peers::Peers;
use super::signals::{Signals, Told};
use super::waiting::{Detail, Waiting};
use super::workers::{Crew, Outfit, StartError};
use crate::process;
use crate::rendezvous::RendezvousInfo;
use crate::util::clock::boot_time;

/// How long killed workers may take to be gone. The kernel cannot end one that waits for a device.
const DEATH: Duration = Duration::from_secs(10);

/// How long it may take at the end to tell the others, such as of restarts that are given back.
const TELLING: Duration = Duration::from_secs(1);

/// What Ctrl-C and Ctrl-\\ send.
const TYPED: [i32; 2] = [2, 3];

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

pub(super) struct Driver {
    parts: Parts,
    origin: Instant,
    news: News,
    /// The group that the node is in, and what it shares.
    group: Option<(Group, RendezvousInfo)>,
    /// The round in which a restart was asked for.
    asked: Option<u64>,
    /// When the workers were started, on the clock of fences.
    began: Time,
    crew: Option<Crew>,
    stop: Option<Stop>,
    /// What is waited for: one thing at a time.
    errand: Option<BoxFuture<'static, Event>>,
    counting: Option<BoxFuture<'static, Input>>,
    /// The run is being closed.
    closing: Option<AbortOnDropHandle<()>>,
    /// The others are told something that nobody waits for: of restarts that are given back, of our going.
    telling: JoinSet<()>,
    /// What workers are to be told: that they will be stopped.
    notice: Option<Notice>,
    /// It is being written down for them; then they are told by a signal.
    noticing: Option<BoxFuture<'static, ()>>,
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

/// What workers are told before they are stopped.
struct Notice {
    attempt: u64,
    stops_at: Instant,
    why: String,
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
            began: boot_time(),
            crew: None,
            stop: None,
            errand: None,
            counting: None,
            closing: None,
            telling: JoinSet::new(),
            notice: None,
            noticing: None,
            outcome: None,
        }
    }

    /// Runs until the agent has nothing left to do.
    pub(super) async fn run(&mut self) -> Outcome {
        self.handle(Input::Begin);
        loop {
            if let Some(outcome) = self.outcome.take() {
                self.parts.waiting.show(None, None);
                (self.errand, self.counting) = (None, None);
                return outcome;
            }
            self.show();
            let wake = self.parts.agent.next_wake().map(|wake| self.origin + wake);
            let kill = self.stop.as_ref().map(|stop| stop.give_up_at.unwrap_or(stop.kill_at));
            let event = tokio::select! {
                biased;
                told = self.parts.signals.told() => match told {
                    Told::End(signal) => Some(Event::Told(Input::Signal(signal))),
                    Told::PassOn(signal) => {
                        self.pass_on(signal);
                        None
                    }
                },
                () = self.news.changed() => None,
                () = at(kill) => self.kill(),
                event = ready(&mut self.errand) => {
                    self.errand = None;
                    Some(event)
                }
                () = ready(&mut self.noticing) => {
                    self.noticing = None;
                    self.notify(self.parts.notice_signal);
                    None
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
        }
    }

    /// Tells the others what is left to tell, unless a signal says that it takes too long. The node leaves
    /// last: what it closes must be closed by then.
    pub(super) async fn end(self) -> (Option<Crew>, Signals) {
        let Self { parts, crew, mut telling, closing, .. } = self;
        let mut signals = parts.signals;
        let goodbye = async {
            let told = async { while telling.join_next().await.is_some() {} };
            if timeout(TELLING, told).await.is_err() {
                tracing::debug!(
                    "the others could not be told in time that a restart is given back"
                );
            }
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            parts.peers.leave().await;
        };
        tokio::select! {
            () = goodbye => {}
            signal = signals.next() => {
                tracing::warn!(signal, "leaving without a word; the others notice by themselves");
            }
        }
        (crew, signals)
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn take(&mut self, event: Option<Event>) {
        match event {
            None => {}
            Some(Event::Told(Input::Exited(exited))) => {
                self.note_fence();
                if let Some(signal) = self.typed(&exited) {
                    self.handle(Input::Signal(signal));
                }
                self.handle(Input::Exited(exited));
            }
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
                // They may have been told to go before they were there, or that they will be.
                self.signal_again();
                self.give_notice();
                if let Err(error) = started {
                    self.handle(Input::NotStarted { attempt, reason: error.to_string() });
                }
            }
        }
        let group = self.group.as_ref().map(|(group, _)| group.round);
        let known = group.map(|round| Membership { round, asked: self.asked == Some(round) });
        for input in self.news.tell(self.now(), known) {
            self.handle(input);
        }
    }

    /// Workers that their guard ended have not failed: the node has lost its place, or could not be sure of it.
    fn note_fence(&mut self) {
        // What a guard says late may be of workers before these.
        let is_of_these = process::fenced().is_some_and(|at| at >= self.began);
        if is_of_these || self.parts.peers.is_overdue() {
            let reason =
                "the guard ended the workers, since the lease was not renewed in time".to_owned();
            self.handle(Input::SessionLost { deadline: self.now(), reason });
        }
    }

    /// What somebody has typed at a worker to end it, such as Ctrl-C, if it died of that. It was meant for all of us.
    fn typed(&self, exited: &Exited) -> Option<i32> {
        let has_terminal =
            self.crew.as_ref().is_some_and(|crew| crew.has_terminal(exited.local_rank));
        match exited.exit {
            Exit::Signal(signal) if has_terminal && TYPED.contains(&signal) => Some(signal),
            _ => None,
        }
    }

    fn handle(&mut self, input: Input) {
        self.parts.agent.handle(self.now(), input);
        while let Some(output) = self.parts.agent.poll_output() {
            self.obey(output);
        }
    }

    /// Says what is waited for, where somebody looks.
    fn show(&mut self) {
        let detail = match self.parts.agent.pauses_until() {
            Some(until) => Some(pause(until.saturating_sub(self.now()))),
            None => self.news.waits_for(),
        };
        self.parts.waiting.show(self.parts.agent.waits_for(), detail);
    }
}

/// What a node waits for that pauses so much longer.
fn pause(left: Duration) -> Detail {
    let seconds = left.as_secs_f64().ceil();
    let waits_for = format!(
        "the restart in {seconds} s, since the workers fail soon after their start (--restart-delay)"
    );
    Detail { waits_for, patience: None }
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
