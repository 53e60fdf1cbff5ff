//! What the nodes of a job share besides the rendezvous: the count of its restarts, and the barrier at which
//! they wait for each other when their workers are done.

use rallypoint_core::agent::stacks::{OddNode, OddNodes};
use rallypoint_core::agent::{
    AgentInput, Departure, HangFinding, HangOver, HangRequest, HangRestart, Operation,
    OperatorAction, RestartBudget,
};

use crate::plan::Wrong;
use crate::top::{Alarm, RestartRequest};
use crate::world::events::{Timer, Who, World};
use crate::world::inspector::GroupId;
use crate::world::plan::Millis;

/// How the report of a hang begins.
pub(crate) const HEADLINE: &str = "it hangs";

/// How long to wait before a server is asked again.
const AGAIN: Millis = 200;

/// What a node tells its peers of a hang.
#[derive(Debug, Clone)]
pub(crate) enum HangNote {
    Began(HangRequest),
    Over(HangOver),
}

impl World {
    fn reaches_server(&self, who: Who) -> bool {
        !self.servers[0].down && !self.nodes[who].cut
    }

    /// The node asks for a restart, again and again until it has an answer.
    pub(crate) fn consumes(&mut self, who: Who, number: u64, request: RestartRequest) {
        if !self.reaches_server(who) {
            return self.ring(who, AGAIN, Timer::Top(Alarm::Consume(number, request)));
        }
        let RestartRequest { round, blame, lived } = request;
        let max = match self.job.wrong {
            Wrong::GrantsEveryRestart => u32::MAX,
            _ => self.job.work.max_restarts,
        };
        let (budget, answer) = self.budget_of(who).consume(round, max, &blame, lived);
        self.changes_budget(budget);
        let answer = Box::new(AgentInput::Counted { round, answer });
        self.alarm_in_order(who, 1, Alarm::Counted(number, answer));
    }

    /// The document of the restarts; if the server has forgotten it, what the node remembers of it.
    fn budget_of(&self, who: Who) -> RestartBudget {
        if self.job.budget != RestartBudget::default() {
            return self.job.budget.clone();
        }
        RestartBudget { used: self.nodes[who].top.budget.used, ..RestartBudget::default() }
    }

    /// The document of the restarts when a group begins. What the node remembers of it is written, if the server has
    /// forgotten it: another node may remember less.
    pub(crate) fn counts_restarts(&mut self, who: Who) -> RestartBudget {
        let budget = self.budget_of(who);
        self.changes_budget(budget.clone());
        budget
    }

    /// The server has forgotten everything. From here on the restarts of the new history are counted.
    pub(crate) fn top_forgets(&mut self) {
        self.job.budget = RestartBudget::default();
        self.job.restarted.clear();
        self.job.refunded.clear();
    }

    /// The node gives a restart back, if it can.
    pub(crate) fn refunds(&mut self, who: Who, round: u64, group: Option<GroupId>) {
        if !self.reaches_server(who) {
            return self.ring(who, AGAIN, Timer::Top(Alarm::Refund(round, group)));
        }
        self.changes_budget(self.budget_of(who).refund(round, ""));
        self.job.refunded.extend(group);
    }

    /// The node tells the other nodes that it leaves, if it can.
    pub(crate) fn announces(&mut self, who: Who, round: u64, stops_at: Millis, why: String) {
        if !self.reaches_server(who) {
            let again = Alarm::Announce(round, stops_at, why);
            return self.ring(who, AGAIN, Timer::Top(again));
        }
        let millis = stops_at.saturating_sub(self.now);
        self.changes_budget(self.budget_of(who).announce(Departure { round, millis, why }));
    }

    /// The node asks all others where their workers are, or says that its hang is over, if it can.
    pub(crate) fn tells_of_hang(&mut self, who: Who, note: HangNote) {
        if !self.reaches_server(who) {
            return self.ring(who, AGAIN, Timer::Top(Alarm::Hang(note)));
        }
        let budget = self.budget_of(who);
        self.changes_budget(match note {
            HangNote::Began(request) => budget.request_stacks(request),
            HangNote::Over(over) => budget.end_hang(over),
        });
    }

    /// Rank 0 has the stacks of all nodes, and they name an odd node, or none.
    pub(crate) fn reports_hang(&mut self, who: Who, request: &HangRequest) {
        let Some(group) = self.nodes[who].last_group else { return };
        let ranks = self.inspector.group(group).ranks.clone();
        if ranks.get(&self.nodes[who].id) != Some(&0) {
            return;
        }
        let ids: Vec<String> = ranks.into_keys().collect();
        let id = ids[self.random.below(ids.len())].clone();
        let nodes = match self.random.chance(700) {
            true => vec![OddNode { id, host: "host".into() }],
            false => Vec::new(),
        };
        let finding = HangFinding {
            round: request.round,
            number: request.number,
            headline: HEADLINE.into(),
            odd: OddNodes { nodes, reason: String::new() },
            spares: self.random.below(2) as u32,
        };
        self.alarm(who, Alarm::Process(AgentInput::HangReported(finding)));
    }

    /// Rank 0 restarts the job without the odd node, again and again until it has an answer.
    pub(crate) fn restarts_hung(&mut self, who: Who, number: u64, restart: HangRestart) {
        if !self.reaches_server(who) {
            return self.ring(who, AGAIN, Timer::Top(Alarm::RestartHung(number, restart)));
        }
        let round = restart.round;
        let eviction = |node: &String| OperatorAction {
            operation: Operation::Evict { node: node.clone() },
            by: self.nodes[who].id.clone(),
            reason: "it hangs".into(),
            round,
            at: None,
        };
        let evictions: Vec<OperatorAction> = restart.without.iter().map(eviction).collect();
        let max = match self.job.wrong {
            Wrong::GrantsEveryRestart => u32::MAX,
            _ => self.job.work.max_restarts,
        };
        let (budget, answer) = self.budget_of(who).restart_hung(&restart, max, &evictions);
        self.changes_budget(budget);
        let answer = Box::new(AgentInput::Counted { round, answer });
        self.alarm_in_order(who, 1, Alarm::Counted(number, answer));
    }

    /// Rings in order, for events: of processes (0), or of others (1).
    pub(crate) fn alarm_in_order(&mut self, who: Who, channel: usize, alarm: Alarm) {
        let delay = self.random.between(0, self.job.work.delay);
        let last = &mut self.nodes[who].top.told[channel];
        *last = (*last).max(self.now + delay);
        let delay = *last - self.now;
        self.ring(who, delay, Timer::Top(alarm));
    }

    /// Everybody hears of it.
    fn changes_budget(&mut self, budget: RestartBudget) {
        if budget == self.job.budget {
            return;
        }
        self.job.budget = budget.clone();
        for who in 0..self.nodes.len() {
            if self.nodes[who].alive {
                self.alarm_in_order(who, 1, Alarm::Hears(Box::new(budget.clone())));
            }
        }
    }

    /// The workers of the node are done. When those of the whole group are, all of its nodes may know.
    pub(crate) fn reaches_barrier(&mut self, who: Who) {
        let Some(id) = self.nodes[who].last_group else { return };
        let group = self.inspector.group(id);
        let (round, all) = (group.round, group.ranks.len());
        let done = self.job.done.entry(id).or_default();
        done.insert(self.nodes[who].id.clone());
        if done.len() < all {
            return;
        }
        for member in 0..self.nodes.len() {
            let node = &self.nodes[member];
            if node.alive && node.last_group == Some(id) {
                let passed = Alarm::Process(AgentInput::BarrierPassed { round });
                self.alarm_in_order(member, 0, passed);
            }
        }
    }
}
