//! The events of the agent.

use super::{Observation, since};
use crate::agent::{
    AgentInput, AgentOutput, Exited, HangFinding, HangRequest, HangRestart, NoGroup, NodeGroup,
    RestartAnswer, Start, signal_name,
};
use crate::events::{EventBody, millis};
use crate::kv::Time;

/// What the observer remembers of the agent.
#[derive(Debug, Default)]
pub(super) struct AgentObserver {
    /// The round of the last group.
    round: u64,
    /// When each stage began.
    asked: Option<Time>,
    formed: Option<Time>,
    started: Option<Time>,
    stopping: Option<Time>,
    barrier: Option<Time>,
    /// The last start.
    start: Option<Start>,
}

impl AgentObserver {
    pub(super) fn told(&mut self, now: Time, input: &AgentInput) -> Option<Observation> {
        let round = self.round;
        let event = |body| Observation::new(round, body);
        Some(match input {
            AgentInput::Formed(group) => {
                let NodeGroup { round, rank, nodes, restarts, store } = group.clone();
                self.round = round;
                self.formed = Some(now);
                let rendezvous_ms = since(self.asked.take(), now);
                let body =
                    EventBody::GroupFormed { rank, size: nodes, restarts, store, rendezvous_ms };
                Observation::new(round, body)
            }
            AgentInput::NotFormed(no_group) => event(EventBody::NoGroup).because(match no_group {
                NoGroup::Closed(closed) => closed.to_string(),
                NoGroup::NotNeeded(reason)
                | NoGroup::Unfit(reason)
                | NoGroup::ServerLost(reason)
                | NoGroup::Failed(reason) => reason.clone(),
            }),
            AgentInput::Placed { round, placement } => {
                let ranks_ms = since(self.formed.take(), now);
                let (first_rank, world_size) = (placement.base_rank, placement.world_size);
                let body = EventBody::RanksAssigned { first_rank, world_size, ranks_ms };
                Observation::new(*round, body)
            }
            AgentInput::NotPlaced { round, reason } => {
                Observation::new(*round, EventBody::RanksFailed).because(reason)
            }
            AgentInput::Started { attempt } => {
                let start_ms = since(self.started.take(), now);
                event(EventBody::WorkersStarted { attempt: *attempt, start_ms })
            }
            AgentInput::NotStarted { attempt, reason } => {
                event(EventBody::StartFailed { attempt: *attempt }).because(reason)
            }
            AgentInput::Exited(exited) => self.exited(exited),
            AgentInput::Stopped { attempt } => {
                let stop_ms = since(self.stopping.take(), now);
                event(EventBody::WorkersStopped { attempt: *attempt, stop_ms })
            }
            AgentInput::NotStopped { attempt, reason } => {
                event(EventBody::StopFailed { attempt: *attempt }).because(reason)
            }
            AgentInput::Counted { round, answer } => {
                let event = |body| Observation::new(*round, body);
                match answer {
                    RestartAnswer::Granted { short_lives } => {
                        event(EventBody::RestartGranted { short_lives: *short_lives })
                    }
                    RestartAnswer::Refused { used, blame } => {
                        event(EventBody::RestartRefused { used: *used }).because(blame)
                    }
                }
            }
            AgentInput::BarrierPassed { round } => {
                let barrier_ms = since(self.barrier.take(), now);
                Observation::new(*round, EventBody::BarrierPassed { barrier_ms })
            }
            AgentInput::Changed { round, change } => {
                let body = EventBody::GroupChanged { change: change.clone() };
                Observation::new(*round, body).because(change)
            }
            AgentInput::SessionLost { deadline, reason } => {
                let left_ms = millis(deadline.saturating_sub(now));
                event(EventBody::Fenced { left_ms }).because(reason)
            }
            AgentInput::Signal(signal) => {
                let body = EventBody::Signalled { signal: *signal };
                event(body).because(signal_name(*signal).unwrap_or_default())
            }
            AgentInput::Evicted(action) => {
                event(EventBody::Evicted { by: action.by.clone() }).because(&action.reason)
            }
            AgentInput::HangReported(finding) => {
                let HangFinding { round, number, headline, odd, .. } = finding;
                let odd = odd.nodes.iter().map(|node| node.id.clone()).collect();
                let body = EventBody::HangReported { number: *number, odd };
                Observation::new(*round, body).because(headline)
            }
            // The node tells that the run is closed.
            AgentInput::Begin
            | AgentInput::Closed(_)
            | AgentInput::Progress { .. }
            | AgentInput::StacksWanted(_)
            | AgentInput::HangOver(_)
            | AgentInput::Wake => return None,
        })
    }

    fn exited(&self, exited: &Exited) -> Observation {
        let Exited { attempt, local_rank, ref exit, ref message } = *exited;
        let start = self.start.as_ref().filter(|start| start.attempt == attempt);
        let body = EventBody::WorkerExited {
            attempt,
            local_rank,
            rank: start.map(|start| start.placement.base_rank.saturating_add(local_rank)),
            exit: exit.clone(),
            stopping: self.stopping.is_some(),
        };
        let round = start.map_or(self.round, |start| start.group.round);
        Observation::new(round, body).because(message.as_deref().unwrap_or_default())
    }

    pub(super) fn decided(&mut self, now: Time, output: &AgentOutput) -> Option<Observation> {
        let round = self.round;
        let event = |body| Observation::new(round, body);
        let left = |until: &Time| millis(until.saturating_sub(now));
        Some(match output {
            AgentOutput::Rendezvous { why } => {
                self.asked = Some(now);
                event(EventBody::RendezvousBegan).because(why)
            }
            AgentOutput::StartWorkers(start) => {
                self.started = Some(now);
                self.stopping = None;
                self.start = Some(start.clone());
                let Start { attempt, placement, .. } = start;
                let body = EventBody::WorkersStarting {
                    attempt: *attempt,
                    first_rank: placement.base_rank,
                };
                event(body)
            }
            AgentOutput::NotifyWorkers { attempt, stops_at, why } => {
                let body =
                    EventBody::WorkersNotified { attempt: *attempt, left_ms: left(stops_at) };
                event(body).because(why)
            }
            AgentOutput::StopWorkers { attempt, signal, kill_at, why } => {
                self.stopping.get_or_insert(now);
                let (attempt, signal, left_ms) = (*attempt, *signal, left(kill_at));
                event(EventBody::WorkersStopping { attempt, signal, left_ms }).because(why)
            }
            AgentOutput::Announce { round, stops_at, why } => {
                let body = EventBody::DepartureAnnounced { left_ms: left(stops_at) };
                Observation::new(*round, body).because(why)
            }
            AgentOutput::ConsumeRestart { round, blame, lived } => {
                let body = EventBody::RestartRequested { lived_ms: millis(*lived) };
                Observation::new(*round, body).because(blame)
            }
            AgentOutput::RestartHung(HangRestart { round, blame, lived, .. }) => {
                let body = EventBody::RestartRequested { lived_ms: millis(*lived) };
                Observation::new(*round, body).because(blame)
            }
            AgentOutput::RefundRestart { round, why } => {
                Observation::new(*round, EventBody::RestartRefunded).because(why)
            }
            AgentOutput::ExitBarrier { round } => {
                self.barrier = Some(now);
                Observation::new(*round, EventBody::BarrierReached)
            }
            AgentOutput::Close(reason) => {
                event(EventBody::Closing { outcome: reason.outcome() }).because(reason.message())
            }
            AgentOutput::Finish(result) => {
                let (exit_code, failures) = (result.exit_code, result.failures.len());
                event(EventBody::Finished { exit_code, failures }).because(&result.outcome)
            }
            AgentOutput::RequestStacks(HangRequest { round, number, millis, .. }) => {
                let body = EventBody::HangDetected { number: *number, silent_ms: *millis };
                Observation::new(*round, body)
            }
            AgentOutput::TakeStacks(HangRequest { round, number, host, .. }) => {
                let body = EventBody::StacksTaken { number: *number, host: host.clone() };
                Observation::new(*round, body)
            }
            AgentOutput::AssignRanks(_)
            | AgentOutput::CheckProgress { .. }
            | AgentOutput::EndHang(_)
            | AgentOutput::Leave => return None,
        })
    }
}
