//! The loop that drives the agent: events go in as inputs, outputs are executed.

mod execute;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rallypoint_core::agent::{
    Agent, AgentInput, AgentOutput, Exit, Exited, HangPolicy, KnownGroup, NoGroup, NodeGroup,
    OnHang, RunResult,
};
use rallypoint_core::kv::Time;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::events::MembershipEvents;
use super::hangs;
use super::host_checks;
use super::job::JobSpec;
use super::pages::{NodePages, WorkerProgress};
use super::peers::Peers;
use super::ports::{PortsSpec, RoundPorts};
use super::preflight::{self, Preflight, PreflightError};
use super::signals::{SignalAction, SignalListener};
use super::wait_reporter::{Detail, WaitReporter};
use super::workers::{StartError, WorkerGroup, WorkerSpec};
use crate::doctor::Finding;
use crate::events::EventRecorder;
use crate::log_target::LAUNCH;
use crate::process;
use crate::rendezvous::RendezvousInfo;
use crate::util::clock::boot_time;
use crate::util::optional::{at, ready};

/// The time limit for killed workers to disappear. The kernel cannot end a process that waits for a device.
const DEATH: Duration = Duration::from_secs(10);

/// The time limit for the last best-effort writes at exit, such as refunded restarts.
const TELLING: Duration = Duration::from_secs(1);

/// The signals of Ctrl-C and Ctrl-\\.
const TYPED: [i32; 2] = [2, 3];

/// torchrun's variable for jobs whose nodes all have the same number of workers and the same role.
const IDENTICAL: &str = "TORCH_ELASTIC_WORKER_IDENTICAL";

/// Drives the agent: watches processes, peers and signals, and executes its outputs.
pub(super) struct AgentDriver {
    agent: Agent,
    peers: Arc<Peers>,
    signals: SignalListener,
    spec: WorkerSpec,
    waiting: WaitReporter,
    /// The command that must succeed before a rendezvous that a failure of this node's workers caused.
    preflight: Option<Arc<Preflight>>,
    pages: Arc<NodePages>,
    /// The signal that notifies workers of their stop.
    notice_signal: i32,
    on_hang: OnHang,
    hang: Option<HangPolicy>,
    /// The rank that this node was given.
    node_rank: Option<u32>,
    /// What users should know who wait for nodes.
    remark: Option<String>,
    /// The checks of this host, until they are done or a group has formed.
    checking: Option<BoxFuture<'static, Vec<Finding>>>,
    /// Whether every node is known to have the same number of workers and the same role.
    identical: bool,
    origin: Instant,
    recorder: Option<EventRecorder>,
    events: MembershipEvents,
    /// The ports that the nodes of a round want.
    wanted_ports: PortsSpec,
    /// The ports of the current round.
    ports: RoundPorts,
    /// The current group, and its store.
    group: Option<(NodeGroup, RendezvousInfo)>,
    /// The round in which this node asked for a restart.
    asked: Option<u64>,
    /// The rank of the first worker.
    base_rank: u32,
    /// The start of the workers, by the clock of the fence.
    began: Time,
    workers: Option<WorkerGroup>,
    stop: Option<Stop>,
    /// The request in progress: one at a time.
    pending: Option<BoxFuture<'static, DriverEvent>>,
    counting: Option<BoxFuture<'static, AgentInput>>,
    /// The run is being closed.
    closing: Option<AbortOnDropHandle<()>>,
    /// Best-effort writes: refunded restarts, this node's departure, and its exit.
    telling: JoinSet<()>,
    /// A notice that the workers have not got yet.
    notice: Option<PendingNotice>,
    /// The write of the notice files; the signal follows it.
    noticing: Option<BoxFuture<'static, ()>>,
    /// The look for signs of progress.
    looking: Option<BoxFuture<'static, AgentInput>>,
    /// The last sign of progress that was seen.
    last_sign: Option<Time>,
    /// The stacks of the workers: of a hang, or of workers that do not stop.
    taking_stacks: Option<BoxFuture<'static, Option<AgentInput>>>,
    result: Option<RunResult>,
}

/// Workers that are being stopped.
struct Stop {
    attempt: u64,
    signal: i32,
    kill_at: Instant,
    /// The time to take the stacks of workers that have not stopped, before they are killed.
    stacks_at: Option<Instant>,
    /// The deadline for killed workers to disappear.
    give_up_at: Option<Instant>,
}

impl Stop {
    /// The time of the next step against workers that are left.
    fn next_step(&self) -> Instant {
        self.give_up_at.or(self.stacks_at).unwrap_or(self.kill_at)
    }
}

/// A notice to the workers of their stop.
struct PendingNotice {
    attempt: u64,
    stops_at: Instant,
    why: String,
}

/// The result of a request, or an input for the agent.
enum DriverEvent {
    Preflight(Result<(), PreflightError>),
    Rendezvous(Result<(NodeGroup, RendezvousInfo), NoGroup>),
    Placed(AgentInput, RoundPorts),
    Started(WorkerGroup, Result<(), StartError>),
    Input(AgentInput),
}

impl AgentDriver {
    pub(super) fn new(
        job: &JobSpec,
        spec: WorkerSpec,
        peers: Arc<Peers>,
        signals: SignalListener,
        waiting: WaitReporter,
        pages: Arc<NodePages>,
    ) -> Self {
        let events = peers.events();
        let parameters = &job.rendezvous.parameters;
        let recorder = parameters.recorder.clone();
        if let Some(recorder) = &recorder {
            recorder.agent_began(&parameters.run_id, peers.node_id(), &job.agent);
        }
        Self {
            agent: Agent::new(job.agent.clone()),
            peers,
            signals,
            spec,
            waiting,
            preflight: None,
            pages,
            notice_signal: job.notice_signal,
            on_hang: job.agent.on_hang,
            hang: job.agent.hang,
            node_rank: job.node_rank(),
            remark: job.remark.clone(),
            checking: (parameters.max_nodes > 1).then(|| host_checks::later(job).boxed()),
            identical: job.inherited.get(IDENTICAL).is_some_and(|value| value == "1"),
            origin: recorder.as_ref().map_or_else(Instant::now, EventRecorder::origin),
            recorder,
            events,
            wanted_ports: job.ports,
            ports: RoundPorts::default(),
            group: None,
            asked: None,
            base_rank: 0,
            began: boot_time(),
            workers: None,
            stop: None,
            pending: None,
            counting: None,
            closing: None,
            telling: JoinSet::new(),
            notice: None,
            noticing: None,
            looking: None,
            last_sign: None,
            taking_stacks: None,
            result: None,
        }
    }

    /// With a preflight command.
    pub(super) fn with(self, preflight: Option<Preflight>) -> Self {
        Self { preflight: preflight.map(Arc::new), ..self }
    }

    /// Runs until the agent has finished.
    pub(super) async fn run(&mut self) -> RunResult {
        self.handle(AgentInput::Begin);
        loop {
            if let Some(result) = self.result.take() {
                self.waiting.show(None, None);
                (self.pending, self.counting) = (None, None);
                (self.looking, self.taking_stacks, self.checking) = (None, None, None);
                return result;
            }
            self.show();
            let wake = self.agent.next_wake().map(|wake| self.origin + wake);
            let kill = self.stop.as_ref().map(Stop::next_step);
            let event = tokio::select! {
                biased;
                told = self.signals.told() => match told {
                    SignalAction::End(signal) => Some(DriverEvent::Input(AgentInput::Signal(signal))),
                    SignalAction::PassOn(signal) => {
                        self.pass_on(signal);
                        None
                    }
                },
                () = self.events.changed() => None,
                () = at(kill) => self.kill(),
                event = ready(&mut self.pending) => {
                    self.pending = None;
                    Some(event)
                }
                () = ready(&mut self.noticing) => {
                    self.noticing = None;
                    self.notify(self.notice_signal);
                    None
                }
                input = ready(&mut self.looking) => {
                    self.looking = None;
                    if let AgentInput::Progress { latest, .. } = &input {
                        self.last_sign = *latest;
                    }
                    Some(DriverEvent::Input(input))
                }
                found = ready(&mut self.taking_stacks) => {
                    self.taking_stacks = None;
                    if let Some(AgentInput::HangReported(finding)) = &found {
                        let run_id = &self.spec.environment.run_id;
                        hangs::log_odd(&finding.odd, Some(self.on_hang), run_id);
                    }
                    found.map(DriverEvent::Input)
                }
                findings = ready(&mut self.checking) => {
                    self.checking = None;
                    let more = host_checks::report(&findings);
                    self.remark = self.remark.take().into_iter().chain(more).reduce(|all, more| {
                        format!("{all}; {more}")
                    });
                    None
                }
                input = ready(&mut self.counting) => {
                    self.counting = None;
                    Some(DriverEvent::Input(input))
                }
                // Exits come before the end of the group.
                exited = next_exit(&self.workers) => Some(DriverEvent::Input(AgentInput::Exited(exited))),
                attempt = gone(&self.workers, self.stop.is_some()) => {
                    self.stop = None;
                    Some(DriverEvent::Input(AgentInput::Stopped { attempt }))
                }
                () = at(wake) => Some(DriverEvent::Input(AgentInput::Wake)),
                () = self.waiting.tick() => {
                    self.peers.refresh();
                    None
                }
            };
            self.take(event);
        }
    }

    /// Completes the pending writes, unless a signal cuts them short. The node leaves the rendezvous
    /// last, after the run is closed.
    pub(super) async fn end(self) -> (Option<WorkerGroup>, SignalListener) {
        let Self { peers, mut signals, workers, mut telling, closing, .. } = self;
        let goodbye = async {
            let told = async { while telling.join_next().await.is_some() {} };
            if timeout(TELLING, told).await.is_err() {
                tracing::debug!(
                    target: LAUNCH,
                    "a refunded restart, a departure or an exit could not be written in time"
                );
            }
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            peers.leave().await;
        };
        tokio::select! {
            () = goodbye => {}
            signal = signals.next() => {
                tracing::warn!(
                    target: LAUNCH,
                    signal, "exiting without leaving the rendezvous; peers will detect it by lease expiry"
                );
            }
        }
        (workers, signals)
    }

    fn now(&self) -> Time {
        self.origin.elapsed()
    }

    fn take(&mut self, event: Option<DriverEvent>) {
        match event {
            None => {}
            Some(DriverEvent::Input(AgentInput::Exited(exited))) => {
                self.note_fence();
                if let Some(signal) = self.typed(&exited) {
                    self.handle(AgentInput::Signal(signal));
                }
                self.handle(AgentInput::Exited(exited));
            }
            Some(DriverEvent::Input(input)) => self.handle(input),
            Some(DriverEvent::Preflight(Ok(()))) => self.join(),
            Some(DriverEvent::Preflight(Err(error))) => {
                self.handle(AgentInput::NotFormed(NoGroup::Unfit(error.to_string())));
            }
            Some(DriverEvent::Rendezvous(Err(no_group))) => {
                self.handle(AgentInput::NotFormed(no_group))
            }
            Some(DriverEvent::Rendezvous(Ok((group, info)))) => {
                self.group = Some((group.clone(), info));
                self.checking = None;
                self.events.begin();
                self.handle(AgentInput::Formed(group));
            }
            Some(DriverEvent::Placed(placed, ports)) => {
                self.ports = ports;
                self.handle(placed);
            }
            Some(DriverEvent::Started(workers, started)) => {
                let attempt = workers.attempt();
                self.pages.follow_progress(self.progress(&workers));
                self.workers = Some(workers);
                // A stop or a notice may have been requested before the workers were started.
                self.signal_again();
                self.give_notice();
                self.handle(match started {
                    Ok(()) => AgentInput::Started { attempt },
                    Err(error) => AgentInput::NotStarted { attempt, reason: error.to_string() },
                });
            }
        }
        let group = self.group.as_ref().map(|(group, _)| group.round);
        let known = group.map(|round| KnownGroup { round, asked: self.asked == Some(round) });
        for input in self.events.tell(self.now(), known) {
            self.handle(input);
        }
    }

    /// What the pages tell of the progress of workers that have just started.
    fn progress(&self, workers: &WorkerGroup) -> Option<WorkerProgress> {
        let signs = hangs::unless_busy(workers.signs()?.as_ref())?.clone();
        let is_first = self.group.as_ref().is_some_and(|(group, _)| group.rank == 0);
        Some(WorkerProgress::new(signs, is_first, self.hang?))
    }

    /// Workers that the guard killed have not failed: the node has lost its session, or could not prove that it has one.
    fn note_fence(&mut self) {
        // A late report of the guard may be about earlier workers.
        let is_of_these = process::fenced().is_some_and(|at| at >= self.began);
        if is_of_these || self.peers.is_overdue() {
            let reason =
                "the guard ended the workers, since the lease was not renewed in time".to_owned();
            self.handle(AgentInput::SessionLost { deadline: self.now(), reason });
        }
    }

    /// The signal of Ctrl-C or Ctrl-\\, if a worker with the terminal died of it. The user meant the whole job.
    fn typed(&self, exited: &Exited) -> Option<i32> {
        let has_terminal =
            self.workers.as_ref().is_some_and(|workers| workers.has_terminal(exited.local_rank));
        match exited.exit {
            Exit::Signal(signal) if has_terminal && TYPED.contains(&signal) => Some(signal),
            _ => None,
        }
    }

    fn handle(&mut self, input: AgentInput) {
        let now = self.now();
        let recorded = self.recorder.is_some().then(|| input.clone());
        self.agent.handle(now, input);
        let outputs: Vec<AgentOutput> = std::iter::from_fn(|| self.agent.poll_output()).collect();
        if let (Some(recorder), Some(input)) = (&self.recorder, recorded) {
            recorder.agent_step(now, &input, &outputs);
        }
        for output in outputs {
            self.execute(output);
        }
    }

    /// Reports what the agent waits for.
    fn show(&mut self) {
        let is_checked = self.preflight.as_ref().is_some_and(|preflight| preflight.is_running());
        let detail = match self.agent.pauses_until() {
            _ if is_checked => Some(preflight::detail()),
            Some(until) => Some(pause(until.saturating_sub(self.now()))),
            None => self.events.waits_for().map(|detail| match &self.remark {
                Some(remark) => detail.with(remark),
                None => detail,
            }),
        };
        let what = self.agent.waits_for();
        match (&self.group, &detail, what) {
            (Some(_), ..) => self.pages.is_member(),
            (None, Some(detail), _) => self.pages.waits_for(&detail.waits_for),
            (None, None, what) => self.pages.waits_for(what.unwrap_or("the end of the job")),
        }
        self.waiting.show(what, detail);
    }
}

/// The report of a restart backoff with this much time left.
fn pause(left: Duration) -> Detail {
    let seconds = left.as_secs_f64().ceil();
    let waits_for = format!(
        "the restart in {seconds} s, since the workers fail soon after their start (--restart-delay)"
    );
    Detail { waits_for, patience: None }
}

async fn next_exit(workers: &Option<WorkerGroup>) -> Exited {
    match workers {
        Some(workers) => workers.next_exit().await,
        None => std::future::pending().await,
    }
}

/// Waits until no process of the stopped workers is left.
async fn gone(workers: &Option<WorkerGroup>, stopping: bool) -> u64 {
    match workers {
        Some(workers) if stopping => {
            workers.gone().await;
            workers.attempt()
        }
        _ => std::future::pending().await,
    }
}
