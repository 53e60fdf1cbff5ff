//! The policy, line by line. An output is written in a few words, so that a test reads as a story.

mod evictions;
mod hangs;
mod outcomes;
mod restarts;
mod stops;

use std::time::Duration;

use super::*;
use crate::agent::failure::Exit;
use crate::agent::hang::{HangFinding, HangPolicy, HangRequest, HangRestart, OnHang};
use crate::agent::messages::{Exited, GroupChange};
use crate::agent::outcome::RunClosure;
use crate::agent::restarts::{Departure, RestartAnswer};
use crate::rendezvous::documents::Address;

/// An agent with two workers, the second of two nodes unless told otherwise, at a time in seconds.
struct Story {
    agent: Agent,
    now: u64,
    round: u64,
}

impl Story {
    fn begin(settings: AgentSettings) -> Self {
        let settings = AgentSettings { host: "here".into(), local_workers: 2, ..settings };
        let mut story = Self { agent: Agent::new(settings), now: 0, round: 0 };
        assert_eq!(story.give(AgentInput::Begin), ["rendezvous: this node is new"]);
        story
    }

    /// Its workers run.
    fn running(settings: AgentSettings) -> Self {
        let mut story = Self::begin(settings);
        story.forms(2);
        story
    }

    /// The next group forms, and the workers start.
    fn forms(&mut self, nodes: u32) {
        assert_eq!(self.meets(nodes), [format!("assign {}", self.round)]);
        let (round, placement) = (self.round, Placement::identical(1, nodes, 2));
        let started = self.give(AgentInput::Placed { round, placement });
        assert_eq!(started, [format!("start {}", self.agent.starts - 1)]);
    }

    fn meets(&mut self, nodes: u32) -> Vec<String> {
        self.round += 1;
        let store = Address { host: "host".into(), port: 1 };
        let group = NodeGroup { round: self.round, rank: 1, nodes, restarts: 0, store };
        self.give(AgentInput::Formed(group))
    }

    fn give(&mut self, input: AgentInput) -> Vec<String> {
        self.agent.handle(Duration::from_secs(self.now), input);
        std::iter::from_fn(|| self.agent.poll_output()).map(|output| brief(&output)).collect()
    }

    /// A worker of the last start exits.
    fn exits(&mut self, local_rank: u32, exit: Exit) -> Vec<String> {
        let attempt = self.agent.starts - 1;
        self.give(AgentInput::Exited(Exited { attempt, local_rank, exit, message: None }))
    }

    fn fails(&mut self) -> Vec<String> {
        self.exits(1, Exit::Code(7))
    }

    fn stopped(&mut self) -> Vec<String> {
        let attempt = self.agent.starts - 1;
        self.give(AgentInput::Stopped { attempt })
    }

    fn changes(&mut self, change: GroupChange) -> Vec<String> {
        let round = self.round;
        self.give(AgentInput::Changed { round, change })
    }

    fn counted(&mut self, answer: RestartAnswer) -> Vec<String> {
        let round = self.round;
        self.give(AgentInput::Counted { round, answer })
    }

    fn fenced(&mut self, deadline: u64) -> Vec<String> {
        let deadline = Duration::from_secs(deadline);
        self.give(AgentInput::SessionLost { deadline, reason: "silence".into() })
    }

    fn closed(&mut self, reason: CloseReason) -> Vec<String> {
        self.give(AgentInput::Closed(RunClosure { by: "a".into(), reason }))
    }

    fn wakes_at(&self) -> Option<u64> {
        self.agent.next_wake().map(|wake| wake.as_secs())
    }
}

fn brief(output: &AgentOutput) -> String {
    match output {
        AgentOutput::Rendezvous { why } => format!("rendezvous: {why}"),
        AgentOutput::AssignRanks(group) => format!("assign {}", group.round),
        AgentOutput::StartWorkers(start) => format!("start {}", start.attempt),
        AgentOutput::NotifyWorkers { attempt, stops_at, why } => {
            format!("notify {attempt} of stop at {}: {why}", stops_at.as_secs())
        }
        AgentOutput::StopWorkers { attempt, signal, kill_at, .. } => {
            format!("stop {attempt} by {signal}, kill at {}", kill_at.as_secs())
        }
        AgentOutput::Announce { round, stops_at, why } => {
            format!("announce {round} of stop at {}: {why}", stops_at.as_secs())
        }
        AgentOutput::ConsumeRestart { round, .. } => format!("count {round}"),
        AgentOutput::RefundRestart { round, .. } => format!("refund {round}"),
        AgentOutput::CheckProgress { attempt } => format!("look {attempt}"),
        AgentOutput::RequestStacks(HangRequest { round, number, host, millis, .. }) => {
            format!("ask {round}.{number}: {host} silent for {millis} ms")
        }
        AgentOutput::EndHang(over) => format!("over {}.{}", over.round, over.number),
        AgentOutput::RestartHung(HangRestart { round, blame, without, .. }) => {
            format!("restart {round} without {without:?}: {blame}")
        }
        AgentOutput::TakeStacks(request) => format!("stacks {}.{}", request.round, request.number),
        AgentOutput::ExitBarrier { round } => format!("barrier {round}"),
        AgentOutput::Close(reason) => format!("close: {reason}"),
        AgentOutput::Leave => "leave".into(),
        AgentOutput::Finish(RunResult { exit_code, outcome, .. }) => {
            format!("exit {exit_code}: {outcome}")
        }
    }
}

const FAILED: &str = "rank 3 (local rank 1 on here) failed with exit code 7";

/// After workers that had lived for long.
fn granted() -> RestartAnswer {
    RestartAnswer::Granted { short_lives: 0 }
}

fn refused() -> RestartAnswer {
    RestartAnswer::Refused { used: 2, blame: "rank 0 failed".into() }
}

fn lost() -> GroupChange {
    GroupChange::PeerLost(vec!["b".into()])
}
