//! The agent's state machine: its states, and the transition for each input.
//!
//! `workers` handles workers that exit by themselves, `events` handles the rendezvous and signals, `hangs`
//! workers without progress, and `stopping` the time between the decision to stop the workers and the next step.

mod events;
mod hangs;
mod stopping;
mod workers;

use std::collections::{BTreeSet, VecDeque};

use self::stopping::Stopping;
use super::failure::WorkerFailure;
use super::hang::HangWatch;
use super::messages::{
    AgentInput, AgentOutput, AgentSettings, GroupChange, NoGroup, NodeGroup, Start,
};
use super::outcome::{CloseReason, NodeError, NodeOutcome, PeersAtExit, RunResult};
use super::placement::Placement;
use super::why::Why;
use crate::kv::Time;

/// The number of rounds in a row without ranks after which the node gives up.
const MOST_UNPLACED: u32 = 3;

/// The state of the agent. The [module](super) has a diagram.
#[derive(Debug)]
enum AgentState {
    Idle,
    Rendezvous,
    Placing(NodeGroup),
    Running(StartedWorkers),
    Noticing(Noticing),
    Stopping(Stopping),
    AtBarrier(Barrier),
    Finished,
}

/// The workers of one start.
#[derive(Debug, Clone)]
struct StartedWorkers {
    attempt: u64,
    round: u64,
    nodes: u32,
    base_rank: u32,
    /// The time of the start.
    since: Time,
    /// The local ranks of workers that have exited.
    gone: BTreeSet<u32>,
    /// The watch for workers without progress, if there is one.
    watch: Option<HangWatch>,
    /// Whether this node has asked for a restart because of a hang.
    hung: bool,
}

/// The workers have got notice of their stop.
#[derive(Debug, Clone)]
struct Noticing {
    workers: StartedWorkers,
    until: Time,
    why: Why,
    /// The signal that asked the node to leave after its workers, if there was one.
    leaves: Option<i32>,
}

impl Noticing {
    /// Whether a member announced its departure, this node or another: its loss is expected then.
    fn is_of_a_departure(&self) -> bool {
        self.leaves.is_some() || matches!(self.why, Why::Changed(GroupChange::PeerLeaves(_)))
    }
}

/// The workers have succeeded, and those of other nodes may still run.
#[derive(Debug, Clone, Copy)]
struct Barrier {
    round: u64,
    until: Option<Time>,
}

/// One node's agent. See the [module](super) for what it decides and how to drive it.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::agent::{Agent, AgentInput, AgentOutput, AgentSettings, Why};
///
/// let mut agent = Agent::new(AgentSettings::default());
/// agent.handle(Duration::ZERO, AgentInput::Begin);
/// assert_eq!(agent.poll_output(), Some(AgentOutput::Rendezvous { why: Why::Begin }));
/// agent.handle(Duration::from_secs(1), AgentInput::Signal(2));
/// assert_eq!(agent.poll_output(), Some(AgentOutput::Leave));
/// let Some(AgentOutput::Finish(result)) = agent.poll_output() else { panic!() };
/// assert_eq!(result.exit_code, 130);
/// ```
#[derive(Debug)]
pub struct Agent {
    settings: AgentSettings,
    state: AgentState,
    /// The number of starts.
    starts: u64,
    /// The number of rounds in a row without ranks for the workers.
    unplaced: u32,
    /// The round in which this node asked for a restart, until the next group forms.
    asked: Option<u64>,
    /// The workers that failed in the last start, in order.
    failures: Vec<WorkerFailure>,
    /// The number of signals that the launcher received.
    signals: u32,
    outputs: VecDeque<AgentOutput>,
}

impl Agent {
    /// An agent before [`AgentInput::Begin`].
    pub fn new(settings: AgentSettings) -> Self {
        Self {
            settings,
            state: AgentState::Idle,
            starts: 0,
            unplaced: 0,
            asked: None,
            failures: Vec::new(),
            signals: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Handles an input. Poll the outputs afterwards.
    pub fn handle(&mut self, now: Time, input: AgentInput) {
        match input {
            AgentInput::Begin => {
                if let AgentState::Idle = self.state {
                    self.rendezvous(Why::Begin);
                }
            }
            AgentInput::Formed(group) => self.formed(group),
            AgentInput::NotFormed(no_group) => self.not_formed(no_group),
            AgentInput::Placed { round, placement } => self.placed(now, round, placement),
            AgentInput::NotPlaced { round, reason } => self.not_placed(round, reason),
            AgentInput::NotStarted { attempt, reason } => self.not_started(now, attempt, reason),
            AgentInput::Exited(exited) => self.exited(now, exited),
            AgentInput::Stopped { attempt } => self.stopped(attempt),
            AgentInput::NotStopped { attempt, reason } => self.not_stopped(attempt, reason),
            AgentInput::Counted { round, answer } => self.counted(now, round, answer),
            AgentInput::BarrierPassed { round } => {
                if self.barrier().is_some_and(|barrier| barrier.round == round) {
                    self.outputs.push_back(AgentOutput::Close(CloseReason::Succeeded));
                    self.finish(NodeOutcome::Succeeded(PeersAtExit::Done));
                }
            }
            AgentInput::Changed { round, change } => self.changed(now, round, change),
            AgentInput::SessionLost { deadline, reason } => self.fenced(now, deadline, reason),
            AgentInput::Closed(closed) => self.run_closed(now, closed),
            AgentInput::Evicted(action) => self.evicted(now, action),
            AgentInput::Progress { attempt, latest } => self.progressed(now, attempt, latest),
            AgentInput::StacksWanted(request) => self.stacks_wanted(now, request),
            AgentInput::HangOver(over) => self.hang_over(now, over),
            AgentInput::HangReported(finding) => self.hang_reported(now, finding),
            AgentInput::Signal(signal) => self.signalled(now, signal),
            AgentInput::Started { .. } | AgentInput::Wake => {}
        }
        self.check_time(now);
    }

    /// The next output to execute.
    pub fn poll_output(&mut self) -> Option<AgentOutput> {
        self.outputs.pop_front()
    }

    /// The time of the next [`AgentInput::Wake`], unless another input comes first.
    pub fn next_wake(&self) -> Option<Time> {
        match &self.state {
            AgentState::Running(workers) => workers.watch.as_ref()?.next_look(),
            AgentState::Noticing(noticing) => Some(noticing.until),
            AgentState::Stopping(stopping) => stopping.next_wake(),
            AgentState::AtBarrier(barrier) => barrier.until,
            _ => None,
        }
    }

    /// What the agent waits for, in a few words; `None` while its workers run, and after the end.
    pub fn waits_for(&self) -> Option<&'static str> {
        Some(match &self.state {
            AgentState::Idle => "the start of the job",
            AgentState::Rendezvous => "a group to form",
            AgentState::Placing(_) => {
                "the other nodes of the group to say how many workers they have"
            }
            AgentState::Running(_) | AgentState::Finished => return None,
            AgentState::Noticing(..) => "the workers to save their work before they are stopped",
            AgentState::Stopping(stopping) => stopping.waits_for(),
            AgentState::AtBarrier(_) => "the workers of other nodes to finish",
        })
    }

    /// The end of the restart backoff, if the node is in one.
    pub fn pauses_until(&self) -> Option<Time> {
        match &self.state {
            AgentState::Stopping(stopping) => stopping.pauses_until(),
            _ => None,
        }
    }

    fn barrier(&self) -> Option<Barrier> {
        if let AgentState::AtBarrier(barrier) = self.state { Some(barrier) } else { None }
    }

    fn rendezvous(&mut self, why: Why) {
        self.state = AgentState::Rendezvous;
        self.outputs.push_back(AgentOutput::Rendezvous { why });
    }

    fn finish(&mut self, outcome: NodeOutcome) {
        self.state = AgentState::Finished;
        self.asked = None;
        self.outputs.push_back(AgentOutput::Leave);
        let exit_code = outcome.exit_code(self.settings.no_restart_exit_code);
        let failures = std::mem::take(&mut self.failures);
        self.outputs.push_back(AgentOutput::Finish(RunResult { exit_code, outcome, failures }));
    }

    fn formed(&mut self, group: NodeGroup) {
        if let AgentState::Rendezvous = self.state {
            self.asked = None;
            self.outputs.push_back(AgentOutput::AssignRanks(group.clone()));
            self.state = AgentState::Placing(group);
        }
    }

    fn not_formed(&mut self, no_group: NoGroup) {
        let AgentState::Rendezvous = self.state else { return };
        let outcome = match no_group {
            NoGroup::NotNeeded(reason) => {
                // A later group succeeded without this node, so its earlier failures do not matter.
                self.failures.clear();
                NodeOutcome::NotNeeded(reason)
            }
            NoGroup::Unfit(reason) => NodeOutcome::NodeFailed(NodeError::Unfit(reason)),
            NoGroup::ServerLost(reason) => NodeOutcome::NodeFailed(NodeError::ServerLost(reason)),
            NoGroup::Failed(reason) => NodeOutcome::NodeFailed(NodeError::NoGroup(reason)),
            NoGroup::Closed(closed) if closed.reason != CloseReason::Succeeded => {
                NodeOutcome::RunFailed(closed)
            }
            // The peers finished without this node, but this node has workers to restart.
            NoGroup::Closed(closed) if !self.failures.is_empty() => {
                NodeOutcome::NodeFailed(NodeError::LeftBehind(closed))
            }
            NoGroup::Closed(closed) => NodeOutcome::NotNeeded(closed.to_string()),
        };
        self.finish(outcome);
    }

    fn placed(&mut self, now: Time, round: u64, placement: Placement) {
        let AgentState::Placing(group) = &self.state else { return };
        if group.round != round {
            return;
        }
        let group = group.clone();
        let attempt = self.starts;
        self.starts += 1;
        self.unplaced = 0;
        self.failures.clear();
        self.state = AgentState::Running(StartedWorkers {
            attempt,
            round,
            nodes: group.nodes,
            base_rank: placement.base_rank,
            since: now,
            gone: BTreeSet::new(),
            watch: self.settings.hang.map(|policy| HangWatch::new(policy, now)),
            hung: false,
        });
        self.outputs.push_back(AgentOutput::StartWorkers(Start { attempt, group, placement }));
    }

    fn not_placed(&mut self, round: u64, reason: String) {
        if !matches!(&self.state, AgentState::Placing(group) if group.round == round) {
            return;
        }
        self.unplaced += 1;
        if self.unplaced < MOST_UNPLACED {
            return self.rendezvous(Why::NotPlaced(reason));
        }
        let attempts = self.unplaced;
        self.finish(NodeOutcome::NodeFailed(NodeError::NotPlaced { attempts, reason }));
    }

    /// Makes the transitions that time or completed stops allow.
    fn check_time(&mut self, now: Time) {
        match &self.state {
            AgentState::Running(_) => self.look_for_progress(now),
            AgentState::Noticing(noticing) if noticing.until <= now => {
                let Noticing { workers, why, leaves, .. } = noticing.clone();
                self.stop_and_then(now, workers, why, leaves);
            }
            AgentState::AtBarrier(Barrier { until: Some(until), .. }) if *until <= now => {
                self.outputs.push_back(AgentOutput::Close(CloseReason::Succeeded));
                self.finish(NodeOutcome::Succeeded(PeersAtExit::NotDone));
            }
            AgentState::Stopping(_) => self.proceed(now),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
