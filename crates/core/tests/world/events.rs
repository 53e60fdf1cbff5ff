//! Virtual time, and the queue of events.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use rallypoint_core::kv::{Event, LeaseId, Time, Txn, TxnResult};
use rallypoint_core::rendezvous::succession::order::HostAnswer;
use rallypoint_core::rendezvous::{Purpose, RequestId, WatchSetId};

use super::broken::Broken;
use super::inspector::Inspector;
use super::invariants::{Verdict, violation};
use super::node::SimNode;
use super::plan::{Fault, Millis, Plan};
use super::random::Random;
use super::record::Records;
use super::server::Server;
use super::succession::{Host, Hosts};
use crate::top::{Alarm, Job, Process};

/// A node, by its index. A process that replaces a dead one is another node.
pub(crate) type Who = usize;

/// A server, by its index.
pub(crate) type At = usize;

/// A message from a node to the server.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    Txn {
        id: RequestId,
        purpose: Purpose,
        txn: Rc<Txn>,
    },
    Grant {
        number: u64,
        sent: Millis,
    },
    /// A renewal, which confirms the response that was sent at a time.
    Renew {
        number: u64,
        lease: LeaseId,
        sent: Millis,
        confirms: Option<Time>,
    },
    GrantRun,
    Revoke {
        lease: LeaseId,
    },
}

/// A message to a node. Streams have epochs: messages in flight when a stream breaks are lost.
#[derive(Debug, Clone)]
pub(crate) enum Delivery {
    Answer { id: RequestId, purpose: Purpose, result: Rc<TxnResult> },
    NoLease,
    Granted { number: u64, sent: Millis, lease: LeaseId },
    Renewed { number: u64, sent: Millis, alive: bool, withheld: bool, stamp: Time },
    Snapshot { epoch: u64, found: Rc<TxnResult> },
    Active { epoch: u64, events: Vec<Event> },
    ActiveCompacted { epoch: u64 },
    Watching { epoch: u64, id: WatchSetId },
    Watched { epoch: u64, id: WatchSetId, watch: usize, events: Vec<Event> },
    WatchBroken { id: WatchSetId },
    BootstrapStore { round: u64, works: bool, port: u16 },
    Dropped { peer: Who },
}

/// A timer of a node.
#[derive(Debug, Clone)]
pub(crate) enum Timer {
    Wake,
    Resend(RequestId),
    GrantAgain(u64),
    Renew(u64),
    Expiry(u64),
    AskAgain(u64, LeaseId),
    /// The node confirms a response that did not renew its lease.
    Confirm(u64),
    /// The node looks for a server.
    Seek,
    /// A timer of the agent on top.
    Top(Alarm),
}

/// An event of the simulation.
#[derive(Debug)]
pub(crate) enum SimEvent {
    /// A message of a node reaches a server.
    Arrives(Who, At, Message),
    Delivered(Who, Delivery),
    Rings(Who, Timer),
    /// The guard of the node's workers looks at the clock.
    GuardLooks(Who),
    /// An event of the node's workers.
    Works(Who, Process),
    /// The launcher is dead, and its guard kills the workers.
    GuardKills(Who),
    /// A peer has proof that this node is dead, and revokes its lease.
    Proves(Who, LeaseId, Vec<Who>),
    Connects(Who),
    LeasesEnd(At),
    Goes(Fault),
    Resumes(Who),
    Mends(Who),
    /// The server is up again, and has kept this much of its state.
    ServerUp(At, Memory),
    Comes,
    /// Another process starts on this host.
    ComesBack(Host),
    /// Messages between hosts arrive again.
    Unblocks(Vec<(Host, Host)>),
    /// The hosts of the order have answered.
    Sought(Who, Vec<HostAnswer>),
    /// A server of this era looks whether it has lost its right for good.
    LooksAtRight(At, u64),
}

/// What a server has kept after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Everything.
    Whole,
    /// The present state, but not its history.
    Compacted,
    /// Nothing: its state was in memory.
    None,
}

struct Queued {
    at: Millis,
    sequence: u64,
    what: SimEvent,
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

/// The number of last events in the report of a failure.
const TRACE: usize = 60;

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) random: Random,
    pub(crate) now: Millis,
    pub(crate) servers: Vec<Server>,
    pub(crate) nodes: Vec<SimNode>,
    pub(crate) inspector: Inspector,
    pub(crate) hosts: Hosts,
    /// The state that the agents on top share.
    pub(crate) job: Job,
    pub(crate) broken: Broken,
    /// No more faults are injected.
    pub(crate) healed: bool,
    /// The last events; kept only for the report of a failure, since that costs more than the run.
    pub(crate) trace: Option<VecDeque<String>>,
    queue: BinaryHeap<Reverse<Queued>>,
    sequence: u64,
    pub(crate) steps: u64,
    /// The number of bootstrap stores that were started, each on another port.
    pub(crate) bootstrap_stores: u16,
    /// What the nodes were told and decided; only if a test asks for it.
    pub(crate) records: Option<Records>,
}

/// Records an event in the trace, if there is one.
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
            servers: (0..plan.servers).map(Server::new).collect(),
            inspector: Inspector::new(&plan.config, plan.servers),
            plan,
            random,
            now: 0,
            nodes: Vec::new(),
            hosts: Hosts::default(),
            broken,
            healed: false,
            trace: tracing.then(VecDeque::new),
            queue: BinaryHeap::new(),
            sequence: 0,
            steps: 0,
            bootstrap_stores: 0,
            records: None,
        };
        if world.has_succession() {
            world.draw_rates(world.plan.nodes);
            world.servers.iter_mut().for_each(|server| server.down = true);
        }
        for _ in 0..world.plan.nodes {
            let at = world.random.between(0, world.plan.gathering);
            world.at(at, SimEvent::Comes);
        }
        for (at, fault) in world.plan.faults.clone() {
            world.at(at, SimEvent::Goes(fault));
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

    pub(crate) fn at(&mut self, at: Millis, what: SimEvent) {
        self.sequence += 1;
        self.queue.push(Reverse(Queued { at: at.max(self.now), sequence: self.sequence, what }));
    }

    pub(crate) fn after(&mut self, delay: Millis, what: SimEvent) {
        self.at(self.now + delay, what);
    }

    pub(crate) fn works_after(&mut self, who: Who, delay: Millis, process: Process) {
        self.after(delay, SimEvent::Works(who, process));
    }

    pub(crate) fn ring(&mut self, who: Who, delay: Millis, timer: Timer) {
        self.after(delay, SimEvent::Rings(who, timer));
    }

    /// Runs all events up to `end`.
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
            self.dispatch(next.what)?;
            self.check_step()?;
        }
        self.now = end;
        Ok(())
    }

    pub(crate) fn dispatch(&mut self, what: SimEvent) -> Verdict {
        match what {
            what @ (SimEvent::Arrives(_, at, _)
            | SimEvent::LeasesEnd(at)
            | SimEvent::LooksAtRight(at, _))
                if self.server_stands_still(at).is_some() =>
            {
                if let Some(process) = self.server_stands_still(at) {
                    self.nodes[process].inbox.push(what);
                }
                Ok(())
            }
            SimEvent::Arrives(who, at, message) => self.arrives(who, at, message),
            SimEvent::Delivered(who, _) | SimEvent::Rings(who, _) if !self.nodes[who].alive => {
                Ok(())
            }
            what @ (SimEvent::Delivered(who, _) | SimEvent::Rings(who, _))
                if self.nodes[who].stands_still() =>
            {
                self.nodes[who].inbox.push(what);
                Ok(())
            }
            what @ (SimEvent::Works(who, _) | SimEvent::GuardLooks(who))
                if self.nodes[who].sleeps() =>
            {
                self.nodes[who].inbox.push(what);
                Ok(())
            }
            what @ SimEvent::Works(who, _) if self.nodes[who].has_still_workers() => {
                self.after(50, what);
                Ok(())
            }
            SimEvent::Delivered(who, delivery) => self.delivered(who, delivery),
            SimEvent::Rings(who, timer) => self.rings(who, timer),
            SimEvent::GuardLooks(who) => self.guard_looks(who),
            SimEvent::GuardKills(who) => self.top_killed(who),
            SimEvent::Works(who, process) => self.top_works(who, process),
            SimEvent::Proves(who, lease, peers) => self.proves(who, lease, peers),
            SimEvent::Connects(who) => self.connects(who),
            SimEvent::LeasesEnd(at) => self.leases_end(at),
            SimEvent::Goes(fault) => self.goes(fault),
            SimEvent::Resumes(who) => self.resumes(who),
            SimEvent::Mends(who) => {
                self.mends(who);
                Ok(())
            }
            SimEvent::ServerUp(at, memory) => self.server_up(at, memory),
            SimEvent::Comes if self.healed => Ok(()),
            SimEvent::Comes => {
                self.hosts.count += 1;
                self.comes(self.hosts.count - 1)
            }
            SimEvent::ComesBack(_) if self.healed => Ok(()),
            SimEvent::ComesBack(host) => self.comes(host),
            SimEvent::Unblocks(links) => {
                self.unblocks(&links);
                Ok(())
            }
            SimEvent::Sought(who, _) if self.nodes[who].stands_still() => Ok(()),
            SimEvent::Sought(who, answers) => self.sought(who, &answers),
            SimEvent::LooksAtRight(at, era) => {
                self.looks_at_right(at, era);
                Ok(())
            }
        }
    }
}
