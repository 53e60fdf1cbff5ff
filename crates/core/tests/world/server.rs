//! The server: one store, its watch streams, and its restarts.

use rallypoint_core::kv::{KeyRange, KvError, LeaseId, Op, Put, Revision, Time, Txn, Watch};
use rallypoint_core::mvcc::{Mvcc, MvccOptions, StreamId, WatchMessage};
use rallypoint_core::rendezvous::Purpose;
use rallypoint_core::rendezvous::documents::{Predecessor, encode};
use rallypoint_core::rendezvous::keys::{DEFAULT_PREFIX, Keys, PREDECESSOR};
use rallypoint_core::rendezvous::succession::right::ServingRight;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::broken::{self, Broken};
use super::events::{At, Delivery, Memory, Message, SimEvent, Who, World, tell};
use super::invariants::{Verdict, violation};
use super::plan::{Millis, RUN_LEASE};

/// The node and the purpose of a stream.
#[derive(Debug, Clone, Copy)]
enum Listener {
    Inspector,
    Active(Who),
    Set(Who),
}

pub(crate) struct Server {
    pub(crate) store: Mvcc,
    pub(crate) down: bool,
    /// What the server keeps when it restarts.
    pub(crate) memory: Memory,
    /// How often the server has lost its state.
    pub(crate) era: u64,
    /// The node and the era of each lease.
    owners: BTreeMap<LeaseId, (Who, u64)>,
    /// The number of executed requests that wrote ranks: 0 unless a group is large.
    pub(crate) rankings: u64,
    /// The node and the purpose of the request in execution.
    pub(crate) executing: Option<(Who, Purpose)>,
    listeners: BTreeMap<StreamId, Listener>,
    /// When the next check for expired leases is due.
    looks_at: Option<Millis>,
    next_lease: LeaseId,
    /// When a lease was last granted or renewed, by this server or one before it.
    last_renewal: Option<Millis>,
    /// The right to grant and renew leases, where hosts succeed each other as servers.
    pub(crate) right: ServingRight,
}

/// The right of a server that is not open, which never has any.
fn no_right() -> ServingRight {
    ServingRight::new(Keys::new(DEFAULT_PREFIX, "none"), Duration::ZERO)
}

impl Server {
    pub(crate) fn new(at: At) -> Self {
        let mut server = Self {
            store: Mvcc::new(MvccOptions::default()),
            down: false,
            memory: Memory::Whole,
            era: 0,
            owners: BTreeMap::new(),
            rankings: 0,
            executing: None,
            listeners: BTreeMap::new(),
            looks_at: None,
            // No two servers grant the same lease.
            next_lease: 100 + 1_000_000 * at as LeaseId,
            last_renewal: None,
            right: no_right(),
        };
        server.inspect();
        server
    }

    /// A server without any memory begins.
    pub(crate) fn begins(&mut self, era: u64, keys: Keys, lease_ttl: Duration) {
        self.store = Mvcc::new(MvccOptions::default());
        self.right = ServingRight::new(keys, lease_ttl);
        self.era = era;
        self.listeners.clear();
        self.inspect();
        self.down = false;
        self.looks_at = None;
    }

    /// Whether the server may grant and renew leases.
    pub(crate) fn has_right(&mut self, broken: Broken, now: Time) -> bool {
        broken == Broken::NoSteppingDown || self.right.holds(now)
    }

    /// The node of a lease.
    pub(crate) fn owner(&self, lease: LeaseId) -> Option<Who> {
        self.owners.get(&lease).map(|(who, _)| *who)
    }

    /// Whether the lease was granted in the present era.
    pub(crate) fn granted(&self, lease: LeaseId) -> bool {
        self.owners.get(&lease).is_some_and(|(_, era)| *era == self.era)
    }

    /// Lets the inspector observe every later change.
    fn inspect(&mut self) {
        let stream = self.listen(Listener::Inspector);
        self.store.watch(stream, None, Watch::new(KeyRange::all())).expect("the first of all");
    }

    fn listen(&mut self, listener: Listener) -> StreamId {
        let stream = self.store.open_stream();
        self.listeners.insert(stream, listener);
        stream
    }

    pub(crate) fn close_streams(&mut self, who: Who) {
        let his = |listener: &Listener| matches!(listener, Listener::Active(of) | Listener::Set(of) if *of == who);
        self.close_where(his);
    }

    pub(crate) fn close_set(&mut self, who: Who) {
        self.close_where(|listener| matches!(listener, Listener::Set(of) if *of == who));
    }

    fn close_where(&mut self, closes: impl Fn(&Listener) -> bool) {
        let store = &mut self.store;
        self.listeners.retain(|stream, listener| {
            let closes = closes(listener);
            if closes {
                store.close_stream(*stream);
            }
            !closes
        });
    }
}

impl World {
    /// Handles a message.
    pub(crate) fn arrives(&mut self, who: Who, at: At, message: Message) -> Verdict {
        if self.servers[at].down {
            return Ok(());
        }
        let time = self.clock(at);
        match message {
            Message::Txn { id, purpose, txn } => {
                self.servers[at].executing = Some((who, purpose));
                let result = match txn.is_read_only() {
                    true => self.servers[at].store.read_txn(&txn),
                    false => self.servers[at].store.txn((*txn).clone()),
                };
                match result {
                    Ok(mut result) => {
                        tell!(
                            self,
                            "server: {} {purpose:?} {id} {} at {}",
                            self.nodes[who].id,
                            if result.succeeded { "done" } else { "refused" },
                            result.revision
                        );
                        self.published(at)?;
                        self.servers[at].rankings += u64::from(purpose == Purpose::AssignRanks);
                        if purpose == Purpose::Sweep {
                            self.inspector.stores[at].swept(&txn);
                        }
                        if purpose == Purpose::Freeze && result.succeeded {
                            self.confirms_for_others(who, at, &txn);
                        }
                        if let Some(id) = broken::ends_lease_of(self.broken, purpose, &txn) {
                            self.end_lease_of(at, &id)?;
                        }
                        broken::answer(self.broken, purpose, &mut result);
                        let result = Rc::new(result);
                        self.reply(who, at, Delivery::Answer { id, purpose, result });
                    }
                    Err(KvError::LeaseNotFound) => {
                        tell!(self, "server: {} {purpose:?} {id}: no lease", self.nodes[who].id);
                        self.reply(who, at, Delivery::NoLease);
                    }
                    Err(error) => {
                        let id = &self.nodes[who].id;
                        return violation("sound", format!("{id} asked {purpose:?}: {error}"));
                    }
                }
                self.servers[at].executing = None;
            }
            Message::Grant { number, sent } => {
                self.servers[at].next_lease += 1;
                let lease = self.servers[at].next_lease;
                if self.has_succession() && !self.servers[at].has_right(self.broken, time) {
                    return Ok(());
                }
                let granted = self.servers[at].store.lease_grant(time, lease, self.plan.ttl);
                granted.expect("the id is new");
                self.servers[at].right.granted(lease, time);
                self.servers[at].last_renewal = Some(self.now);
                let era = self.servers[at].era;
                self.servers[at].owners.insert(lease, (who, era));
                self.reply(who, at, Delivery::Granted { number, sent, lease });
            }
            Message::Renew { number, lease, sent, confirms } => {
                let (broken, succession) = (self.broken, self.has_succession());
                let server = &mut self.servers[at];
                // A renewal that arrives proves nothing of the present.
                let confirms =
                    if broken == Broken::ArrivalConfirms { Some(time) } else { confirms };
                if let Some(confirmed) = confirms {
                    server.right.confirmed(lease, confirmed);
                }
                let withheld = succession && !server.has_right(broken, time);
                let alive = match withheld {
                    true => server.store.lease_status(time, lease).is_some(),
                    false => server.store.lease_keep_alive(time, lease).is_some(),
                };
                server.last_renewal = Some(self.now);
                let renewed = Delivery::Renewed { number, sent, alive, withheld, stamp: time };
                self.reply(who, at, renewed);
            }
            // That it exists is fine.
            Message::GrantRun => drop(self.servers[at].store.lease_grant(time, RUN_LEASE, 7_200)),
            Message::Revoke { lease } => {
                drop(self.servers[at].store.lease_revoke(lease));
                self.published(at)?;
            }
        }
        self.look_at_leases(at);
        Ok(())
    }

    /// Revokes the lease of a node, if that is the broken variant.
    fn end_lease_of(&mut self, at: At, id: &str) -> Verdict {
        let node = self.nodes.iter().find(|node| node.id == id);
        if let Some(session) = node.and_then(|node| node.session.as_ref()) {
            drop(self.servers[at].store.lease_revoke(session.lease));
            self.published(at)?;
        }
        Ok(())
    }

    /// Tells the coordinator that every node has confirmed, if that is the broken variant.
    fn confirms_for_others(&mut self, who: Who, at: At, freeze: &Txn) {
        let (true, Some(id)) = (
            broken::confirms_for_others(self.broken),
            self.nodes[who].set.as_ref().map(|set| set.id),
        ) else {
            return;
        };
        let events = broken::confirmations(freeze, self.servers[at].store.revision());
        let epoch = self.nodes[who].epoch;
        let watched = Delivery::Watched { epoch, id, watch: broken::READY, events };
        self.after(1, SimEvent::Delivered(who, watched));
    }

    fn look_at_leases(&mut self, at: At) {
        let Some(next) = self.servers[at].store.next_expiry() else { return };
        let next = self.when(at, next);
        if self.servers[at].looks_at.is_none_or(|at| next < at) {
            self.servers[at].looks_at = Some(next);
            self.at(next, SimEvent::LeasesEnd(at));
        }
    }

    pub(crate) fn leases_end(&mut self, at: At) -> Verdict {
        if self.servers[at].looks_at.is_some_and(|due| due <= self.now) {
            self.servers[at].looks_at = None;
        }
        if self.servers[at].down {
            return Ok(());
        }
        let time = self.clock(at);
        if self.servers[at].store.expire(time) > 0 {
            tell!(self, "server: leases ended");
            self.check_fences(at)?;
            self.published(at)?;
        }
        self.look_at_leases(at);
        Ok(())
    }

    /// Sends all changes to their streams.
    fn published(&mut self, at: At) -> Verdict {
        for stream in self.servers[at].store.publish_all() {
            self.drain(at, stream)?;
        }
        Ok(())
    }

    /// Sends the events of one stream.
    fn drain(&mut self, at: At, stream: StreamId) -> Verdict {
        let Some(listener) = self.servers[at].listeners.get(&stream).copied() else {
            return Ok(());
        };
        while let Some(message) = self.servers[at].store.next_message(stream) {
            match (listener, message) {
                (Listener::Inspector, WatchMessage::Events { events, .. }) => {
                    for event in &events {
                        self.servers[at].right.changed(event);
                    }
                    self.inspect(at, events)?;
                }
                (Listener::Inspector, WatchMessage::Compacted { .. }) => {}
                (Listener::Active(who), WatchMessage::Events { mut events, .. }) => {
                    broken::active_events(self.broken, &mut self.random, &mut events);
                    let at = self.in_order_active(who);
                    let epoch = self.nodes[who].epoch;
                    let active = Delivery::Active { epoch, events };
                    self.at(at, SimEvent::Delivered(who, active));
                }
                (Listener::Active(who), WatchMessage::Compacted { .. }) => {
                    let at = self.in_order_active(who);
                    let epoch = self.nodes[who].epoch;
                    self.at(at, SimEvent::Delivered(who, Delivery::ActiveCompacted { epoch }));
                }
                (Listener::Set(who), WatchMessage::Events { id: watch, mut events, .. }) => {
                    let watch = watch as usize;
                    broken::watched_events(self.broken, watch, &mut events);
                    let epoch = self.nodes[who].epoch;
                    if let Some((at, id)) = self.in_order_set(who, watch) {
                        let watched = Delivery::Watched { epoch, id, watch, events };
                        self.at(at, SimEvent::Delivered(who, watched));
                    }
                }
                (Listener::Set(who), WatchMessage::Compacted { id: watch, .. }) => {
                    if let Some((at, id)) = self.in_order_set(who, watch as usize) {
                        let broken = Delivery::WatchBroken { id };
                        self.at(at, SimEvent::Delivered(who, broken));
                    }
                }
            }
        }
        Ok(())
    }

    /// When the next message on the node's watch of `active` arrives: not before the last one.
    fn in_order_active(&mut self, who: Who) -> Millis {
        let soonest = self.now + self.delay();
        let active = &mut self.nodes[who].active;
        active.busy_until = active.busy_until.max(soonest);
        active.busy_until
    }

    /// When the next message on one of the coordinator's watches arrives. The watches do not wait for each other.
    fn in_order_set(&mut self, who: Who, watch: usize) -> Option<(Millis, u64)> {
        let soonest = self.now + self.delay();
        let set = self.nodes[who].set.as_mut()?;
        let busy = set.busy_until.get_mut(watch)?;
        *busy = soonest.max(*busy);
        Some((*busy, set.id))
    }

    /// The node opens or resumes its streams.
    pub(crate) fn connects(&mut self, who: Who) -> Verdict {
        let node = &self.nodes[who];
        let Some(at) = node.at.filter(|_| node.alive && !node.cut) else { return Ok(()) };
        if self.servers[at].down || !self.is_linked(who, at) {
            self.after(150, SimEvent::Connects(who));
            return Ok(());
        }
        let (epoch, era) = (node.epoch, self.servers[at].era);
        if node.active.stream.is_none() {
            // It finds another server than the one it knew, and starts again.
            let active = &mut self.nodes[who].active;
            if active.next.is_some() && active.era != era {
                active.next = None;
                active.forgotten = true;
            }
            active.era = era;
            let next = active.next;
            let stream = self.servers[at].listen(Listener::Active(who));
            self.nodes[who].active.stream = Some(stream);
            let watch = Watch::new(KeyRange::key(self.plan.config.keys.active()));
            let watch = watch.from_revision(next.unwrap_or(0));
            self.servers[at].store.watch(stream, None, watch).expect("there is room");
            if next.is_none() {
                // The watch stands, and only now the key is read.
                let delay = self.delay();
                self.after(delay, SimEvent::Connects(who));
                self.nodes[who].active.reads = true;
                return self.drain(at, stream);
            }
            self.drain(at, stream)?;
        } else if std::mem::replace(&mut self.nodes[who].active.reads, false) {
            let look = self.plan.config.snapshot_txn();
            let found = Rc::new(self.servers[at].store.read_txn(&look).expect("a plain read"));
            let delay = self.delay();
            let snapshot = Delivery::Snapshot { epoch, found };
            self.after(delay, SimEvent::Delivered(who, snapshot));
        }
        self.connects_set(who, at)
    }

    fn connects_set(&mut self, who: Who, at: At) -> Verdict {
        let epoch = self.nodes[who].epoch;
        let now: Revision = self.servers[at].store.revision();
        let Some(set) = &mut self.nodes[who].set else { return Ok(()) };
        if set.stream.is_some() {
            return Ok(());
        }
        let id = set.id;
        if *set.era.get_or_insert(self.servers[at].era) != self.servers[at].era {
            // What it was to resume is another server's.
            self.nodes[who].set = None;
            let delay = self.delay();
            self.after(delay, SimEvent::Delivered(who, Delivery::WatchBroken { id }));
            return Ok(());
        }
        let stream = self.servers[at].listen(Listener::Set(who));
        set.stream = Some(stream);
        for (watch, next) in set.watches.iter().zip(&mut set.next) {
            let begins = if watch.start_revision > 0 { watch.start_revision } else { now + 1 };
            let from = *next.get_or_insert(begins);
            let watch = watch.clone().from_revision(from);
            self.servers[at].store.watch(stream, None, watch).expect("there is room");
        }
        if !set.stands {
            let delay = self.delay();
            self.after(delay, SimEvent::Delivered(who, Delivery::Watching { epoch, id }));
        }
        self.drain(at, stream)
    }

    /// The server goes down.
    pub(crate) fn server_down(&mut self, at: At, away: Millis, memory: Memory) {
        if self.servers[at].down {
            return;
        }
        self.servers[at].down = true;
        self.servers[at].memory = memory;
        for who in 0..self.nodes.len() {
            if self.nodes[who].alive && self.nodes[who].at == Some(at) {
                self.break_streams(who);
            }
        }
        self.after(away, SimEvent::ServerUp(at, memory));
    }

    pub(crate) fn server_up(&mut self, at: At, memory: Memory) -> Verdict {
        if !self.servers[at].down {
            return Ok(());
        }
        tell!(self, "server: is back, with {memory:?} of its memory");
        let time = Duration::from_millis(self.now);
        let mut store = Mvcc::new(MvccOptions::default());
        if memory == Memory::None {
            self.servers[at].era += 1;
            self.inspector.now = self.now;
            self.inspector.forgets(at);
            self.top_forgets();
            let says = self.broken != Broken::PredecessorUnsaid;
            if let Some(last) = self.servers[at].last_renewal.filter(|_| says) {
                let before = Predecessor { silent_ms: self.now - last };
                let put = Op::Put(Put::new(PREDECESSOR, encode(&before)));
                store.txn(Txn::when([]).then([put])).expect("the first of all");
                // It is none of the run's keys, so the inspector need not see it.
                drop(store.publish_all());
            }
        } else {
            for record in self.servers[at].store.dump() {
                store.restore(time, &record).expect("its own dump");
            }
        }
        self.servers[at].store = store;
        self.servers[at].listeners.clear();
        self.servers[at].inspect();
        self.servers[at].down = false;
        self.servers[at].looks_at = None;
        if memory == Memory::Compacted {
            self.compact(at);
        }
        for who in 0..self.nodes.len() {
            if self.nodes[who].alive && self.nodes[who].at == Some(at) {
                self.reconnect(who);
            }
        }
        self.look_at_leases(at);
        Ok(())
    }

    /// The server compacts its history.
    pub(crate) fn compact(&mut self, at: At) {
        let revision = self.servers[at].store.revision();
        drop(self.servers[at].store.compact(revision));
    }
}
