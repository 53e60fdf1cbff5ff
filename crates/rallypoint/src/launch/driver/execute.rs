//! Executes the agent's outputs.

use std::collections::BTreeMap;
use std::time::Duration;

use rallypoint_core::agent::{
    AgentInput, AgentOutput, HangRequest, NodeExit, NodeGroup, SIGKILL, Start, Why, WorkerFailure,
};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{AgentDriver, DEATH, DriverEvent, PendingNotice, Stop};
use crate::launch::hangs;
use crate::launch::last_lines;
use crate::launch::peers::{WantedPlace, exit_barrier, ranks};
use crate::launch::ports::RoundPorts;
use crate::launch::signals::{log_no_worker, name};
use crate::launch::stacks::StackTargets;
use crate::launch::workers::{WorkerGroup, notices};
use crate::log_target::LAUNCH;
use crate::util::blocking::blocking;
use crate::util::clock::boot_time;

impl AgentDriver {
    pub(super) fn execute(&mut self, output: AgentOutput) {
        match output {
            AgentOutput::Rendezvous { why } => self.rendezvous(&why),
            AgentOutput::AssignRanks(group) => self.assign_ranks(group),
            AgentOutput::StartWorkers(start) => self.start(start),
            AgentOutput::NotifyWorkers { attempt, stops_at, why } => {
                let seconds = stops_at.saturating_sub(self.now()).as_secs_f64();
                tracing::info!(
                    target: LAUNCH,
                    %why, seconds, "the workers are told that they will be stopped"
                );
                let (stops_at, why) = (self.origin + stops_at, why.to_string());
                self.notice = Some(PendingNotice { attempt, stops_at, why });
                self.give_notice();
            }
            AgentOutput::Announce { round, stops_at, why } => {
                tracing::info!(
                    target: LAUNCH,
                    "the other nodes are told that this one leaves, so that all save their work"
                );
                let (peers, stops_at) = (self.peers.clone(), self.origin + stops_at);
                self.telling.spawn(async move {
                    peers.restarts.announce(round, stops_at, &why).await;
                });
            }
            AgentOutput::StopWorkers { attempt, signal, kill_at, why } => {
                let kill_at = self.origin + kill_at;
                let stacks_at = stacks_at(signal, Instant::now(), kill_at);
                self.stop = Some(Stop { attempt, signal, kill_at, stacks_at, give_up_at: None });
                self.signal_again();
                tracing::info!(target: LAUNCH, %why, "stopping the workers");
                if let Why::WorkerFailed(failure) = why {
                    self.tell_last_lines(failure);
                }
            }
            AgentOutput::ConsumeRestart { round, blame, lived } => {
                self.asked = Some(round);
                let peers = self.peers.clone();
                self.counting = Some(Box::pin(async move {
                    let answer = peers.restarts.consume(round, &blame, lived).await;
                    AgentInput::Counted { round, answer }
                }));
            }
            AgentOutput::RefundRestart { round, why } => {
                let peers = self.peers.clone();
                self.telling.spawn(async move {
                    peers.restarts.refund(round, &why.to_string()).await;
                });
            }
            AgentOutput::CheckProgress { attempt } => self.look_for_progress(attempt),
            AgentOutput::RequestStacks(request) => {
                let (silent, peers) = (request.silent(), self.peers.clone());
                tracing::warn!(
                    target: LAUNCH,
                    ?silent, "no worker of this node makes progress; all nodes are asked where their workers are"
                );
                self.telling.spawn(async move { peers.restarts.request_stacks(request).await });
            }
            AgentOutput::EndHang(over) => {
                tracing::info!(target: LAUNCH, "the workers of this node make progress again");
                let peers = self.peers.clone();
                self.telling.spawn(async move { peers.restarts.end_hang(over).await });
            }
            AgentOutput::TakeStacks(request) => self.answer(request),
            AgentOutput::RestartHung(restart) => {
                let without = if restart.without.is_empty() { "" } else { " without it" };
                tracing::warn!(target: LAUNCH, "restarting the job{without}: {}", restart.blame);
                let peers = self.peers.clone();
                self.counting = Some(Box::pin(async move {
                    let answer = peers.restarts.restart_hung(&restart, peers.node_id()).await;
                    AgentInput::Counted { round: restart.round, answer }
                }));
            }
            AgentOutput::ExitBarrier { .. } => {
                let Some((group, info)) = self.group.clone() else { return };
                self.pending = Some(Box::pin(async move {
                    DriverEvent::Input(exit_barrier(info.store.as_ref(), &group).await)
                }));
            }
            AgentOutput::Close(closing) => {
                let peers = self.peers.clone();
                let closing = tokio::spawn(async move { peers.close(&closing).await });
                self.closing = Some(AbortOnDropHandle::new(closing));
            }
            AgentOutput::Leave => (self.pending, self.counting) = (None, None),
            AgentOutput::Finish(result) => {
                let (id, host) = (self.peers.node_id(), self.spec.host());
                if let Some(exit) = NodeExit::of(&result, id, host, self.node_rank) {
                    let peers = self.peers.clone();
                    self.telling.spawn(async move { peers.record_exit(exit).await });
                }
                self.result = Some(result);
            }
        }
    }

    /// Leaves the last lines of a worker that failed in the run.
    fn tell_last_lines(&mut self, failure: WorkerFailure) {
        let Some((group, _)) = &self.group else { return };
        let records = self.workers.as_ref().map(WorkerGroup::exit_records).unwrap_or_default();
        let Some(record) = records.get(failure.local_rank as usize).cloned() else { return };
        self.telling.spawn(last_lines::publish(self.peers.clone(), record, group.round, failure));
    }

    fn rendezvous(&mut self, why: &Why) {
        if *why != Why::Begin {
            tracing::info!(target: LAUNCH, %why, "rejoining the rendezvous");
        }
        (self.group, self.counting) = (None, None);
        self.ports = RoundPorts::default();
        self.events.begin();
        match &self.preflight {
            Some(preflight) if matches!(why, Why::WorkerFailed(_)) => {
                let preflight = preflight.clone();
                self.pending =
                    Some(Box::pin(async move { DriverEvent::Preflight(preflight.run().await) }));
            }
            _ => self.join(),
        }
    }

    /// Joins the next round.
    pub(super) fn join(&mut self) {
        let peers = self.peers.clone();
        self.pending =
            Some(Box::pin(async move { DriverEvent::Rendezvous(peers.next_rendezvous().await) }));
    }

    fn assign_ranks(&mut self, group: NodeGroup) {
        let Some((_, info)) = &self.group else { return };
        let (store, peers) = (info.store.clone(), self.peers.clone());
        let wanted = WantedPlace {
            role: self.spec.environment.role.clone(),
            local_workers: self.spec.environment.local_workers,
            identical: self.identical,
            ports: self.wanted_ports,
        };
        self.pending = Some(Box::pin(async move {
            let (placed, ports) = ranks(store.as_ref(), &group, wanted).await;
            // A launcher that was suspended meanwhile may have lost its session without knowing it yet.
            peers.is_sure_of_its_place().await;
            DriverEvent::Placed(placed, ports)
        }));
    }

    fn start(&mut self, start: Start) {
        let (round, attempt) = (start.group.round, start.attempt);
        let (first, world) = (start.placement.base_rank, start.placement.world_size);
        let last = first.saturating_add(self.spec.environment.local_workers - 1);
        let nodes = start.group.nodes;
        tracing::info!(
            target: LAUNCH,
            round, nodes, attempt, "starting workers {first} to {last} of {world}"
        );
        // Ends every process that earlier workers left.
        self.workers = None;
        self.began = boot_time();
        self.last_sign = None;
        self.base_rank = first;
        let mut spec = self.spec.clone();
        spec.environment.ports = self.ports.numbers().to_vec();
        self.pending = Some(Box::pin(async move {
            let (workers, started) = WorkerGroup::start(&spec, &start).await;
            DriverEvent::Started(workers, started)
        }));
    }

    fn look_for_progress(&mut self, attempt: u64) {
        let signs = self.workers.as_ref().filter(|workers| workers.attempt() == attempt);
        let is_first = self.group.as_ref().is_some_and(|(group, _)| group.rank == 0);
        let (signs, origin) = (signs.and_then(WorkerGroup::signs), self.origin);
        let known = self.last_sign.map(|at| (origin + at).into_std());
        self.looking = Some(Box::pin(async move {
            let latest = match signs {
                Some(signs) => hangs::latest_sign(signs, is_first, known).await,
                None => None,
            };
            let latest = latest.map(|at| Instant::from_std(at).saturating_duration_since(origin));
            AgentInput::Progress { attempt, latest }
        }));
    }

    /// Takes the stacks of the workers for the report of a hang.
    fn answer(&mut self, request: HangRequest) {
        let Some((group, info)) = &self.group else { return };
        let signs = self.workers.as_ref().and_then(WorkerGroup::signs);
        let peers = (group.clone(), info.store.clone(), self.peers.clone());
        self.taking_stacks =
            Some(Box::pin(hangs::answer_for_agent(self.stack_targets(), signs, peers, request)));
    }

    fn stack_targets(&self) -> StackTargets {
        StackTargets {
            host: self.spec.host().to_owned(),
            node: self.peers.node_id().to_owned(),
            base_rank: self.base_rank,
            groups: self.workers.as_ref().map(WorkerGroup::groups).unwrap_or_default(),
            program: self.spec.program_path().to_owned(),
            debug_ports: BTreeMap::new(),
        }
    }

    /// Passes a signal on to the workers.
    pub(super) fn pass_on(&self, signal: i32) {
        match self.notify(signal) {
            0 => log_no_worker(signal),
            _ => tracing::info!(target: LAUNCH, "{} is passed on to the workers", name(signal)),
        }
    }

    /// Notifies the workers of their stop, if they run: by the notice file first, and then by the signal.
    pub(super) fn give_notice(&mut self) {
        let (Some(notice), Some(workers)) = (&self.notice, &self.workers) else { return };
        if notice.attempt == workers.attempt() {
            let left = notice.stops_at.saturating_duration_since(Instant::now());
            let (files, why) = (workers.notices(), notice.why.clone());
            self.notice = None;
            let write = move || notices::write(&files, left, &why);
            self.noticing = Some(Box::pin(blocking(write)));
        }
    }

    /// Sends a signal to the workers that handle it. Returns the number of live workers.
    pub(super) fn notify(&self, signal: i32) -> usize {
        let Some(workers) = &self.workers else { return 0 };
        let told = workers.notify(signal);
        if !told.spared.is_empty() {
            let (name, spared) = (name(signal), &told.spared);
            tracing::warn!(
                target: LAUNCH,
                "local ranks {spared:?} do not handle {name}, and would die of it: it is not sent to them"
            );
        }
        told.living
    }

    /// Sends the stop signal to workers that are being stopped.
    pub(super) fn signal_again(&mut self) {
        if let (Some(stop), Some(workers)) = (&self.stop, &self.workers)
            && stop.attempt == workers.attempt()
        {
            workers.signal(stop.signal);
        }
    }

    /// Takes the next step against workers that did not stop in time: their stacks, SIGKILL, and giving up on workers
    /// that survive it.
    pub(super) fn kill(&mut self) -> Option<DriverEvent> {
        let stop = self.stop.as_mut()?;
        if stop.give_up_at.is_some() {
            let attempt = stop.attempt;
            self.stop = None;
            let left = self.workers.as_ref().map(WorkerGroup::left).unwrap_or_default();
            let reason = format!("process groups {left:?} are still there {DEATH:?} after SIGKILL");
            return Some(DriverEvent::Input(AgentInput::NotStopped { attempt, reason }));
        }
        let now = Instant::now();
        if let Some(at) = stop.stacks_at.take_if(|at| *at <= now) {
            // The kill comes at its time, whether there are stacks by then or not.
            let limit = stop.kill_at.saturating_duration_since(at);
            let targets = self.stack_targets();
            self.taking_stacks = Some(Box::pin(async move {
                hangs::before_the_kill(targets, limit).await;
                None
            }));
            return None;
        }
        if stop.signal != SIGKILL {
            tracing::warn!(
                target: LAUNCH,
                "the workers did not stop in time, and are killed; --shutdown-timeout gives them longer"
            );
        }
        stop.signal = SIGKILL;
        stop.give_up_at = Some(Instant::now() + DEATH);
        self.signal_again();
        None
    }
}

/// The longest time before the kill at which the stacks of the workers are taken.
const BEFORE_KILL: Duration = Duration::from_secs(2);

/// When to take the stacks of workers that have not stopped by then: so long before the kill that it need not wait for
/// them. Not before a kill at once.
fn stacks_at(signal: i32, now: Instant, kill_at: Instant) -> Option<Instant> {
    let before = BEFORE_KILL.min(kill_at.saturating_duration_since(now) / 2);
    (signal != SIGKILL && !before.is_zero()).then(|| kill_at - before)
}
