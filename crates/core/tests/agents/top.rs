//! The agent on top of each node: the real one, driven as the launcher drives it.
//!
//! Whatever reaches the launcher does so through its clock, so that a launcher which stands still hears of it
//! later. Its workers do not wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rallypoint_core::agent::placement::Placement;
use rallypoint_core::agent::{
    Agent, AgentInput, AgentOutput, CloseReason, Exit, GroupChange, HangRestart, KnownGroup,
    NoGroup, NodeGroup, Operation, OperatorAction, RestartBudget, RunClosure, RunResult, Why,
};
use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::{
    CommandDone, FormedGroup, NodeInput as Rendezvous, RendezvousFailure,
};

use crate::events::Events;
use crate::invariants::Seen;
use crate::plan::{Work, Wrong};
use crate::shared::HangNote;
use crate::workers::ModelWorkers;
use crate::world::events::{Timer, Who, World, tell};
use crate::world::inspector::GroupId;
use crate::world::invariants::{Verdict, violation};
use crate::world::plan::{Fault, Millis};

/// How long the end of this node's part may take to tell the other nodes.
const GOODBYE: Millis = 10_000;

/// No signal: an operator evicts the node instead.
pub(crate) const EVICTION: i32 = 0;

fn evicted() -> AgentInput {
    let operation = Operation::Evict { node: String::new() };
    let (by, reason) = ("an operator".into(), String::new());
    AgentInput::Evicted(OperatorAction { operation, by, reason, round: 0, at: None })
}

/// What all agents have in common: their settings, the job's restarts, and who is done.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) wrong: Wrong,
    pub(crate) budget: RestartBudget,
    /// The groups after which a node has met again for a failure.
    pub(crate) restarted: BTreeSet<GroupId>,
    pub(crate) refunded: BTreeSet<GroupId>,
    /// Who is at the exit barrier of which group.
    pub(crate) done: BTreeMap<GroupId, BTreeSet<String>>,
    /// The run was closed at some time.
    pub(crate) closed: bool,
    pub(crate) seen: Seen,
}

impl Job {
    pub(crate) fn new(work: Work, wrong: Wrong) -> Self {
        Self {
            work,
            wrong,
            budget: RestartBudget::default(),
            restarted: BTreeSet::new(),
            refunded: BTreeSet::new(),
            done: BTreeMap::new(),
            closed: false,
            seen: Seen::default(),
        }
    }
}

/// What reaches a launcher.
#[derive(Debug, Clone)]
pub(crate) enum Alarm {
    /// The agent wants to be woken.
    Wake,
    /// Events of its processes.
    Process(AgentInput),
    /// What came of the errand of this number.
    Errand(u64, Box<AgentInput>),
    /// The node enters, on the errand of this number.
    Enter(u64),
    /// The run is to be closed.
    Close(CloseReason),
    /// The node tells its peers of a hang.
    Hang(HangNote),
    /// The job is to be restarted, since it hangs, on the errand of this number.
    RestartHung(u64, HangRestart),
    /// The budget is asked, on the errand of this number, and answers.
    Consume(u64, RestartRequest),
    Counted(u64, Box<AgentInput>),
    Refund(u64, Option<GroupId>),
    /// The other nodes of this round are told that the node leaves at this time, and why.
    Announce(u64, Millis, String),
    Hears(Box<RestartBudget>),
    /// Workers of this start that are left are killed.
    Kill(u64),
    /// All is said, or has taken too long: the node leaves.
    Leave,
    /// It does not wait for that any longer.
    Exit,
    Signal(i32),
}

/// What the budget is asked.
#[derive(Debug, Clone)]
pub(crate) struct RestartRequest {
    pub(crate) round: u64,
    pub(crate) blame: String,
    pub(crate) lived: Duration,
}

/// What happens to workers.
#[derive(Debug, Clone)]
pub(crate) enum Process {
    /// One of this start ends by itself.
    Ends(u64, u32, Exit),
}

/// The agent of a node, what drives it, and its workers.
#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) agent: Agent,
    pub(crate) result: Option<RunResult>,
    pub(crate) signalled: bool,
    /// Its last workers were stopped because the job hangs, and no restart is left.
    pub(crate) hung: bool,
    pub(crate) workers: Option<ModelWorkers>,
    pub(crate) placed: Option<(u64, Placement)>,
    events: Events,
    /// The round of the group that the launcher knows of.
    group: Option<u64>,
    asked: Option<u64>,
    pub(crate) budget: RestartBudget,
    /// What is waited for: one thing at a time, by its number; and the count of a restart.
    errand: u64,
    counting: u64,
    closing: bool,
    leaving: bool,
    wake: Option<Millis>,
    /// The times of the last events of its processes, and of others: both come in order.
    pub(crate) told: [Millis; 2],
}

impl Top {
    /// The round of the group that the launcher knows of.
    pub(crate) fn group(&self) -> Option<u64> {
        self.group
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.workers.as_ref().is_some_and(ModelWorkers::succeeded)
    }

    pub(crate) fn workers_failed(&self) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.failed().is_some())
    }
}

impl World {
    pub(crate) fn new_top(&mut self) -> Top {
        Top {
            agent: Agent::new(self.job.work.settings.clone()),
            result: None,
            signalled: false,
            hung: false,
            workers: None,
            placed: None,
            events: Events::default(),
            group: None,
            asked: None,
            budget: RestartBudget::default(),
            errand: 0,
            counting: 0,
            closing: false,
            leaving: false,
            wake: None,
            told: [0; 2],
        }
    }

    pub(crate) fn top_comes(&mut self, who: Who) -> Verdict {
        let settings = self.job.work.settings.clone();
        self.record_agent_beginning(who, &settings);
        self.takes(who, Some(AgentInput::Begin))
    }

    /// Whether the node holds on to its connection to rank 0: until it enters, or leaves.
    pub(crate) fn top_holds(&self, who: Who) -> bool {
        self.nodes[who].top.group.is_some() && !self.nodes[who].top.leaving
    }

    pub(crate) fn top_is_leaving(&self, who: Who) -> bool {
        self.nodes[who].top.leaving
    }

    pub(crate) fn alarm(&mut self, who: Who, alarm: Alarm) {
        let delay = self.random.between(0, self.job.work.delay);
        self.ring(who, delay, Timer::Top(alarm));
    }

    pub(crate) fn top_formed(&mut self, who: Who, formed: &FormedGroup) -> Verdict {
        let FormedGroup { round, rank, world, ref store, .. } = *formed;
        let restarts = self.counts_restarts(who).used_before(round);
        let group = NodeGroup { round, rank, nodes: world, restarts, store: store.clone() };
        let met = Alarm::Errand(self.nodes[who].top.errand, Box::new(AgentInput::Formed(group)));
        self.alarm_in_order(who, 1, met);
        Ok(())
    }

    pub(crate) fn top_failed(&mut self, who: Who, failure: &RendezvousFailure) -> Verdict {
        let no_group = match failure {
            RendezvousFailure::Closed(closed) => NoGroup::Closed(RunClosure::from(closed)),
            RendezvousFailure::NotNeeded(closed) => NoGroup::NotNeeded(closed.reason.clone()),
            RendezvousFailure::Mismatch { .. } | RendezvousFailure::Unreadable(_) => {
                return violation("sound", format!("{}: {failure:?}", self.nodes[who].id));
            }
            failure => NoGroup::Failed(format!("{failure:?}")),
        };
        let met =
            Alarm::Errand(self.nodes[who].top.errand, Box::new(AgentInput::NotFormed(no_group)));
        self.alarm_in_order(who, 1, met);
        Ok(())
    }

    pub(crate) fn top_done(&mut self, who: Who, errand: CommandDone) -> Verdict {
        let top = &mut self.nodes[who].top;
        match errand {
            CommandDone::Left if top.leaving => self.ends(who, true),
            CommandDone::Closed => {
                top.closing = false;
                if top.result.is_some() {
                    self.alarm(who, Alarm::Leave);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The launcher looks at what its handler tells.
    pub(crate) fn top_looks(&mut self, who: Who) -> Verdict {
        self.takes(who, None)
    }

    /// Something happened; and whatever else is so by now, the agent is told as well.
    pub(crate) fn takes(&mut self, who: Who, input: Option<AgentInput>) -> Verdict {
        if let Some(AgentInput::Formed(group)) = &input {
            let top = &mut self.nodes[who].top;
            top.group = Some(group.round);
            top.events.begin();
        }
        if let Some(input) = input {
            self.handles(who, input)?;
        }
        if !self.nodes[who].alive || self.nodes[who].top.result.is_some() {
            return Ok(());
        }
        let view = self.nodes[who].rendezvous.view(self.time());
        let node = &mut self.nodes[who];
        let top = &mut node.top;
        let known = top.group.map(|round| KnownGroup { round, asked: top.asked == Some(round) });
        let mut events = top.events.tell((&view, &top.budget), known, node.fenced);
        if let Some(action) = top.budget.eviction_of(&node.id) {
            events.push(AgentInput::Evicted(action.clone()));
        }
        for input in events {
            let lost =
                matches!(&input, AgentInput::Changed { change: GroupChange::PeerLost(_), .. });
            if !(lost && self.job.wrong == Wrong::LosesEvents) {
                self.handles(who, input)?;
            }
        }
        self.check_left_behind(who, &view)
    }

    fn handles(&mut self, who: Who, input: AgentInput) -> Verdict {
        if !self.nodes[who].alive {
            return Ok(());
        }
        tell!(self, "{} agent: {input:?}", self.nodes[who].id);
        if let AgentInput::Placed { round, placement } = &input {
            self.nodes[who].top.placed = Some((*round, *placement));
        }
        let time = self.time();
        let recorded = self.records.is_some().then(|| input.clone());
        let agent = &mut self.nodes[who].top.agent;
        agent.handle(time, input);
        let outputs: Vec<AgentOutput> = std::iter::from_fn(|| agent.poll_output()).collect();
        if let Some(input) = recorded {
            self.record_agent(who, &input, &outputs);
        }
        for output in outputs {
            tell!(self, "{} agent says {output:?}", self.nodes[who].id);
            self.job.seen.note(&output);
            self.check_output(who, &output)?;
            self.does(who, output)?;
        }
        let wake = self.nodes[who].top.agent.next_wake();
        let wake = wake.map(|wake| wake.as_nanos().div_ceil(1_000_000) as Millis);
        if wake != self.nodes[who].top.wake {
            self.nodes[who].top.wake = wake;
            if let Some(wake) = wake {
                self.ring(who, wake.saturating_sub(self.now), Timer::Top(Alarm::Wake));
            }
        }
        Ok(())
    }

    /// What the launcher does.
    fn does(&mut self, who: Who, output: AgentOutput) -> Verdict {
        let round_of = |workers: &ModelWorkers| workers.group;
        let last_group = self.nodes[who].last_group;
        let top = &mut self.nodes[who].top;
        match output {
            AgentOutput::Rendezvous { why } => {
                let restarted = match &why {
                    Why::WorkerFailed(_) => top.workers.as_ref().map(round_of),
                    // A node may hear of the hang before it has started workers in that group.
                    Why::Changed(GroupChange::Hung(_)) => last_group,
                    _ => None,
                };
                self.job.restarted.extend(restarted);
                (top.group, top.counting) = (None, top.counting + 1);
                top.events.begin();
                top.errand += 1;
                let enter = Alarm::Enter(top.errand);
                self.alarm(who, enter);
            }
            AgentOutput::AssignRanks(group) => {
                top.errand += 1;
                let errand = top.errand;
                let (round, local) = (group.round, self.job.work.settings.local_workers);
                let placement = Placement::identical(group.rank, group.nodes, local);
                let answer = match self.troubled(self.job.work.trouble) {
                    true => AgentInput::NotPlaced { round, reason: "time-out".into() },
                    false => AgentInput::Placed { round, placement },
                };
                self.alarm(who, Alarm::Errand(errand, Box::new(answer)));
            }
            AgentOutput::StartWorkers(start) => return self.starts(who, &start),
            AgentOutput::NotifyWorkers { attempt, stops_at, .. } => {
                self.notified(who, attempt, stops_at.as_millis() as Millis);
            }
            AgentOutput::StopWorkers { attempt, signal, kill_at, why } => {
                top.hung = matches!(why, Why::Hung(_));
                self.stops(who, attempt, signal, kill_at.as_millis() as Millis);
            }
            AgentOutput::Announce { round, stops_at, why } => {
                self.alarm(who, Alarm::Announce(round, stops_at.as_millis() as Millis, why));
            }
            AgentOutput::ConsumeRestart { round, blame, lived } => {
                top.asked = Some(round);
                top.counting += 1;
                let request = Alarm::Consume(top.counting, RestartRequest { round, blame, lived });
                self.alarm(who, request);
            }
            AgentOutput::RefundRestart { round, .. } => {
                let group = top.workers.as_ref().map(round_of);
                self.alarm(who, Alarm::Refund(round, group));
            }
            AgentOutput::CheckProgress { attempt } => self.looks_for_progress(who, attempt),
            AgentOutput::RequestStacks(hang) => self.alarm(who, Alarm::Hang(HangNote::Began(hang))),
            AgentOutput::EndHang(over) => self.alarm(who, Alarm::Hang(HangNote::Over(over))),
            AgentOutput::TakeStacks(request) => self.reports_hang(who, &request),
            AgentOutput::RestartHung(restart) => {
                top.counting += 1;
                let request = Alarm::RestartHung(top.counting, restart);
                self.alarm(who, request);
            }
            AgentOutput::ExitBarrier { .. } => {
                top.errand += 1;
                self.reaches_barrier(who);
            }
            AgentOutput::Close(closing) => {
                top.closing = true;
                self.alarm(who, Alarm::Close(closing));
            }
            AgentOutput::Leave => (top.errand, top.counting) = (top.errand + 1, top.counting + 1),
            AgentOutput::Finish(result) => {
                top.result = Some(result);
                if !top.closing {
                    self.alarm(who, Alarm::Leave);
                }
                self.ring(who, GOODBYE, Timer::Top(Alarm::Leave));
            }
        }
        Ok(())
    }

    pub(crate) fn top_rings(&mut self, who: Who, alarm: Alarm) -> Verdict {
        let now = self.now;
        let node = &mut self.nodes[who];
        let top = &mut node.top;
        match alarm {
            Alarm::Wake => self.takes(who, Some(AgentInput::Wake)),
            Alarm::Process(input) => self.takes(who, Some(input)),
            Alarm::Signal(EVICTION) => self.takes(who, Some(evicted())),
            Alarm::Signal(signal) => self.takes(who, Some(AgentInput::Signal(signal))),
            // Workers start only while the node is sure of its place: it may have stood still.
            Alarm::Errand(number, input)
                if number == top.errand
                    && matches!(*input, AgentInput::Placed { .. })
                    && node.guard.deadline.is_some_and(|deadline| deadline <= now) =>
            {
                self.ring(who, 20, Timer::Top(Alarm::Errand(number, input)));
                Ok(())
            }
            Alarm::Errand(number, input) if number == top.errand => self.takes(who, Some(*input)),
            Alarm::Counted(number, input) if number == top.counting => {
                self.takes(who, Some(*input))
            }
            Alarm::Enter(number) if number == top.errand => self.give(who, Rendezvous::Enter),
            Alarm::Errand(..) | Alarm::Counted(..) | Alarm::Enter(_) => Ok(()),
            Alarm::Close(closing) => {
                let (outcome, reason) = (closing.outcome(), closing.message().to_owned());
                self.give(who, Rendezvous::Close { outcome, reason })
            }
            Alarm::Consume(number, request) if number == top.counting => {
                self.consumes(who, number, request);
                Ok(())
            }
            Alarm::RestartHung(number, restart) if number == top.counting => {
                self.restarts_hung(who, number, restart);
                Ok(())
            }
            Alarm::Consume(..) | Alarm::RestartHung(..) => Ok(()),
            Alarm::Announce(round, stops_at, why) => {
                self.announces(who, round, stops_at, why);
                Ok(())
            }
            Alarm::Hang(note) => {
                self.tells_of_hang(who, note);
                Ok(())
            }
            Alarm::Refund(round, group) => {
                self.refunds(who, round, group);
                Ok(())
            }
            Alarm::Hears(budget) => {
                top.budget = *budget;
                self.takes(who, None)
            }
            Alarm::Kill(attempt) => {
                self.kills(who, attempt);
                Ok(())
            }
            Alarm::Leave => {
                if !std::mem::replace(&mut top.leaving, true) {
                    self.ring(who, GOODBYE, Timer::Top(Alarm::Exit));
                    return self.give(who, Rendezvous::Leave);
                }
                Ok(())
            }
            Alarm::Exit => {
                self.ends(who, false);
                Ok(())
            }
        }
    }

    /// What happens to agents.
    pub(crate) fn top_goes(&mut self, fault: Fault) -> Verdict {
        match fault {
            Fault::WorkersFail(who) => {
                if let Some(who) = self.someone(who) {
                    self.fails(who);
                }
                Ok(())
            }
            // An operator, by way of one of the nodes.
            Fault::Close(who, _) => {
                let Some(who) = self.awake(who) else { return Ok(()) };
                let outcome = RunOutcome::Failed;
                self.give(who, Rendezvous::Close { outcome, reason: "enough".into() })
            }
            Fault::Signal(who, signal, twice) => {
                let Some(who) = self.someone(who) else { return Ok(()) };
                self.nodes[who].top.signalled = true;
                if twice {
                    self.ring(who, 20, Timer::Top(Alarm::Signal(signal)));
                }
                self.ring(who, 0, Timer::Top(Alarm::Signal(signal)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether a fault with this probability, in thousandths, occurs.
    pub(crate) fn troubled(&mut self, per_mille: u64) -> bool {
        !self.healed && self.random.chance(per_mille)
    }
}
