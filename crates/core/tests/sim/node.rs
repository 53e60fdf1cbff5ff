//! A node: the machine, the driver around it, and the agent that uses them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use rallypoint_core::kv::{Event, Revision, Txn, Watch};
use rallypoint_core::rendezvous::document::{Address, Node as Document};
use rallypoint_core::rendezvous::{
    Errand, Fault, Formed, Input, Machine, Output, Purpose, RequestId, WatchId,
};
use rallypoint_core::store::StreamId;

use crate::broken;
use crate::invariants::{Verdict, violation};
use crate::plan::Millis;
use crate::session::Session;
use crate::world::{Delivery, Happening, Message, Timer, Who, World, tell};

/// The coordinator's watch on those who joined is the fourth.
const MEMBERS: usize = 3;

/// What the agent on top is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agent {
    /// It will enter when its clock rings.
    Off,
    Meeting,
    Running(u64),
    /// It takes its leave, for good unless it comes back.
    Leaving {
        returns: bool,
    },
    Gone,
}

/// The watch on `active`.
#[derive(Debug, Default)]
pub(crate) struct ActiveWatch {
    pub(crate) stream: Option<StreamId>,
    /// Where to resume; nowhere before the first snapshot.
    pub(crate) next: Option<Revision>,
    /// The watch stands and the key is yet to be read.
    pub(crate) reads: bool,
    pub(crate) busy_until: Millis,
    /// Events that came before the snapshot.
    early: Vec<Event>,
}

/// The coordinator's watches.
#[derive(Debug)]
pub(crate) struct WatchSet {
    pub(crate) id: WatchId,
    pub(crate) watches: Vec<Watch>,
    pub(crate) stream: Option<StreamId>,
    pub(crate) next: Vec<Option<Revision>>,
    pub(crate) busy_until: Vec<Millis>,
    /// The machine was told that they stand.
    pub(crate) stands: bool,
    /// Up to here the node has seen who joined.
    seen: Revision,
}

pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) machine: Machine,
    pub(crate) alive: bool,
    pub(crate) cut: bool,
    pub(crate) paused: bool,
    /// What came while it was paused.
    pub(crate) inbox: Vec<Happening>,
    pub(crate) session: Option<Session>,
    pub(crate) agent: Agent,
    pub(crate) active: ActiveWatch,
    pub(crate) set: Option<WatchSet>,
    /// Grows when streams break.
    pub(crate) epoch: u64,
    /// What it had seen of those who joined when it gave the ranks.
    pub(crate) decided_on: Option<Revision>,
    /// The last round that it was in the group of.
    pub(crate) last_formed: u64,
    pending: BTreeMap<RequestId, (Purpose, Rc<Txn>)>,
    wake: Option<Millis>,
    pub(crate) sessions: u64,
    pub(crate) opening: bool,
    /// Which of the clocks set for entering counts.
    entering: u64,
    /// It closed the run, and opens it again after so long.
    reopens_after: Option<Millis>,
}

impl Node {
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(self.agent, Agent::Leaving { .. } | Agent::Gone)
    }
}

impl World {
    /// A new node.
    pub(crate) fn comes(&mut self) -> Who {
        let who = self.nodes.len();
        let hint = self.random.chance(300).then(|| self.random.between(0, 5) as u32);
        let topology = self.random.chance(300).then(|| format!("rack{}", self.random.below(3)));
        let document = Document {
            id: format!("n{who}"),
            address: format!("host{who}"),
            hint,
            topology,
            ..Document::default()
        };
        let machine = Machine::new(self.plan.settings.clone(), document);
        tell!(self, "n{who} comes");
        self.nodes.push(Node {
            id: format!("n{who}"),
            machine,
            alive: true,
            cut: false,
            paused: false,
            inbox: Vec::new(),
            session: None,
            agent: Agent::Off,
            active: ActiveWatch::default(),
            set: None,
            epoch: 0,
            decided_on: None,
            last_formed: 0,
            pending: BTreeMap::new(),
            wake: None,
            sessions: 0,
            opening: false,
            entering: 0,
            reopens_after: None,
        });
        self.reconnect(who);
        self.enters_after(who, 0);
        who
    }

    // ---- The agent

    pub(crate) fn enters_after(&mut self, who: Who, delay: Millis) {
        let node = &mut self.nodes[who];
        node.agent = Agent::Off;
        node.entering += 1;
        let timer = Timer::Enter(node.entering);
        self.ring(who, delay, timer);
    }

    /// The process ends. Its session is closed if it has the time, or lapses.
    pub(crate) fn ends(&mut self, who: Who, closes: bool) {
        if let Some(session) = self.nodes[who].session.take().filter(|_| closes) {
            self.send(who, Message::Revoke { lease: session.lease });
        }
        self.inspector.now = self.now;
        self.inspector.upset(&self.nodes[who].id);
        let node = &mut self.nodes[who];
        node.alive = false;
        node.agent = Agent::Gone;
        node.inbox.clear();
        node.set = None;
        self.server.close_streams(who);
    }

    fn formed(&mut self, who: Who, formed: &Formed) -> Verdict {
        tell!(self, "{} FORMED {formed:?}", self.nodes[who].id);
        self.check_formed(who, formed)?;
        let node = &mut self.nodes[who];
        node.last_formed = formed.round;
        if matches!(node.agent, Agent::Leaving { .. }) {
            return violation("orders", format!("{} left and was put into a group", node.id));
        }
        node.agent = Agent::Running(formed.round);
        Ok(())
    }

    fn failed(&mut self, who: Who, fault: &Fault) -> Verdict {
        tell!(self, "{} FAILED {fault:?}", self.nodes[who].id);
        match fault {
            Fault::Closed { .. } | Fault::NotNeeded { .. } => {
                if self.healed || self.random.chance(300) {
                    self.ends(who, true);
                } else {
                    self.enters_after(who, 1_000);
                }
            }
            Fault::TimedOut { .. } | Fault::CannotHost { .. } => {
                let delay = self.random.between(0, 300);
                self.enters_after(who, delay);
            }
            Fault::Mismatch { .. } | Fault::Corrupt(_) => {
                return violation("sound", format!("{}: {fault:?}", self.nodes[who].id));
            }
        }
        Ok(())
    }

    fn done(&mut self, who: Who, errand: Errand) {
        tell!(self, "{} did its errand: {errand:?}", self.nodes[who].id);
        match (errand, self.nodes[who].agent) {
            (Errand::Left, Agent::Leaving { returns: true }) => self.enters_after(who, 100),
            (Errand::Left, Agent::Leaving { returns: false }) => {
                let closes = self.random.chance(700);
                self.ends(who, closes);
            }
            (Errand::Closed, _) => {
                if let Some(delay) = self.nodes[who].reopens_after.take() {
                    self.ring(who, delay, Timer::Reopen);
                }
            }
            _ => {}
        }
    }

    /// The agent looks whether its group must meet again: a memory read, ten times a second.
    fn polls(&mut self, who: Who) -> Verdict {
        let Agent::Running(round) = self.nodes[who].agent else { return Ok(()) };
        let view = self.nodes[who].machine.view(Duration::from_millis(self.now));
        if view.nodes_waiting > 0 || view.member_of != Some(round) {
            tell!(self, "{} must meet again: {view:?}", self.nodes[who].id);
            if view.member_of == Some(round) {
                self.check_reason(who, round)?;
            }
            let delay = self.random.between(0, 100) + self.plan.stopping;
            self.enters_after(who, delay);
        }
        Ok(())
    }

    // ---- The driver

    /// Gives the machine an input, and does what it says.
    pub(crate) fn give(&mut self, who: Who, input: Input) -> Verdict {
        let time = self.time();
        self.inspector.now = self.now;
        match &input {
            Input::Enter | Input::Leave | Input::SessionLost => {
                self.inspector.upset(&self.nodes[who].id);
            }
            Input::Suspect { node } => self.inspector.upset(node),
            Input::Reopen => self.inspector.upset_all(),
            _ => {}
        }
        self.nodes[who].machine.handle(time, input);
        while let Some(output) = self.nodes[who].machine.poll_output() {
            self.obey(who, output)?;
            if !self.nodes[who].alive {
                return Ok(());
            }
        }
        let node = &mut self.nodes[who];
        let wake = node.machine.next_wake().map(|wake| wake.as_millis() as Millis);
        if wake != node.wake {
            node.wake = wake;
            if let Some(wake) = wake {
                self.at(wake, Happening::Rings(who, Timer::Wake));
            }
        }
        self.polls(who)
    }

    fn obey(&mut self, who: Who, output: Output) -> Verdict {
        match output {
            Output::Request { id, purpose, mut txn } => {
                let node = &mut self.nodes[who];
                if matches!(purpose, Purpose::Rank | Purpose::Freeze) {
                    let seen = node.set.as_ref().map(|set| set.seen);
                    node.decided_on = node.decided_on.or(seen);
                }
                broken::request(self.broken, &self.plan.settings.keys, purpose, &mut txn);
                let txn = Rc::new(txn);
                node.pending.insert(id, (purpose, txn.clone()));
                self.send(who, Message::Txn { id, purpose, txn });
                self.ring(who, self.plan.network.retry, Timer::Resend(id));
            }
            Output::Watch { id, watches } => {
                self.server.close_set(who);
                let count = watches.len();
                let node = &mut self.nodes[who];
                node.decided_on = None;
                node.set = Some(WatchSet {
                    id,
                    watches,
                    stream: None,
                    next: vec![None; count],
                    busy_until: vec![0; count],
                    stands: false,
                    seen: 0,
                });
                self.reconnect(who);
            }
            Output::Unwatch => {
                self.nodes[who].set = None;
                self.server.close_set(who);
            }
            Output::LookAgain => {
                return violation("sound", "the server has forgotten nothing");
            }
            Output::OpenSession => self.open_session(who),
            Output::Host { round } => {
                let works = self.healed || !self.random.chance(self.plan.deaf);
                let delay = self.random.between(0, 30);
                let hosting = Delivery::Hosting { round, works };
                self.after(delay, Happening::Delivered(who, hosting));
            }
            Output::Formed(formed) => self.formed(who, &formed)?,
            Output::Failed(fault) => self.failed(who, &fault)?,
            Output::Done(errand) => self.done(who, errand),
        }
        Ok(())
    }

    /// Something reached the node.
    pub(crate) fn delivered(&mut self, who: Who, delivery: Delivery) -> Verdict {
        let node = &mut self.nodes[who];
        let now_epoch = node.epoch;
        match delivery {
            Delivery::Answer { .. } | Delivery::NoLease if node.cut => Ok(()),
            Delivery::Answer { id, purpose, result } => {
                node.pending.remove(&id);
                if node.machine.awaits(id)
                    && purpose == Purpose::Survey
                    && let Some(set) = &mut node.set
                {
                    set.seen = set.seen.max(result.revision);
                }
                self.give(who, Input::Answered { id, result: (*result).clone() })
            }
            // The run's lease may be what is missing. If it is the node's own, the session will say.
            Delivery::NoLease => {
                self.send(who, Message::GrantRun);
                Ok(())
            }
            Delivery::Granted { number, sent, lease } => self.granted(who, number, sent, lease),
            Delivery::Renewed { number, sent, alive } => self.renewed(who, number, sent, alive),
            Delivery::Snapshot { epoch, revision, active } if epoch == now_epoch => {
                node.active.next = Some(revision + 1);
                let early = std::mem::take(&mut node.active.early);
                self.give(who, Input::Snapshot { revision, active, forgotten: false })?;
                if early.is_empty() || !self.nodes[who].alive {
                    return Ok(());
                }
                self.give(who, Input::ActiveChanged { events: early })
            }
            Delivery::Active { epoch, events } if epoch == now_epoch => {
                let last = events.last().map_or(0, |event| event.kv.mod_revision);
                match &mut node.active.next {
                    None => {
                        node.active.early.extend(events);
                        Ok(())
                    }
                    Some(next) => {
                        *next = (*next).max(last + 1);
                        self.give(who, Input::ActiveChanged { events })
                    }
                }
            }
            Delivery::ActiveCompacted { epoch } if epoch == now_epoch => {
                self.break_streams(who);
                self.nodes[who].active.next = None;
                self.nodes[who].active.early.clear();
                self.reconnect(who);
                Ok(())
            }
            Delivery::Watching { epoch, id } if epoch == now_epoch => {
                if let Some(set) = node.set.as_mut().filter(|set| set.id == id) {
                    set.stands = true;
                }
                self.give(who, Input::Watching { id })
            }
            Delivery::Watched { epoch, id, watch, events } if epoch == now_epoch => {
                let last = events.last().map_or(0, |event| event.kv.mod_revision);
                if let Some(set) = node.set.as_mut().filter(|set| set.id == id) {
                    set.next[watch] = set.next[watch].max(Some(last + 1));
                    if watch == MEMBERS {
                        set.seen = set.seen.max(last);
                    }
                }
                self.give(who, Input::Watched { id, watch, events })
            }
            Delivery::WatchBroken { epoch, id } if epoch == now_epoch => {
                tell!(self, "{}'s watches are broken", self.nodes[who].id);
                self.give(who, Input::WatchBroken { id })
            }
            Delivery::Hosting { round, works: true } => {
                let host = format!("host{who}");
                let address = Address { host, port: round as u16 };
                self.give(who, Input::Hosting { round, address })
            }
            Delivery::Hosting { round, works: false } => {
                self.give(who, Input::HostFailed { round, reason: "no port".to_owned() })
            }
            Delivery::Dropped { peer } => {
                let node = self.nodes[peer].id.clone();
                tell!(self, "{} lost its connection to {node}", self.nodes[who].id);
                self.give(who, Input::Suspect { node })
            }
            // From a stream that is no more.
            _ => Ok(()),
        }
    }

    pub(crate) fn rings(&mut self, who: Who, timer: Timer) -> Verdict {
        let time = self.time();
        let node = &mut self.nodes[who];
        match timer {
            Timer::Wake => {
                if node.machine.next_wake().is_some_and(|wake| wake <= time) {
                    node.wake = None;
                    self.give(who, Input::Wake)?;
                }
                Ok(())
            }
            Timer::Resend(id) => {
                if !node.machine.awaits(id) {
                    node.pending.remove(&id);
                    return Ok(());
                }
                let Some((purpose, txn)) = node.pending.get(&id).cloned() else { return Ok(()) };
                self.send(who, Message::Txn { id, purpose, txn });
                self.ring(who, self.plan.network.retry, timer);
                Ok(())
            }
            Timer::GrantAgain(number) => {
                if node.opening && node.sessions == number {
                    self.open_session(who);
                }
                Ok(())
            }
            Timer::Renew(number) => {
                self.renews(who, number);
                Ok(())
            }
            Timer::Expiry(number) => self.looks_at_session(who, number),
            Timer::Enter(number) => {
                if node.agent != Agent::Off || node.entering != number {
                    return Ok(());
                }
                node.agent = Agent::Meeting;
                tell!(self, "{} enters", self.nodes[who].id);
                self.give(who, Input::Enter)
            }
            Timer::Reopen => self.give(who, Input::Reopen),
        }
    }

    pub(crate) fn close_run(&mut self, who: Who, reopens_after: Option<Millis>) -> Verdict {
        self.nodes[who].reopens_after = reopens_after;
        self.give(who, Input::Close { reason: "done".to_owned() })
    }

    /// The node goes on after a pause. The clock speaks before anything that came meanwhile.
    pub(crate) fn resumes(&mut self, who: Who) -> Verdict {
        if !self.nodes[who].alive || !std::mem::replace(&mut self.nodes[who].paused, false) {
            return Ok(());
        }
        tell!(self, "{} goes on", self.nodes[who].id);
        if let Some(number) = self.nodes[who].session.as_ref().map(|session| session.number) {
            self.looks_at_session(who, number)?;
        }
        for what in std::mem::take(&mut self.nodes[who].inbox) {
            self.happens(what)?;
        }
        Ok(())
    }
}
