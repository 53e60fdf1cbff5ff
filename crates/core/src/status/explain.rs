//! A run in sentences: what it waits for and since when, why its round began, and what would help.

use std::time::Duration;

use serde::Serialize;

use super::{
    LeaseMargin, NodeState, NodeStatus, RunState, RunStatus, capital, count, hang, rounds, some_of,
};
use crate::agent::{NodeExit, OperatorAction, RestartVerdict};
use crate::rendezvous::documents::{DisplayTime, RunOutcome};

/// What a sentence is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Topic {
    /// The state of the run, and since when.
    State,
    /// What the run waits for.
    Wait,
    /// Why it came to this.
    Cause,
    /// What is wrong, or soon may be.
    Trouble,
    /// What would help.
    Remedy,
}

/// One sentence about a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sentence {
    /// What it is about.
    pub topic: Topic,
    /// The sentence.
    pub text: String,
}

/// Explains a run. `now` is the reader's time of day, by which the age of the state is shown.
///
/// Of past rounds, it tells what the last events of the run say of the last three.
pub fn explain(status: &RunStatus, now: DisplayTime) -> Vec<Sentence> {
    let mut told = Explanation { status, now, sentences: Vec::new() };
    match status.state {
        RunState::None => told.no_round(),
        RunState::Joinable => told.joinable(),
        RunState::Frozen => told.frozen(),
        RunState::Final => told.running(),
        RunState::Closed => told.closed(),
    }
    told.past();
    told.troubles();
    let Explanation { mut sentences, .. } = told;
    // Remedies come last, where a reader looks for them.
    sentences.sort_by_key(|sentence| sentence.topic == Topic::Remedy);
    sentences
}

struct Explanation<'a> {
    status: &'a RunStatus,
    now: DisplayTime,
    sentences: Vec<Sentence>,
}

impl<'a> Explanation<'a> {
    fn say(&mut self, topic: Topic, text: impl Into<String>) {
        self.sentences.push(Sentence { topic, text: text.into() });
    }

    fn nodes(&self, state: NodeState) -> Vec<&'a NodeStatus> {
        self.status.nodes.iter().filter(|node| node.state == state).collect()
    }

    /// How long the state has lasted, after a comma; nothing if its author wrote no time.
    fn lasting(&self) -> String {
        let lasted = self.status.since.map(|since| self.now.elapsed_since(since));
        lasted.map(|lasted| format!(", for {} now", age(lasted))).unwrap_or_default()
    }

    fn no_round(&mut self) {
        let RunStatus { run, round, nodes, .. } = self.status;
        match (round, nodes.len()) {
            (0, 0) => {
                self.say(
                    Topic::State,
                    format!(
                        "This server has no run {run:?}: no node has joined it, or its documents \
                     have expired."
                    ),
                );
                self.say(
                    Topic::Remedy,
                    "`rallypoint status` without a run lists the runs of the server. Check \
                     --rdzv-id and --rdzv-endpoint of the nodes, and whether they have \
                     started.",
                );
            }
            (round, 0) => {
                self.say(
                    Topic::State,
                    format!(
                        "Run {run:?} has no round in progress and no node: round {round} was its \
                     last."
                    ),
                );
                self.say(Topic::Remedy, "Start its nodes again; round numbers go on.");
            }
            (round, nodes) => {
                let nodes = count(nodes, "live node");
                self.say(
                    Topic::State,
                    format!(
                        "Run {run:?} has no round in progress: round {round} has lost its \
                     coordinator, or the run was opened again."
                    ),
                );
                self.say(
                    Topic::Wait,
                    format!(
                        "It has {nodes}, and one of them opens the next round as soon as its \
                     workers have stopped."
                    ),
                );
            }
        }
    }

    fn joinable(&mut self) {
        let RunStatus { run, round, counts, .. } = self.status;
        let lasting = self.lasting();
        self.say(
            Topic::State,
            format!("Run {run:?} forms a group: round {round} takes nodes{lasting}."),
        );
        let limits = self.status.wanted();
        if counts.needed > 0 {
            let here = names(&self.nodes(NodeState::Joined));
            let needed = counts.needed;
            self.say(
                Topic::Wait,
                format!(
                    "It has {} of {limits} nodes ({here}), and waits for {needed} more.",
                    counts.present
                ),
            );
            self.missing();
            // Members that are stopping their workers are about to join.
            let to_start = needed.saturating_sub(self.nodes(NodeState::Stopping).len());
            if to_start > 0 {
                self.say(
                    Topic::Remedy,
                    format!(
                        "Start {} with the same --rdzv-id and --rdzv-endpoint, or look at the \
                         logs of those that should be there. --rdzv-conf timeout=SECONDS lets the \
                         others wait longer.",
                        count(to_start, "more node")
                    ),
                );
            }
        }
        self.unresolved();
        for node in self.nodes(NodeState::Objector) {
            self.say(
                Topic::Trouble,
                format!(
                    "{} does not join: it {}, and the round has min:max nodes {}:{}.",
                    named(node),
                    node.note,
                    counts.min,
                    counts.max
                ),
            );
            self.say(
                Topic::Remedy,
                "Start all nodes with the same --nnodes, sizes and rank policy.",
            );
        }
        if let Some(lack) = &self.status.lacks_quorum {
            self.say(Topic::Wait, format!("It waits: {lack}."));
            self.say(
                Topic::Remedy,
                format!(
                    "Bring back the hosts of the last group, whose launchers join by themselves. Only if the missing \
                     nodes are gone for good, `rallypoint reopen --force {run}` lets the group form without them; if they \
                     still run somewhere, there are two groups then."
                ),
            );
        }
        let waits = self.sentences.iter().any(|told| told.topic == Topic::Wait);
        if !waits {
            self.say(Topic::Wait, self.status.last_call());
        }
    }

    /// Nodes that the run lacks, by name or by rank.
    fn missing(&mut self) {
        let ranks = self.status.missing.iter().filter(|node| node.id.is_none());
        let ranks = ranks.filter(|node| node.last_exit.is_none());
        let ranks: Vec<String> = ranks.filter_map(|node| Some(node.rank?.to_string())).collect();
        if !ranks.is_empty() {
            let (noun, verb) = if ranks.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
            self.say(Topic::Wait, format!("Node {noun} {} {verb} not been seen.", some_of(ranks)));
        }
        for node in &self.status.missing {
            let exit = node.last_exit.as_ref().map(|exit| self.ended(exit));
            match (&node.id, node.rank, exit) {
                (Some(id), rank, exit) => {
                    let rank = rank.map(|rank| format!(", rank {rank} of the last group,"));
                    let (rank, why) =
                        (rank.unwrap_or_default(), exit.unwrap_or_else(|| node.why.clone()));
                    self.say(Topic::Wait, format!("{id}{rank} is gone: {why}."));
                }
                (None, Some(rank), Some(exit)) => {
                    self.say(
                        Topic::Wait,
                        format!("Node rank {rank} was here and is gone: {exit}."),
                    );
                }
                (None, ..) => {}
            }
        }
    }

    /// How a node ended, and when.
    fn ended(&self, exit: &NodeExit) -> String {
        let ago = exit.at.map(|at| format!("{} ago ", age(self.now.elapsed_since(at))));
        let NodeExit { node, code, reason, .. } = exit;
        let reason = reason.trim_end_matches('.');
        format!("{node} ended {}with exit code {code}: {reason}", ago.unwrap_or_default())
    }

    /// Members of the last group that may still have workers.
    fn unresolved(&mut self) {
        let mut names = Vec::new();
        let (mut left, mut known) = (0, true);
        for state in [NodeState::Stopping, NodeState::Suspect] {
            for node in self.nodes(state) {
                names.push(named(node));
                known &= node.lease.is_some();
                left = left.max(node.lease.map_or(0, |lease| lease.left_s));
            }
        }
        if names.is_empty() {
            return;
        }
        let several = names.len() > 1;
        self.say(
            Topic::Wait,
            format!(
                "It waits for {} to stop {} workers of the last group: no group forms beside them.",
                some_of(names),
                if several { "their" } else { "its" },
            ),
        );
        let when = if known { format!(" in {left} s at the latest") } else { String::new() };
        let whose = if several { "their leases expire" } else { "its lease expires" };
        self.say(
            Topic::Remedy,
            format!(
                "Workers get --shutdown-timeout to exit and are then killed; if the node is \
                 dead, the round goes on when {whose}{when}."
            ),
        );
    }

    fn frozen(&mut self) {
        let RunStatus { run, round, counts, .. } = self.status;
        let lasting = self.lasting();
        let nodes = count(counts.present + counts.lost, "node");
        self.say(
            Topic::State,
            format!(
                "Run {run:?} forms a group: round {round} has assigned the ranks of \
             {nodes}{lasting}."
            ),
        );
        let silent = self.nodes(NodeState::Joined);
        if !silent.is_empty() {
            self.say(Topic::Wait, format!("It waits for {} to confirm.", names(&silent)));
            self.say(
                Topic::Remedy,
                "A node that does not confirm within its lease_ttl is not waited for in the \
                 next round; its log says why it does not.",
            );
        }
        self.missing();
    }

    fn running(&mut self) {
        let RunStatus { run, round, counts, .. } = self.status;
        let (nodes, lasting) = (count(counts.present, "node"), self.lasting());
        let limits = self.status.wanted();
        self.say(
            Topic::State,
            format!(
                "Run {run:?} runs: round {round} has a group of {nodes} ({limits} wanted){lasting}."
            ),
        );
        let lost = self.nodes(NodeState::Lost);
        if !lost.is_empty() {
            self.missing();
            self.say(Topic::Wait, "The other members stop their workers and form another group.");
        }
        for node in self.nodes(NodeState::Suspect) {
            self.say(
                Topic::Trouble,
                format!(
                    "{} may be dead: a member has lost its connection to it. Its lease{} decides.",
                    named(node),
                    margin(node.lease)
                ),
            );
        }
        for node in self.nodes(NodeState::Member).into_iter().filter(|node| !node.note.is_empty()) {
            self.say(Topic::Trouble, format!("{} {}.", named(node), node.note));
        }
        if let Some(hang) = self.status.current_hang() {
            for told in hang::sentences(hang, self.now) {
                self.say(Topic::Trouble, told);
            }
            self.say(Topic::Remedy, hang::remedy(hang, run));
        }
        let waiting = self.nodes(NodeState::Waiting);
        if !waiting.is_empty() {
            self.say(
                Topic::Wait,
                format!("{} joined late; {}.", names(&waiting), self.status.grows(self.now)),
            );
        }
        let spare = self.nodes(NodeState::Spare);
        if !spare.is_empty() {
            self.say(
                Topic::State,
                format!(
                    "{} stands by as a spare: {}.",
                    names(&spare),
                    self.status.spares_because()
                ),
            );
        }
        if let Some(room) = self.status.room() {
            self.say(Topic::Remedy, room);
        }
        if self.status.restarts.left == Some(0) {
            self.say(
                Topic::Trouble,
                "No restart is left: the next failure of a worker closes the run.",
            );
        }
    }

    fn closed(&mut self) {
        let Some(closed) = &self.status.closed else { return };
        let RunStatus { run, .. } = self.status;
        let since = self.status.since.map(|since| age(self.now.elapsed_since(since)));
        let since = since.map(|since| format!(" {since} ago")).unwrap_or_default();
        let how = match closed.outcome {
            RunOutcome::Succeeded => "succeeded",
            RunOutcome::Failed => "failed",
            RunOutcome::NonRetryable => "failed for good",
        };
        self.say(
            Topic::State,
            format!("Run {run:?} {how}, and was closed{since} by {}.", closed.by),
        );
        if !closed.reason.is_empty() {
            self.say(
                Topic::Cause,
                format!("The reason given: {}.", closed.reason.trim_end_matches('.')),
            );
        }
        let stopping = self.nodes(NodeState::Stopping);
        if !stopping.is_empty() {
            self.say(Topic::Wait, format!("{} may still be stopping workers.", names(&stopping)));
        }
        self.say(
            Topic::Remedy,
            format!(
                "`rallypoint reopen {run}` lets nodes join again; a new job takes another \
             --rdzv-id."
            ),
        );
    }

    /// Why the round began, the last failure, and what operators did.
    fn past(&mut self) {
        let RunStatus { round, round_reason, last_failure, restarts, actions, .. } = self.status;
        if !round_reason.is_empty() {
            self.say(Topic::Cause, format!("Round {round} began because: {round_reason}."));
        }
        let in_progress = (self.status.state != RunState::Closed).then_some(*round);
        for told in rounds::past(&self.status.events, in_progress, self.now) {
            self.say(Topic::Cause, told);
        }
        if let Some(failure) = last_failure {
            let what = if failure.hang { "The job hung" } else { "Workers failed" };
            let of = restarts.max.map(|max| format!(" of {max}")).unwrap_or_default();
            let verdict = match failure.verdict {
                RestartVerdict::Counted => {
                    format!("it used a restart ({}{of} used)", restarts.used)
                }
                RestartVerdict::Refused => "no restart was left".to_owned(),
                RestartVerdict::Refunded => {
                    "it followed the loss of a node, and used no restart".to_owned()
                }
            };
            self.say(
                Topic::Cause,
                format!("{what} in round {}: {}; {verdict}.", failure.round, failure.blame),
            );
        }
        for action in actions.iter().rev().take(3).rev() {
            let told = sentence(action);
            let when = action.at.map(|at| format!(" ({} ago)", age(self.now.elapsed_since(at))));
            self.say(
                Topic::Cause,
                format!("{}{}.", told.trim_end_matches('.'), when.unwrap_or_default()),
            );
        }
    }

    fn troubles(&mut self) {
        for problem in &self.status.problems {
            let is_rank = problem.starts_with("node rank ");
            self.say(Topic::Trouble, capital(problem) + ".");
            if is_rank {
                self.say(Topic::Remedy, "Give each node a --node-rank of its own, or none.");
            }
        }
        let late = |lease: LeaseMargin| lease.ttl_s >= 4 && lease.left_s < lease.ttl_s / 4;
        for node in &self.status.nodes {
            if node.lease.is_some_and(late) {
                self.say(
                    Topic::Trouble,
                    format!(
                        "{} renews its lease late{}: it is suspended, overloaded or cut off.",
                        named(node),
                        margin(node.lease)
                    ),
                );
            }
        }
    }
}

fn sentence(action: &OperatorAction) -> String {
    capital(&action.to_string())
}

/// A node by its id, with its host unless the id begins with it.
fn named(node: &NodeStatus) -> String {
    match node.host.as_str() {
        "" => node.id.clone(),
        host if node.id.starts_with(host) => node.id.clone(),
        host => format!("{} on {host}", node.id),
    }
}

fn names(nodes: &[&NodeStatus]) -> String {
    some_of(nodes.iter().map(|node| named(node)))
}

fn margin(lease: Option<LeaseMargin>) -> String {
    let margin = |lease: LeaseMargin| format!(", with {} of {} s left,", lease.left_s, lease.ttl_s);
    lease.map(margin).unwrap_or_default()
}

/// A time for people: two units at most.
///
/// ```
/// use std::time::Duration;
/// use rallypoint_core::status::age;
/// assert_eq!(age(Duration::from_millis(900)), "0 s");
/// assert_eq!(age(Duration::from_secs(75)), "1 min 15 s");
/// assert_eq!(age(Duration::from_secs(7_260)), "2 h 1 min");
/// assert_eq!(age(Duration::from_secs(90_000)), "1 d 1 h");
/// ```
pub fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let first = units.iter().position(|(_, unit)| seconds >= *unit).unwrap_or(3);
    let mut left = seconds;
    let part = |(name, unit): &(&str, u64)| {
        let number = left / unit;
        left %= unit;
        (number, format!("{number} {name}"))
    };
    let parts: Vec<(u64, String)> = units.iter().skip(first).take(2).map(part).collect();
    let shown = parts.iter().enumerate().filter(|(place, (number, _))| *place == 0 || *number > 0);
    shown.map(|(_, (_, text))| text.as_str()).collect::<Vec<_>>().join(" ")
}
