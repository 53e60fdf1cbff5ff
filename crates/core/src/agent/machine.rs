//! The machine: what state a node's agent is in, and what each input makes of it.
//!
//! `workers` is about those that end by themselves, `news` is what comes from outside, and `stopping` is the
//! part that begins when the workers are to go.

mod news;
mod stopping;
mod workers;

use std::collections::{BTreeSet, VecDeque};

use self::stopping::Stopping;
use super::ending::{Closing, Ending, Others, Outcome, Trouble};
use super::failure::Failure;
use super::interface::{Change, Group, Input, NoGroup, Output, Settings, Start};
use super::placement::Placement;
use super::why::Why;
use crate::kv::Time;

/// A store in which ranks cannot be agreed on so many rounds in a row is not likely to get better.
const MOST_UNPLACED: u32 = 3;

/// Where the agent is. The [module](super) has a picture.
#[derive(Debug)]
enum State {
    Idle,
    Meeting,
    Placing(Group),
    Running(Crew),
    Noticing(Noticing),
    Stopping(Stopping),
    AtBarrier(Barrier),
    Finished,
}

/// The workers of one start.
#[derive(Debug, Clone)]
struct Crew {
    attempt: u64,
    round: u64,
    nodes: u32,
    base_rank: u32,
    /// When they were started.
    since: Time,
    /// The local ranks of those that are gone.
    gone: BTreeSet<u32>,
}

/// The workers were told that they will be stopped.
#[derive(Debug, Clone)]
struct Noticing {
    crew: Crew,
    until: Time,
    why: Why,
    /// By this signal the node was told to go when they are.
    leaves: Option<i32>,
}

impl Noticing {
    /// A member leaves, this one or another: that it is gone is no news then.
    fn is_of_a_departure(&self) -> bool {
        self.leaves.is_some() || matches!(self.why, Why::Changed(Change::PeerLeaves(_)))
    }
}

/// The workers are done, and others may not be.
#[derive(Debug, Clone, Copy)]
struct Barrier {
    round: u64,
    until: Option<Time>,
}

/// One node's agent. See the [module](super) for what it decides and how to drive it.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::agent::{Agent, Input, Output, Settings, Why};
///
/// let mut agent = Agent::new(Settings::default());
/// agent.handle(Duration::ZERO, Input::Begin);
/// assert_eq!(agent.poll_output(), Some(Output::Meet { why: Why::Begin }));
/// agent.handle(Duration::from_secs(1), Input::Signal(2));
/// assert_eq!(agent.poll_output(), Some(Output::Leave));
/// let Some(Output::Finish(outcome)) = agent.poll_output() else { panic!() };
/// assert_eq!(outcome.exit_code, 130);
/// ```
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    state: State,
    /// How many times workers were started.
    starts: u64,
    /// In how many rounds in a row the workers got no ranks.
    unplaced: u32,
    /// The round in which a restart was asked for, until the next group forms.
    asked: Option<u64>,
    /// The workers that failed in the last start, in order.
    failures: Vec<Failure>,
    /// How many signals the launcher got.
    signals: u32,
    outputs: VecDeque<Output>,
}

impl Agent {
    /// An agent that has not begun.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: State::Idle,
            starts: 0,
            unplaced: 0,
            asked: None,
            failures: Vec::new(),
            signals: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened. Fetch the outputs afterwards.
    pub fn handle(&mut self, now: Time, input: Input) {
        match input {
            Input::Begin => {
                if let State::Idle = self.state {
                    self.meet(Why::Begin);
                }
            }
            Input::Formed(group) => self.formed(group),
            Input::NotFormed(no_group) => self.not_formed(no_group),
            Input::Placed { round, placement } => self.placed(now, round, placement),
            Input::NotPlaced { round, reason } => self.not_placed(round, reason),
            Input::NotStarted { attempt, reason } => self.not_started(now, attempt, reason),
            Input::Exited(exited) => self.exited(now, exited),
            Input::Stopped { attempt } => self.stopped(attempt),
            Input::NotStopped { attempt, reason } => self.not_stopped(attempt, reason),
            Input::Counted { round, answer } => self.counted(round, answer),
            Input::BarrierPassed { round } => {
                if self.barrier().is_some_and(|barrier| barrier.round == round) {
                    self.outputs.push_back(Output::Close(Closing::Done));
                    self.finish(Ending::Succeeded(Others::Done));
                }
            }
            Input::Changed { round, change } => self.changed(now, round, change),
            Input::SessionLost { deadline, reason } => self.fenced(now, deadline, reason),
            Input::Closed(closed) => self.run_closed(now, closed),
            Input::Signal(signal) => self.signalled(now, signal),
            Input::Wake => {}
        }
        self.check_time(now);
    }

    /// What is to be done, in order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Wake`] if nothing else happens before.
    pub fn next_wake(&self) -> Option<Time> {
        match &self.state {
            State::Noticing(noticing) => Some(noticing.until),
            State::Stopping(stopping) => stopping.next_wake(),
            State::AtBarrier(barrier) => barrier.until,
            _ => None,
        }
    }

    /// What the agent waits for, in a few words; nothing if its workers run, or if it is over.
    pub fn waits_for(&self) -> Option<&'static str> {
        Some(match &self.state {
            State::Idle => "the word to begin",
            State::Meeting => "a group to form",
            State::Placing(_) => "the other nodes of the group to say how many workers they have",
            State::Running(_) | State::Finished => return None,
            State::Noticing(..) => "the workers to save their work before they are stopped",
            State::Stopping(stopping) => stopping.waits_for(),
            State::AtBarrier(_) => "the workers of other nodes to finish",
        })
    }

    /// Until when the node pauses before workers that live only shortly are started again, if it does.
    pub fn pauses_until(&self) -> Option<Time> {
        match &self.state {
            State::Stopping(stopping) => stopping.pauses_until(),
            _ => None,
        }
    }

    fn barrier(&self) -> Option<Barrier> {
        if let State::AtBarrier(barrier) = self.state { Some(barrier) } else { None }
    }

    fn meet(&mut self, why: Why) {
        self.state = State::Meeting;
        self.outputs.push_back(Output::Meet { why });
    }

    fn finish(&mut self, ending: Ending) {
        self.state = State::Finished;
        self.asked = None;
        self.outputs.push_back(Output::Leave);
        let exit_code = ending.exit_code(self.settings.no_restart_exit_code);
        let failures = std::mem::take(&mut self.failures);
        self.outputs.push_back(Output::Finish(Outcome { exit_code, ending, failures }));
    }

    fn formed(&mut self, group: Group) {
        if let State::Meeting = self.state {
            self.asked = None;
            self.outputs.push_back(Output::AssignRanks(group.clone()));
            self.state = State::Placing(group);
        }
    }

    fn not_formed(&mut self, no_group: NoGroup) {
        let State::Meeting = self.state else { return };
        let ending = match no_group {
            NoGroup::NotNeeded(reason) => {
                // A later group has done without this node, so what failed here before is made good.
                self.failures.clear();
                Ending::NotNeeded(reason)
            }
            NoGroup::Failed(reason) => Ending::NodeFailed(Trouble::NoGroup(reason)),
            NoGroup::Closed(closed) if closed.closing != Closing::Done => Ending::RunFailed(closed),
            // The others did not need this node, but this node needed them.
            NoGroup::Closed(closed) if !self.failures.is_empty() => {
                Ending::NodeFailed(Trouble::LeftBehind(closed))
            }
            NoGroup::Closed(closed) => Ending::NotNeeded(closed.to_string()),
        };
        self.finish(ending);
    }

    fn placed(&mut self, now: Time, round: u64, placement: Placement) {
        let State::Placing(group) = &self.state else { return };
        if group.round != round {
            return;
        }
        let group = group.clone();
        let attempt = self.starts;
        self.starts += 1;
        self.unplaced = 0;
        self.failures.clear();
        self.state = State::Running(Crew {
            attempt,
            round,
            nodes: group.nodes,
            base_rank: placement.base_rank,
            since: now,
            gone: BTreeSet::new(),
        });
        self.outputs.push_back(Output::StartWorkers(Start { attempt, group, placement }));
    }

    fn not_placed(&mut self, round: u64, reason: String) {
        if !matches!(&self.state, State::Placing(group) if group.round == round) {
            return;
        }
        self.unplaced += 1;
        if self.unplaced < MOST_UNPLACED {
            return self.meet(Why::NotPlaced(reason));
        }
        let attempts = self.unplaced;
        self.finish(Ending::NodeFailed(Trouble::NotPlaced { attempts, reason }));
    }

    /// Does what is due, and what has become possible.
    fn check_time(&mut self, now: Time) {
        match &self.state {
            State::Noticing(noticing) if noticing.until <= now => {
                let Noticing { crew, why, leaves, .. } = noticing.clone();
                self.stop_and_then(now, crew, why, leaves);
            }
            State::AtBarrier(Barrier { until: Some(until), .. }) if *until <= now => {
                self.outputs.push_back(Output::Close(Closing::Done));
                self.finish(Ending::Succeeded(Others::NotDone));
            }
            State::Stopping(_) => self.proceed(now),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
