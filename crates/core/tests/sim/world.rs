//! Virtual time, and everything that is under way in it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rallypoint_core::kv::{Event, KeyValue, LeaseId, Revision, Time, Txn, TxnResult};
use rallypoint_core::rendezvous::{Purpose, RequestId, WatchId};

use crate::broken::Broken;
use crate::invariants::{Inspector, Verdict, violation};
use crate::node::Node;
use crate::plan::{Millis, Mishap, Plan};
use crate::random::Random;
use crate::server::Server;

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
    Snapshot { epoch: u64, revision: Revision, active: Option<KeyValue> },
    Active { epoch: u64, events: Vec<Event> },
    ActiveCompacted { epoch: u64 },
    Watching { epoch: u64, id: WatchId },
    Watched { epoch: u64, id: WatchId, watch: usize, events: Vec<Event> },
    WatchBroken { epoch: u64, id: WatchId },
    Hosting { round: u64, works: bool },
    Dropped { peer: Who },
}

/// What a node has set its clock for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Timer {
    Wake,
    Resend(RequestId),
    GrantAgain(u64),
    Renew(u64),
    Expiry(u64),
    Enter(u64),
    Reopen,
}

#[derive(Debug)]
pub(crate) enum Happening {
    Arrives(Who, Message),
    Delivered(Who, Delivery),
    Rings(Who, Timer),
    Connects(Who),
    LeasesEnd,
    Goes(Mishap),
    Resumes(Who),
    Mends(Who),
    ServerUp(bool),
    Comes,
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
    pub(crate) nodes: Vec<Node>,
    pub(crate) inspector: Inspector,
    pub(crate) broken: Broken,
    /// Nothing goes wrong any more.
    pub(crate) healed: bool,
    /// What happened last; kept only when a failure is being told, for it costs more than the run.
    pub(crate) trace: Option<VecDeque<String>>,
    queue: BinaryHeap<Reverse<Queued>>,
    sequence: u64,
    pub(crate) steps: u64,
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
    pub(crate) fn new(plan: Plan, random: Random, broken: Broken, tracing: bool) -> Self {
        let mut world = Self {
            server: Server::new(&plan),
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
                if self.nodes[who].paused =>
            {
                self.nodes[who].inbox.push(what);
                Ok(())
            }
            Happening::Delivered(who, delivery) => self.delivered(who, delivery),
            Happening::Rings(who, timer) => self.rings(who, timer),
            Happening::Connects(who) => self.connects(who),
            Happening::LeasesEnd => self.leases_end(),
            Happening::Goes(mishap) => self.goes(mishap),
            Happening::Resumes(who) => self.resumes(who),
            Happening::Mends(who) => {
                self.mends(who);
                Ok(())
            }
            Happening::ServerUp(forgetful) => self.server_up(forgetful),
            Happening::Comes => {
                if !self.healed {
                    self.comes();
                }
                Ok(())
            }
        }
    }
}
