//! Virtual time, and what the agents' outputs come to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rallypoint_core::agent::placement::Placement;
use rallypoint_core::agent::{Agent, Budget, Closed, Exit, Input, Outcome, Output, Settings, Why};

use crate::invariants::{Seen, Verdict, broken};
use crate::meeting::Group;
use crate::plan::{Millis, Mishap, Plan};
use crate::random::Random;
use crate::workers::Crew;

/// Names a node.
pub(crate) type Who = usize;

/// More happenings than this mean that somebody goes round in circles.
const MOST_STEPS: u64 = 100_000;

/// Something that will happen.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    /// An agent learns something.
    Told(Who, Input),
    /// An agent's time has come.
    Wakes(Who),
    /// A process ends by itself.
    Ends(Who, u64, u32, Exit),
    /// What is left of the processes is killed.
    Killed(Who, u64),
    /// A node reaches the others, on its nth visit.
    Joins(Who, u64),
    /// A node has waited long enough.
    GivesUp(Who, u64),
    /// A member of this round is not there any more, and the others may know.
    Lost(Who, u64),
    /// A group may form.
    Forms,
    /// A node asks for a restart, or gives one back.
    Charges(Who, u64, String),
    Forgives(u64),
    /// Trouble.
    Goes(Mishap),
    /// From now on nothing goes wrong.
    Heals,
}

/// A node: its agent, its processes, and where it stands with the others.
pub(crate) struct Node {
    pub(crate) agent: Agent,
    pub(crate) alive: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) signalled: bool,
    pub(crate) crew: Option<Crew>,
    pub(crate) placed: Option<(u64, Placement)>,
    pub(crate) meeting: Option<u64>,
    pub(crate) joined: bool,
    pub(crate) spare: bool,
    pub(crate) cut_until: Millis,
    /// It has lost its session, and counts as there until then.
    pub(crate) leased_until: Option<Millis>,
    /// Its workers must be gone by then.
    pub(crate) fenced: Option<Millis>,
    wake: Option<Millis>,
    /// When the last news came, of its processes and of the others: both come in order.
    told: [Millis; 2],
}

impl Node {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            agent: Agent::new(settings),
            alive: true,
            outcome: None,
            signalled: false,
            crew: None,
            placed: None,
            meeting: None,
            joined: false,
            spare: false,
            cut_until: 0,
            leased_until: None,
            fenced: None,
            wake: None,
            told: [0; 2],
        }
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.crew.as_ref().is_some_and(Crew::succeeded)
    }

    pub(crate) fn workers_failed(&self) -> bool {
        self.crew.as_ref().is_some_and(|crew| crew.failed().is_some())
    }

    pub(crate) fn takes_part(&self) -> bool {
        self.alive && self.outcome.is_none()
    }
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: Millis,
    pub(crate) healed: bool,
    pub(crate) nodes: Vec<Node>,
    pub(crate) visits: u64,
    pub(crate) round: u64,
    pub(crate) group: Option<Group>,
    pub(crate) closed: Option<Closed>,
    pub(crate) budget: Budget,
    /// The rounds after which a node has met again for a failure.
    pub(crate) restarted: BTreeSet<u64>,
    pub(crate) forgiven: BTreeSet<u64>,
    pub(crate) seen: Seen,
    pub(crate) trace: Option<Vec<String>>,
    queue: BTreeMap<(Millis, u64, u64), Happening>,
    planned: u64,
    steps: u64,
}

impl World {
    pub(crate) fn new(plan: Plan, random: Random, tracing: bool) -> Self {
        Self {
            plan,
            random,
            now: 0,
            healed: false,
            nodes: Vec::new(),
            visits: 0,
            round: 0,
            group: None,
            closed: None,
            budget: Budget::default(),
            restarted: BTreeSet::new(),
            forgiven: BTreeSet::new(),
            seen: Seen::default(),
            trace: tracing.then(Vec::new),
            queue: BTreeMap::new(),
            planned: 0,
            steps: 0,
        }
    }

    pub(crate) fn whole_run(&mut self) -> Verdict {
        for _ in 0..self.plan.nodes {
            let delay = self.random.between(0, 300);
            self.after(delay, Happening::Goes(Mishap::Arrive));
        }
        for (when, mishap) in self.plan.mishaps.clone() {
            self.after(when, Happening::Goes(mishap));
        }
        self.after(self.plan.chaos.max(300), Happening::Heals);
        while let Some(((now, ..), happening)) = self.queue.pop_first() {
            self.now = now;
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return broken("an end", format!("not after {MOST_STEPS} steps"));
            }
            self.happens(happening)?;
            self.check()?;
        }
        self.check_ended()
    }

    pub(crate) fn after(&mut self, delay: Millis, happening: Happening) {
        // Of two things at the same moment, either may come first.
        self.planned += 1;
        let key = (self.now + delay, self.random.next(), self.planned);
        self.queue.insert(key, happening);
    }

    /// Tells an agent. News of its processes, and news of the others, each come in order.
    pub(crate) fn tell(&mut self, who: Who, input: Input) {
        let mut when = self.now + self.random.between(0, self.plan.delay);
        let channel = match &input {
            Input::Exited(_) | Input::Stopped { .. } | Input::NotStopped { .. } => Some(0),
            Input::Formed(_) | Input::NotFormed(_) | Input::Changed { .. } => Some(1),
            Input::SessionLost { .. } | Input::Closed(_) => Some(1),
            _ => None,
        };
        if let Some(channel) = channel {
            let last = &mut self.nodes[who].told[channel];
            when = when.max(*last + 1);
            *last = when;
        }
        self.after(when - self.now, Happening::Told(who, input));
    }

    /// Whether something goes wrong that does so many times in a thousand.
    pub(crate) fn troubled(&mut self, per_mille: u64) -> bool {
        !self.healed && self.random.chance(per_mille)
    }

    fn happens(&mut self, happening: Happening) -> Verdict {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>7} {happening:?}", self.now));
        }
        match happening {
            Happening::Told(who, input) => return self.give(who, input),
            Happening::Wakes(who) => return self.give(who, Input::Wake),
            Happening::Ends(who, attempt, local_rank, exit) => {
                self.ends(who, attempt, local_rank, exit);
            }
            Happening::Killed(who, attempt) => self.killed(who, attempt),
            Happening::Joins(who, visit) => self.joins(who, visit),
            Happening::GivesUp(who, visit) => self.gives_up(who, visit),
            Happening::Lost(who, round) => self.lost(who, round),
            Happening::Forms => self.forms(),
            Happening::Charges(who, round, blame) => self.charges(who, round, &blame),
            Happening::Forgives(round) => {
                self.budget = self.budget.forgive(round, "");
                self.forgiven.insert(round);
            }
            Happening::Goes(mishap) => return self.goes(mishap),
            Happening::Heals => self.healed = true,
        }
        Ok(())
    }

    pub(crate) fn give(&mut self, who: Who, input: Input) -> Verdict {
        if !self.nodes[who].alive {
            return Ok(());
        }
        if let Input::Placed { round, placement } = &input {
            self.nodes[who].placed = Some((*round, *placement));
        }
        self.nodes[who].agent.handle(Duration::from_millis(self.now), input);
        while let Some(output) = self.nodes[who].agent.poll_output() {
            if let Some(trace) = &mut self.trace {
                trace.push(format!("{:>7}   node {who}: {output:?}", self.now));
            }
            self.seen.note(&output);
            self.check_output(who, &output)?;
            self.does(who, output);
        }
        let wake = self.nodes[who].agent.next_wake();
        let wake = wake.map(|wake| wake.as_nanos().div_ceil(1_000_000) as Millis);
        if wake != self.nodes[who].wake {
            self.nodes[who].wake = wake;
            if let Some(wake) = wake {
                self.after(wake.saturating_sub(self.now), Happening::Wakes(who));
            }
        }
        Ok(())
    }

    /// What a driver would do.
    fn does(&mut self, who: Who, output: Output) {
        let delay = self.random.between(0, self.plan.delay);
        match output {
            Output::Meet { why } => {
                if let (Why::WorkerFailed(_), Some(crew)) = (&why, &self.nodes[who].crew) {
                    self.restarted.insert(crew.round);
                }
                self.meets(who);
            }
            Output::AssignRanks(group) => {
                let round = group.round;
                let local = self.plan.settings.local_workers;
                let placement = Placement::identical(group.rank, group.nodes, local);
                let reason = "time-out".to_owned();
                let answer = match self.troubled(self.plan.trouble) {
                    true => Input::NotPlaced { round, reason },
                    false => Input::Placed { round, placement },
                };
                self.tell(who, answer);
            }
            Output::StartWorkers(start) => self.starts(who, &start),
            Output::NotifyWorkers { attempt, stops_at, .. } => {
                self.notified(who, attempt, stops_at.as_millis() as Millis);
            }
            Output::StopWorkers { attempt, signal, kill_at, .. } => {
                self.stops(who, attempt, signal, kill_at.as_millis() as Millis);
            }
            Output::CountRestart { round, blame } => {
                self.after(delay, Happening::Charges(who, round, blame));
            }
            Output::ForgiveRestart { round, .. } => self.after(delay, Happening::Forgives(round)),
            Output::ExitBarrier { round } => self.reaches_barrier(who, round),
            Output::Close(closing) => self.closes(format!("node {who}"), closing),
            Output::Leave => self.leaves(who),
            Output::Finish(outcome) => self.nodes[who].outcome = Some(outcome),
        }
    }
}
