//! A simulated node: the rendezvous state machine, its driver, and the agent on top.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use rallypoint_core::kv::{Event, Revision, Txn, Watch};
use rallypoint_core::mvcc::StreamId;
use rallypoint_core::rendezvous::documents::{Address, BootstrapStore, NodeDocument, RankHints};
use rallypoint_core::rendezvous::{
    FormedGroup, Node, NodeInput, NodeOutput, Purpose, RequestId, WatchSetId,
};

use super::broken::{self, Broken};
use super::events::{At, Delivery, Message, SimEvent, Timer, Who, World, tell};
use super::guard::{Guard, Still};
use super::inspector::GroupId;
use super::invariants::{Verdict, violation};
use super::plan::Millis;
use super::session::Session;
use super::succession::Host;
use crate::top::Top;

/// The position of the coordinator's watch on members.
const MEMBERS: usize = 3;

/// The watch on `active`.
#[derive(Debug, Default)]
pub(crate) struct ActiveWatch {
    pub(crate) stream: Option<StreamId>,
    /// The revision to resume from; none before the first snapshot.
    pub(crate) next: Option<Revision>,
    /// The watch is open, and the snapshot is yet to be read.
    pub(crate) reads: bool,
    pub(crate) busy_until: Millis,
    /// The era of the server at which it was opened.
    pub(crate) era: u64,
    /// That server has lost its state, and the node is yet to be told.
    pub(crate) forgotten: bool,
    /// Events that came before the snapshot.
    early: Vec<Vec<Event>>,
}

/// The coordinator's watches.
#[derive(Debug)]
pub(crate) struct WatchSet {
    pub(crate) id: WatchSetId,
    pub(crate) watches: Vec<Watch>,
    pub(crate) stream: Option<StreamId>,
    /// The era of the server at which it was opened.
    pub(crate) era: Option<u64>,
    pub(crate) next: Vec<Option<Revision>>,
    pub(crate) busy_until: Vec<Millis>,
    /// The node was told that the watches are open.
    pub(crate) stands: bool,
    /// The revision up to which the node has observed members.
    seen: Revision,
}

pub(crate) struct SimNode {
    pub(crate) id: String,
    pub(crate) rendezvous: Node,
    pub(crate) alive: bool,
    pub(crate) host: Host,
    /// The server that the node uses.
    pub(crate) at: Option<At>,
    pub(crate) cut: bool,
    pub(crate) still: Option<Still>,
    /// Events that arrived while the node was suspended.
    pub(crate) inbox: Vec<SimEvent>,
    pub(crate) session: Option<Session>,
    /// When the lease of its last session expires, or expired.
    pub(crate) lease_end: Millis,
    /// The node was a member and was fenced: from this time on another node may replace it.
    pub(crate) fenced: Option<Millis>,
    pub(crate) guard: Guard,
    pub(crate) top: Top,
    pub(crate) active: ActiveWatch,
    pub(crate) set: Option<WatchSet>,
    /// Grows when streams break.
    pub(crate) epoch: u64,
    /// The revision up to which it had observed members when it assigned the ranks.
    pub(crate) decided_on: Option<Revision>,
    /// The last round whose group the node was a member of, and that group.
    pub(crate) last_formed: u64,
    pub(crate) last_group: Option<GroupId>,
    /// The last group of which the node was a member, unless it has left it in good order.
    pub(crate) claim: Option<GroupId>,
    pending: BTreeMap<RequestId, (Purpose, Rc<Txn>)>,
    /// What the node decided, and its driver has yet to do.
    outputs: VecDeque<NodeOutput>,
    wake: Option<Millis>,
    pub(crate) sessions: u64,
    pub(crate) opening: bool,
}

impl SimNode {
    /// Whether the launcher is suspended.
    pub(crate) fn stands_still(&self) -> bool {
        self.still.is_some()
    }

    /// Whether the whole node is suspended, with its workers.
    pub(crate) fn sleeps(&self) -> bool {
        self.still == Some(Still::Everything)
    }

    /// Whether the workers are suspended, with the node or by its guard.
    pub(crate) fn has_still_workers(&self) -> bool {
        self.sleeps() || self.guard.holds.is_some()
    }
}

impl World {
    /// Adds a node.
    pub(crate) fn comes(&mut self, host: Host) -> Verdict {
        let who = self.nodes.len();
        let hint = self.random.chance(300).then(|| self.random.between(0, 5) as u32);
        let topology = self.random.chance(300).then(|| format!("rack{}", self.random.below(3)));
        let document = NodeDocument {
            id: format!("n{who}"),
            address: format!("host{who}"),
            rank_hints: RankHints { hint, topology },
            ..NodeDocument::default()
        };
        let entropy = self.random.next();
        self.record_beginning(who, &document, entropy);
        let mut config = self.plan.config.clone();
        if let Some(succession) = &mut config.succession {
            let has_voted = self.hosts.voted.contains(&host) && self.broken != Broken::VotesAgain;
            succession.votes = host < self.servers.len() && !has_voted;
        }
        let rendezvous = Node::new(broken::config(self.broken, config), document, entropy);
        let top = self.new_top();
        tell!(self, "n{who} comes");
        self.nodes.push(SimNode {
            id: format!("n{who}"),
            rendezvous,
            alive: true,
            host,
            at: (!self.has_succession()).then_some(0),
            cut: false,
            still: None,
            inbox: Vec::new(),
            session: None,
            lease_end: 0,
            fenced: None,
            guard: Guard::default(),
            top,
            active: ActiveWatch::default(),
            set: None,
            epoch: 0,
            decided_on: None,
            last_formed: 0,
            last_group: None,
            claim: None,
            pending: BTreeMap::new(),
            outputs: VecDeque::new(),
            wake: None,
            sessions: 0,
            opening: false,
        });
        self.reconnect(who);
        if self.has_succession() {
            self.seeks_again(who);
        }
        self.top_comes(who)
    }

    /// Ends the process. Its session is closed if `closes`, and else expires.
    pub(crate) fn ends(&mut self, who: Who, closes: bool) {
        if let Some(session) = self.nodes[who].session.take().filter(|_| closes) {
            self.send(who, Message::Revoke { lease: session.lease });
        }
        self.inspector.now = self.now;
        self.inspector.upset(&self.nodes[who].id);
        let node = &mut self.nodes[who];
        node.alive = false;
        // A suspended node need not be resumed any more, but its workers may live for a moment.
        node.still = None;
        node.inbox.clear();
        node.set = None;
        self.close_streams(who);
        // The server of the host is in this process.
        let host = self.nodes[who].host;
        if self.has_succession() && host < self.servers.len() {
            self.closes(host);
        }
    }

    fn formed(&mut self, who: Who, formed: &FormedGroup) -> Verdict {
        tell!(self, "{} FORMED {formed:?}", self.nodes[who].id);
        let group = self.check_formed(who, formed)?;
        let node = &mut self.nodes[who];
        node.last_formed = formed.round;
        node.last_group = Some(group);
        node.claim = Some(group);
        node.fenced = None;
        self.top_formed(who, formed)
    }

    /// Gives the node an input, and carries out its outputs.
    pub(crate) fn give(&mut self, who: Who, input: NodeInput) -> Verdict {
        let time = self.clock(self.nodes[who].host);
        self.inspector.now = self.now;
        match &input {
            NodeInput::Enter | NodeInput::Leave | NodeInput::SessionLost { .. } => {
                self.inspector.upset(&self.nodes[who].id);
            }
            NodeInput::Suspect { node } => self.inspector.upset(node),
            NodeInput::Reopen => self.inspector.upset_all(),
            _ => {}
        }
        if matches!(input, NodeInput::Leave) {
            self.nodes[who].claim = None;
        }
        let outputs = self.give_node(who, time, input);
        self.nodes[who].outputs.extend(outputs);
        while let Some(output) = self.nodes[who].outputs.pop_front() {
            self.execute(who, output)?;
            if !self.nodes[who].alive {
                return Ok(());
            }
        }
        let wake = self.nodes[who].rendezvous.next_wake();
        let wake = wake.map(|wake| self.when(self.nodes[who].host, wake));
        let node = &mut self.nodes[who];
        if wake != node.wake {
            node.wake = wake;
            if let Some(wake) = wake {
                self.at(wake, SimEvent::Rings(who, Timer::Wake));
            }
        }
        self.tell_guard(who)?;
        self.top_looks(who)
    }

    fn execute(&mut self, who: Who, output: NodeOutput) -> Verdict {
        match output {
            NodeOutput::Request { id, purpose, mut txn } => {
                if purpose == Purpose::Confirm {
                    self.hosts.voted.insert(self.nodes[who].host);
                }
                let node = &mut self.nodes[who];
                if matches!(purpose, Purpose::AssignRanks | Purpose::Freeze) {
                    let seen = node.set.as_ref().map(|set| set.seen);
                    node.decided_on = node.decided_on.or(seen);
                }
                broken::request(self.broken, &self.plan.config.keys, purpose, &mut txn);
                let txn = Rc::new(txn);
                node.pending.insert(id, (purpose, txn.clone()));
                self.send(who, Message::Txn { id, purpose, txn });
                self.ring(who, self.plan.network.retry, Timer::Resend(id));
            }
            NodeOutput::Watch { id, watches } => {
                self.close_set(who);
                let count = watches.len();
                let node = &mut self.nodes[who];
                node.decided_on = None;
                node.set = Some(WatchSet {
                    id,
                    watches,
                    stream: None,
                    era: None,
                    next: vec![None; count],
                    busy_until: vec![0; count],
                    stands: false,
                    seen: 0,
                });
                self.reconnect(who);
            }
            NodeOutput::Unwatch => {
                self.nodes[who].set = None;
                self.close_set(who);
            }
            NodeOutput::Resync => {
                self.check_lost(who)?;
                self.resyncs(who, false);
            }
            NodeOutput::OpenSession => self.open_session(who),
            NodeOutput::EndSession => {
                self.check_lost(who)?;
                self.ends_session(who);
            }
            NodeOutput::Fenced(_) => {
                tell!(self, "{} is fenced", self.nodes[who].id);
                let node = &mut self.nodes[who];
                node.fenced = Some(node.lease_end);
            }
            NodeOutput::ServeBootstrapStore { round } => {
                let works = self.healed || !self.random.chance(self.plan.deaf);
                let delay = self.random.between(0, 30);
                self.bootstrap_stores += 1;
                let delivery =
                    Delivery::BootstrapStore { round, works, port: self.bootstrap_stores };
                self.after(delay, SimEvent::Delivered(who, delivery));
            }
            NodeOutput::Formed(formed) => self.formed(who, &formed)?,
            NodeOutput::Failed(failure) => {
                tell!(self, "{} FAILED {failure:?}", self.nodes[who].id);
                self.top_failed(who, &failure)?;
            }
            NodeOutput::Done(done) => {
                tell!(self, "{} completed a command: {done:?}", self.nodes[who].id);
                self.top_done(who, done)?;
            }
        }
        Ok(())
    }

    fn close_set(&mut self, who: Who) {
        self.servers.iter_mut().for_each(|server| server.close_set(who));
    }

    /// A node takes a server for another one only if a server has lost its state.
    fn check_lost(&self, who: Who) -> Verdict {
        if self.has_succession() {
            return Ok(());
        }
        match self.nodes[who].at.map(|at| self.servers[at].era) {
            Some(0) => violation("sound", "the server has not lost its state"),
            _ => Ok(()),
        }
    }

    /// Handles a message that reached the node.
    pub(crate) fn delivered(&mut self, who: Who, delivery: Delivery) -> Verdict {
        let node = &mut self.nodes[who];
        let now_epoch = node.epoch;
        match delivery {
            Delivery::Answer { .. } | Delivery::NoLease if node.cut => Ok(()),
            Delivery::Answer { id, purpose, result } => {
                node.pending.remove(&id);
                if node.rendezvous.awaits(id)
                    && purpose == Purpose::ReadMembership
                    && let Some(set) = &mut node.set
                {
                    set.seen = set.seen.max(result.revision);
                }
                self.give(who, NodeInput::Answered { id, result: (*result).clone() })
            }
            // The run's lease may be missing. If the node's own lease is, the session detects it.
            Delivery::NoLease => {
                self.send(who, Message::GrantRun);
                Ok(())
            }
            Delivery::Granted { number, sent, lease } => self.granted(who, number, sent, lease),
            Delivery::Renewed { number, sent, alive, withheld, stamp } => {
                self.renewed(who, (number, sent), (alive, withheld), stamp)
            }
            Delivery::Snapshot { epoch, found } if epoch == now_epoch => {
                node.active.next = Some(found.revision + 1);
                let early = std::mem::take(&mut node.active.early);
                let another_server = std::mem::take(&mut node.active.forgotten);
                let found = (*found).clone();
                self.give(who, NodeInput::Snapshot { found, another_server })?;
                for events in early {
                    self.follows(who, events)?;
                }
                Ok(())
            }
            Delivery::Active { epoch, events } if epoch == now_epoch => {
                let last = events.last().map_or(0, |event| event.kv.mod_revision);
                match &mut node.active.next {
                    None => {
                        node.active.early.push(events);
                        Ok(())
                    }
                    Some(next) => {
                        *next = (*next).max(last + 1);
                        self.follows(who, events)
                    }
                }
            }
            Delivery::ActiveCompacted { epoch } if epoch == now_epoch => {
                self.resyncs(who, false);
                Ok(())
            }
            Delivery::Watching { epoch, id } if epoch == now_epoch => {
                if let Some(set) = node.set.as_mut().filter(|set| set.id == id) {
                    set.stands = true;
                }
                self.give(who, NodeInput::Watching { id })
            }
            Delivery::Watched { epoch, id, watch, events } if epoch == now_epoch => {
                let last = events.last().map_or(0, |event| event.kv.mod_revision);
                if let Some(set) = node.set.as_mut().filter(|set| set.id == id) {
                    set.next[watch] = set.next[watch].max(Some(last + 1));
                    if watch == MEMBERS {
                        set.seen = set.seen.max(last);
                    }
                }
                self.give(who, NodeInput::Watched { id, watch, events })
            }
            Delivery::WatchBroken { id } => {
                tell!(self, "{}'s watches are broken", self.nodes[who].id);
                self.give(who, NodeInput::WatchBroken { id })
            }
            Delivery::BootstrapStore { round, works: true, port } => {
                let address = Address { host: format!("host{who}"), port };
                let store = BootstrapStore {
                    address,
                    token: String::new(),
                    liveness: None,
                    runs_server: false,
                };
                self.give(who, NodeInput::BootstrapStoreReady { round, store })
            }
            Delivery::BootstrapStore { round, works: false, .. } => self
                .give(who, NodeInput::BootstrapStoreFailed { round, reason: "no port".to_owned() }),
            Delivery::Dropped { peer } => {
                let node = self.nodes[peer].id.clone();
                tell!(self, "{} lost its connection to {node}", self.nodes[who].id);
                self.give(who, NodeInput::Suspect { node })
            }
            // From a stream that is no more.
            _ => Ok(()),
        }
    }

    /// The watch on `active` tells of changes.
    fn follows(&mut self, who: Who, events: Vec<Event>) -> Verdict {
        if !self.nodes[who].alive {
            return Ok(());
        }
        self.give(who, NodeInput::ActiveChanged { events })
    }

    /// The watch on `active` is opened again, with a new read.
    pub(crate) fn resyncs(&mut self, who: Who, forgotten: bool) {
        self.break_streams(who);
        let active = &mut self.nodes[who].active;
        active.next = None;
        active.early.clear();
        active.forgotten |= forgotten;
        self.reconnect(who);
    }

    pub(crate) fn rings(&mut self, who: Who, timer: Timer) -> Verdict {
        let time = self.clock(self.nodes[who].host);
        let node = &mut self.nodes[who];
        match timer {
            Timer::Wake => {
                if node.rendezvous.next_wake().is_some_and(|wake| wake <= time) {
                    node.wake = None;
                    self.give(who, NodeInput::Wake)?;
                }
                Ok(())
            }
            Timer::Resend(id) => {
                if !node.rendezvous.awaits(id) {
                    node.pending.remove(&id);
                    return Ok(());
                }
                let Some((purpose, txn)) = node.pending.get(&id).cloned() else { return Ok(()) };
                self.send(who, Message::Txn { id, purpose, txn });
                self.ring(who, self.plan.network.retry, Timer::Resend(id));
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
            Timer::Expiry(number) => self.looks_at_session(who, number, false),
            Timer::AskAgain(number, lease) => {
                self.asks_again(who, number, lease);
                Ok(())
            }
            Timer::Confirm(number) => {
                self.confirms(who, number);
                Ok(())
            }
            Timer::Seek => self.seeks(who),
            Timer::Top(alarm) => self.top_rings(who, alarm),
        }
    }

    /// The node goes on after it stood still. The clock speaks before anything that came meanwhile: that of
    /// the guard, if it stood still as well, then that of the session.
    pub(crate) fn resumes(&mut self, who: Who) -> Verdict {
        let Some(still) = self.nodes[who].still.take() else { return Ok(()) };
        tell!(self, "{} goes on", self.nodes[who].id);
        if still == Still::Everything {
            self.wakes_up(who)?;
        }
        if let Some(number) = self.nodes[who].session.as_ref().map(|session| session.number) {
            self.looks_at_session(who, number, true)?;
        }
        for what in std::mem::take(&mut self.nodes[who].inbox) {
            self.dispatch(what)?;
        }
        Ok(())
    }
}
