//! A minimal agent on top of each node: it runs workers while the node is a member of a group, stops them when the group
//! must meet again, and enters when they have stopped. The time to stop is drawn per node.

use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::{CommandDone, FormedGroup, NodeInput, RendezvousFailure};

use crate::world::broken;
use crate::world::events::{Timer, Who, World, tell};
use crate::world::inspector::GroupId;
use crate::world::invariants::{Verdict, violation};
use crate::world::plan::{Fault, Millis};

/// The state that all agents share: none.
#[derive(Debug, Default)]
pub(crate) struct Job;

/// The state of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    /// The agent enters when its timer fires.
    Off,
    Meeting,
    /// Workers of this round run.
    Running(u64),
    /// Workers of this round are stopping.
    Stopping(u64),
    /// The node leaves, for good unless it returns.
    Leaving {
        returns: bool,
    },
}

/// A timer of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Alarm {
    Enter(u64),
    Reopen,
    /// The launcher notices that the workers of this start have ended.
    Gone(u64),
}

/// An event of workers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Process {
    /// The workers of this start have ended.
    Ends(u64),
}

/// The agent of a node, and its workers.
#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) agent: Agent,
    /// The group whose workers live.
    workers: Option<GroupId>,
    /// How often workers were started.
    starts: u64,
    /// How long the workers take to stop.
    stop: Millis,
    /// The workers must have ended when the session expires.
    hastened: bool,
    /// The number of the timer for entering that counts.
    entering: u64,
    /// The agent closed the run, and opens it again after this long.
    reopens_after: Option<Millis>,
}

impl World {
    pub(crate) fn new_top(&mut self) -> Top {
        Top {
            agent: Agent::Off,
            workers: None,
            starts: 0,
            stop: self.random.pick(self.plan.stops),
            hastened: false,
            entering: 0,
            reopens_after: None,
        }
    }

    pub(crate) fn top_comes(&mut self, who: Who) -> Verdict {
        self.enters_after(who, 0);
        Ok(())
    }

    /// The group whose workers live at this node.
    pub(crate) fn top_workers(&self, who: Who) -> Option<GroupId> {
        self.nodes[who].top.workers
    }

    /// Whether the node holds its liveness connection to rank 0.
    pub(crate) fn top_holds(&self, who: Who) -> bool {
        matches!(self.nodes[who].top.agent, Agent::Running(_) | Agent::Stopping(_))
    }

    pub(crate) fn top_is_leaving(&self, who: Who) -> bool {
        matches!(self.nodes[who].top.agent, Agent::Leaving { .. })
    }

    fn enters_after(&mut self, who: Who, delay: Millis) {
        let top = &mut self.nodes[who].top;
        top.agent = Agent::Off;
        top.entering += 1;
        let timer = Timer::Top(Alarm::Enter(top.entering));
        self.ring(who, delay, timer);
    }

    pub(crate) fn top_formed(&mut self, who: Who, formed: &FormedGroup) -> Verdict {
        let node = &mut self.nodes[who];
        if matches!(node.top.agent, Agent::Leaving { .. }) {
            return violation("orders", format!("{} left and was put into a group", node.id));
        }
        node.top.agent = Agent::Running(formed.round);
        node.top.workers = node.last_group;
        node.top.starts += 1;
        node.top.hastened = false;
        self.guard_begins(who)?;
        self.check_running(who)
    }

    pub(crate) fn top_failed(&mut self, who: Who, failure: &RendezvousFailure) -> Verdict {
        match failure {
            RendezvousFailure::Closed { .. } | RendezvousFailure::NotNeeded { .. } => {
                if self.healed || self.random.chance(300) {
                    self.ends(who, true);
                } else {
                    self.enters_after(who, 1_000);
                }
            }
            RendezvousFailure::TimedOut { .. }
            | RendezvousFailure::ServerLost { .. }
            | RendezvousFailure::CannotServeBootstrapStore { .. } => {
                let delay = self.random.between(0, 300);
                self.enters_after(who, delay);
            }
            RendezvousFailure::Mismatch { .. } | RendezvousFailure::Unreadable(_) => {
                return violation("sound", format!("{}: {failure:?}", self.nodes[who].id));
            }
        }
        Ok(())
    }

    pub(crate) fn top_done(&mut self, who: Who, done: CommandDone) -> Verdict {
        match (done, self.nodes[who].top.agent) {
            (CommandDone::Left, Agent::Leaving { returns: true }) => self.enters_after(who, 100),
            (CommandDone::Left, Agent::Leaving { returns: false }) => {
                let closes = self.random.chance(700);
                self.ends(who, closes);
            }
            (CommandDone::Closed, _) => {
                if let Some(delay) = self.nodes[who].top.reopens_after.take() {
                    self.ring(who, delay, Timer::Top(Alarm::Reopen));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks whether the group must meet again, and whether the node was replaced.
    pub(crate) fn top_looks(&mut self, who: Who) -> Verdict {
        let agent = self.nodes[who].top.agent;
        let (Agent::Running(round) | Agent::Stopping(round)) = agent else { return Ok(()) };
        let view = self.nodes[who].rendezvous.view(self.time());
        if matches!(agent, Agent::Running(_)) {
            let closed = view.closed.is_some() && self.plan.stops_when_closed;
            let must_meet = view.nodes_waiting > 0 || view.member_of != Some(round);
            if !must_meet && !closed {
                return Ok(());
            }
            tell!(self, "{} must meet again: {view:?}", self.nodes[who].id);
            if view.member_of == Some(round) && !closed {
                self.check_reason(who, round)?;
            }
            self.stops_workers(who, round);
        }
        let left_behind = view.replaced_by.is_some() && !broken::takes_its_time(self.broken);
        let fenced = self.nodes[who].fenced;
        let top = &mut self.nodes[who].top;
        if left_behind && top.workers.is_some() {
            return self.top_killed(who);
        }
        if let Some(end) = fenced
            && !std::mem::replace(&mut top.hastened, true)
        {
            // Half of the time is for them to go by themselves.
            let process = Process::Ends(top.starts);
            self.works_after(who, end.saturating_sub(self.now) / 2, process);
        }
        Ok(())
    }

    /// Stops the workers. A timer tells when they have ended.
    fn stops_workers(&mut self, who: Who, round: u64) {
        let noticed = self.random.between(0, 100);
        let top = &mut self.nodes[who].top;
        top.agent = Agent::Stopping(round);
        let (delay, starts) = (noticed + top.stop, top.starts);
        if top.workers.is_some() {
            self.works_after(who, delay, Process::Ends(starts));
        } else {
            self.ring(who, noticed, Timer::Top(Alarm::Gone(starts)));
        }
    }

    pub(crate) fn top_works(&mut self, who: Who, process: Process) -> Verdict {
        let Process::Ends(start) = process;
        if self.nodes[who].top.starts == start {
            return self.top_killed(who);
        }
        Ok(())
    }

    /// The guard has killed the workers, since the launcher was silent for too long.
    pub(crate) fn top_fenced(&mut self, who: Who) -> Verdict {
        self.top_killed(who)
    }

    /// The node's workers have ended.
    pub(crate) fn top_killed(&mut self, who: Who) -> Verdict {
        let top = &mut self.nodes[who].top;
        if top.workers.take().is_some() {
            let gone = Timer::Top(Alarm::Gone(top.starts));
            tell!(self, "the workers of {} are gone", self.nodes[who].id);
            self.ring(who, 0, gone);
        }
        Ok(())
    }

    pub(crate) fn top_rings(&mut self, who: Who, alarm: Alarm) -> Verdict {
        let top = &mut self.nodes[who].top;
        match alarm {
            Alarm::Enter(number) => {
                if top.agent != Agent::Off || top.entering != number {
                    return Ok(());
                }
                top.agent = Agent::Meeting;
                tell!(self, "{} enters", self.nodes[who].id);
                self.give(who, NodeInput::Enter)
            }
            Alarm::Reopen => self.give(who, NodeInput::Reopen),
            Alarm::Gone(start) => {
                let had = matches!(top.agent, Agent::Running(_) | Agent::Stopping(_));
                if had && top.starts == start {
                    self.enters_after(who, 0);
                }
                Ok(())
            }
        }
    }

    /// Carries out an action of an agent.
    pub(crate) fn top_goes(&mut self, fault: Fault) -> Verdict {
        match fault {
            Fault::Finish(who) => self.takes_leave(who, false),
            Fault::Return(who) => self.takes_leave(who, true),
            Fault::WorkersFail(who) => {
                if let Some(who) = self.awake(who)
                    && let Agent::Running(round) = self.nodes[who].top.agent
                {
                    self.stops_workers(who, round);
                }
                Ok(())
            }
            Fault::Close(who, reopens_after) => {
                let Some(who) = self.awake(who) else { return Ok(()) };
                tell!(self, "{} closes the run", self.nodes[who].id);
                self.nodes[who].top.reopens_after = reopens_after;
                let outcome = RunOutcome::Succeeded;
                self.give(who, NodeInput::Close { outcome, reason: "done".to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn takes_leave(&mut self, number: usize, returns: bool) -> Verdict {
        let Some(who) = self.awake(number) else { return Ok(()) };
        self.leaves(who, returns)
    }

    /// The node leaves. Its workers have ended by then.
    pub(crate) fn leaves(&mut self, who: Who, returns: bool) -> Verdict {
        let before = std::mem::replace(&mut self.nodes[who].top.agent, Agent::Leaving { returns });
        if matches!(before, Agent::Leaving { .. }) {
            return Ok(());
        }
        tell!(self, "{} leaves", self.nodes[who].id);
        self.top_killed(who)?;
        self.give(who, NodeInput::Leave)
    }

    /// The server has lost its state.
    pub(crate) fn top_forgets(&mut self) {}

    /// Invariants of the agents are checked where they can become false, so nothing is left for every step.
    pub(crate) fn check_step(&self) -> Verdict {
        Ok(())
    }
}
