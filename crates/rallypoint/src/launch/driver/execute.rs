//! Executes the agent's outputs.

use rallypoint_core::agent::{AgentInput, AgentOutput, NodeGroup, SIGKILL, Start, Why};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{AgentDriver, DEATH, DriverEvent, PendingNotice, Stop};
use crate::launch::peers::{exit_barrier, ranks};
use crate::launch::signals::{log_no_worker, name};
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
                self.stop = Some(Stop { attempt, signal, kill_at, give_up_at: None });
                self.signal_again();
                tracing::info!(target: LAUNCH, %why, "stopping the workers");
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
            AgentOutput::Finish(result) => self.result = Some(result),
        }
    }

    fn rendezvous(&mut self, why: &Why) {
        if *why != Why::Begin {
            tracing::info!(target: LAUNCH, %why, "rejoining the rendezvous");
        }
        (self.group, self.counting) = (None, None);
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
        let (store, spec) = (info.store.clone(), self.spec.clone());
        let (identical, peers) = (self.identical, self.peers.clone());
        self.pending = Some(Box::pin(async move {
            let placed = ranks(
                store.as_ref(),
                &group,
                &spec.environment.role,
                spec.environment.local_workers,
                identical,
            )
            .await;
            // A launcher that was suspended meanwhile may have lost its session without knowing it yet.
            peers.is_sure_of_its_place().await;
            DriverEvent::Input(placed)
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
        let spec = self.spec.clone();
        self.pending = Some(Box::pin(async move {
            let (workers, started) = WorkerGroup::start(&spec, &start).await;
            DriverEvent::Started(workers, started)
        }));
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

    /// Kills workers that did not stop in time, or gives up on workers that survive SIGKILL.
    pub(super) fn kill(&mut self) -> Option<DriverEvent> {
        let stop = self.stop.as_mut()?;
        if stop.give_up_at.is_some() {
            let attempt = stop.attempt;
            self.stop = None;
            let left = self.workers.as_ref().map(WorkerGroup::left).unwrap_or_default();
            let reason = format!("process groups {left:?} are still there {DEATH:?} after SIGKILL");
            return Some(DriverEvent::Input(AgentInput::NotStopped { attempt, reason }));
        }
        if stop.signal != SIGKILL {
            tracing::warn!(target: LAUNCH, "the workers did not stop in time, and are killed");
        }
        stop.signal = SIGKILL;
        stop.give_up_at = Some(Instant::now() + DEATH);
        self.signal_again();
        None
    }
}
