//! The policy, line by line. An output is written in a few words, so that a test reads as a story.

mod endings;
mod restarts;
mod stops;

use std::time::Duration;

use super::*;
use crate::agent::budget::{Answer, Departure};
use crate::agent::ending::Closed;
use crate::agent::failure::Exit;
use crate::agent::interface::{Change, Exited};
use crate::rendezvous::documents::Address;

/// An agent with two workers, the second of two nodes unless told otherwise, at a time in seconds.
struct Story {
    agent: Agent,
    now: u64,
    round: u64,
}

impl Story {
    fn begin(settings: Settings) -> Self {
        let settings = Settings { host: "here".into(), local_workers: 2, ..settings };
        let mut story = Self { agent: Agent::new(settings), now: 0, round: 0 };
        assert_eq!(story.give(Input::Begin), ["meet: this node is new"]);
        story
    }

    /// Its workers run.
    fn running(settings: Settings) -> Self {
        let mut story = Self::begin(settings);
        story.forms(2);
        story
    }

    /// The next group forms, and the workers start.
    fn forms(&mut self, nodes: u32) {
        assert_eq!(self.meets(nodes), [format!("assign {}", self.round)]);
        let (round, placement) = (self.round, Placement::identical(1, nodes, 2));
        let started = self.give(Input::Placed { round, placement });
        assert_eq!(started, [format!("start {}", self.agent.starts - 1)]);
    }

    fn meets(&mut self, nodes: u32) -> Vec<String> {
        self.round += 1;
        let store = Address { host: "host".into(), port: 1 };
        let group = Group { round: self.round, rank: 1, nodes, restarts: 0, store };
        self.give(Input::Formed(group))
    }

    fn give(&mut self, input: Input) -> Vec<String> {
        self.agent.handle(Duration::from_secs(self.now), input);
        std::iter::from_fn(|| self.agent.poll_output()).map(|output| brief(&output)).collect()
    }

    /// A worker of the last start exits.
    fn exits(&mut self, local_rank: u32, exit: Exit) -> Vec<String> {
        let attempt = self.agent.starts - 1;
        self.give(Input::Exited(Exited { attempt, local_rank, exit, message: None }))
    }

    fn fails(&mut self) -> Vec<String> {
        self.exits(1, Exit::Code(7))
    }

    fn stopped(&mut self) -> Vec<String> {
        let attempt = self.agent.starts - 1;
        self.give(Input::Stopped { attempt })
    }

    fn changes(&mut self, change: Change) -> Vec<String> {
        let round = self.round;
        self.give(Input::Changed { round, change })
    }

    fn counted(&mut self, answer: Answer) -> Vec<String> {
        let round = self.round;
        self.give(Input::Counted { round, answer })
    }

    fn fenced(&mut self, deadline: u64) -> Vec<String> {
        let deadline = Duration::from_secs(deadline);
        self.give(Input::SessionLost { deadline, reason: "silence".into() })
    }

    fn closed(&mut self, closing: Closing) -> Vec<String> {
        self.give(Input::Closed(Closed { by: "a".into(), closing }))
    }

    fn wakes_at(&self) -> Option<u64> {
        self.agent.next_wake().map(|wake| wake.as_secs())
    }
}

fn brief(output: &Output) -> String {
    match output {
        Output::Meet { why } => format!("meet: {why}"),
        Output::AssignRanks(group) => format!("assign {}", group.round),
        Output::StartWorkers(start) => format!("start {}", start.attempt),
        Output::NotifyWorkers { attempt, stops_at, why } => {
            format!("notify {attempt} of stop at {}: {why}", stops_at.as_secs())
        }
        Output::StopWorkers { attempt, signal, kill_at, .. } => {
            format!("stop {attempt} by {signal}, kill at {}", kill_at.as_secs())
        }
        Output::Announce { round, stops_at, why } => {
            format!("announce {round} of stop at {}: {why}", stops_at.as_secs())
        }
        Output::CountRestart { round, .. } => format!("count {round}"),
        Output::ForgiveRestart { round, .. } => format!("forgive {round}"),
        Output::ExitBarrier { round } => format!("barrier {round}"),
        Output::Close(closing) => format!("close: {closing}"),
        Output::Leave => "leave".into(),
        Output::Finish(Outcome { exit_code, ending, .. }) => format!("exit {exit_code}: {ending}"),
    }
}

const FAILED: &str = "rank 3 (local rank 1 on here) failed with exit code 7";

/// After workers that had lived for long.
fn granted() -> Answer {
    Answer::Granted { short_lives: 0 }
}

fn refused() -> Answer {
    Answer::Refused { used: 2, blame: "rank 0 failed".into() }
}

fn lost() -> Change {
    Change::PeerLost(vec!["b".into()])
}
