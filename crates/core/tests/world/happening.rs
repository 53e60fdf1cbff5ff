//! Virtual time, and everything that is under way in it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rallypoint_core::kv::{Event, LeaseId, Time, Txn, TxnResult};
use rallypoint_core::rendezvous::{Purpose, RequestId, WatchId};

use super::broken::Broken;
use super::inspector::Inspector;
use super::invariants::{Verdict, violation};
use super::node::SimNode;
use super::plan::{Millis, Mishap, Plan};
use super::random::Random;
use super::server::Server;
use crate::top::{Alarm, Job, Process};

/// A node, by its place in the list. A node that comes back from the dead is another.
pub(crate) type Who = usize;

/// What a node sends to the server.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Txn { id: RequestId, purpose: Purpose, txn: Rc<Txn> },
    Grant { number: u64, sent: Millis },
    Renew { number: u64, lease: LeaseId, sent: Millis },
    GrantRun,
    Revoke { lease: LeaseId },
}

/// What reaches a node. Streams have epochs: what was under way when one broke is lost.
#[derive(Debug, Clone)]
pub(crate) enum Delivery {
    Answer { id: RequestId, purpose: Purpose, result: Rc<TxnResult> },
    NoLease,
    Granted { number: u64, sent: Millis, lease: LeaseId },
    Renewed { number: u64, sent: Millis, alive: bool },
    Snapshot { epoch: u64, found: Rc<TxnResult> },
    Active { epoch: u64, events: Vec<Event> },
    ActiveCompacted { epoch: u64 },
    Watching { epoch: u64, id: WatchId },
    Watched { epoch: u64, id: WatchId, watch: usize, events: Vec<Event> },
    WatchBroken { id: WatchId },
    Hosting { round: u64, works: bool, port: u16 },
    Dropped { peer: Who },
}

/// What a node has set its clock for.
#[derive(Debug, Clone)]
pub(crate) enum Timer {
    Wake,
    Resend(RequestId),
    GrantAgain(u64),
    Renew(u64),
    Expiry(u64),
    AskAgain(u64, LeaseId),
    /// What the agent on top has set its clock for.
    Top(Alarm),
}

#[derive(Debug)]
pub(crate) enum Happening {
    Arrives(Who, Message),
    Delivered(Who, Delivery),
    Rings(Who, Timer),
    /// The guard of the node's workers looks at the clock.
    GuardLooks(Who),
    /// Something happens to the node's workers.
    Works(Who, Process),
    /// The launcher is gone, and its guard kills the workers.
    GuardKills(Who),
    /// Somebody has proof that this node is dead, and ends its lease.
    Proves(Who, LeaseId, Vec<Who>),
    Connects(Who),
    LeasesEnd,
    Goes(Mishap),
    Resumes(Who),
    Mends(Who),
    /// A server is there again, and has forgotten so much.
    ServerUp(Memory),
    Comes,
}

/// What a server that went away remembers when it is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Everything.
    Whole,
    /// What is so, but not how it became so.
    Compacted,
    /// Nothing: it was in memory.
    None,
}

struct Queued {
    at: Millis,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// So many of the last happenings are told when something is wrong.
const TRACE: usize = 60;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: Millis,
    pub(crate) server: Server,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) inspector: Inspector,
    /// What the agents on top have in common.
    pub(crate) job: Job,
    pub(crate) broken: Broken,
    /// Nothing goes wrong any more.
    pub(crate) healed: bool,
    /// What happened last; kept only when a failure is being told, for it costs more than the run.
    pub(crate) trace: Option<VecDeque<String>>,
    queue: BinaryHeap<Reverse<Queued>>,
    sequence: u64,
    pub(crate) steps: u64,
    /// How often a node was asked to listen: every time at another port.
    pub(crate) hosted: u16,
}

/// Notes down what happens, if anyone wants to know.
macro_rules! tell {
    ($world:expr, $($text:tt)*) => {
        if $world.trace.is_some() {
            let text = format!($($text)*);
            $world.note(text);
        }
    };
}
pub(crate) use tell;

impl World {
    pub(crate) fn new(plan: Plan, job: Job, random: Random, broken: Broken, tracing: bool) -> Self {
        let mut world = Self {
            job,
            server: Server::new(),
            inspector: Inspector::new(&plan.settings),
            plan,
            random,
            now: 0,
            nodes: Vec::new(),
            broken,
            healed: false,
            trace: tracing.then(VecDeque::new),
            queue: BinaryHeap::new(),
            sequence: 0,
            steps: 0,
            hosted: 0,
        };
        for _ in 0..world.plan.nodes {
            let at = world.random.between(0, world.plan.gathering);
            world.at(at, Happening::Comes);
        }
        for (at, mishap) in world.plan.mishaps.clone() {
            world.at(at, Happening::Goes(mishap));
        }
        world
    }

    pub(crate) fn time(&self) -> Time {
        Duration::from_millis(self.now)
    }

    pub(crate) fn note(&mut self, text: String) {
        let line = format!("{:>7} {text}", self.now);
        let Some(trace) = &mut self.trace else { return };
        if trace.len() == TRACE {
            trace.pop_front();
        }
        trace.push_back(line);
    }

    pub(crate) fn at(&mut self, at: Millis, what: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), sequence: self.sequence, what }));
    }

    pub(crate) fn after(&mut self, delay: Millis, what: Happening) {
        self.at(self.now + delay, what);
    }

    pub(crate) fn works_after(&mut self, who: Who, delay: Millis, process: Process) {
        self.after(delay, Happening::Works(who, process));
    }

    pub(crate) fn ring(&mut self, who: Who, delay: Millis, timer: Timer) {
        self.after(delay, Happening::Rings(who, timer));
    }

    /// Lets everything happen that happens up to `end`.
    pub(crate) fn run_until(&mut self, end: Millis) -> Verdict {
        while let Some(Reverse(next)) = self.queue.peek() {
            if next.at > end {
                break;
            }
            let Some(Reverse(next)) = self.queue.pop() else { break };
            self.now = next.at;
            self.steps += 1;
            if self.steps > self.plan.steps {
                return violation("quiet", format!("{} steps and no end", self.steps));
            }
            self.happens(next.what)?;
            self.check_step()?;
        }
        self.now = end;
        Ok(())
    }

    pub(crate) fn happens(&mut self, what: Happening) -> Verdict {
        match what {
            Happening::Arrives(who, message) => self.arrives(who, message),
            Happening::Delivered(who, _) | Happening::Rings(who, _) if !self.nodes[who].alive => {
                Ok(())
            }
            what @ (Happening::Delivered(who, _) | Happening::Rings(who, _))
                if self.nodes[who].stands_still() =>
            {
                self.nodes[who].inbox.push(what);
                Ok(())
            }
            what @ (Happening::Works(who, _) | Happening::GuardLooks(who))
                if self.nodes[who].sleeps() =>
            {
                self.nodes[who].inbox.push(what);
                Ok(())
            }
            what @ Happening::Works(who, _) if self.nodes[who].has_still_workers() => {
                self.after(50, what);
                Ok(())
            }
            Happening::Delivered(who, delivery) => self.delivered(who, delivery),
            Happening::Rings(who, timer) => self.rings(who, timer),
            Happening::GuardLooks(who) => self.guard_looks(who),
            Happening::GuardKills(who) => self.top_killed(who),
            Happening::Works(who, process) => self.top_works(who, process),
            Happening::Proves(who, lease, peers) => self.proves(who, lease, peers),
            Happening::Connects(who) => self.connects(who),
            Happening::LeasesEnd => self.leases_end(),
            Happening::Goes(mishap) => self.goes(mishap),
            Happening::Resumes(who) => self.resumes(who),
            Happening::Mends(who) => {
                self.mends(who);
                Ok(())
            }
            Happening::ServerUp(memory) => self.server_up(memory),
            Happening::Comes if self.healed => Ok(()),
            Happening::Comes => self.comes(),
        }
    }
}
