//! Nodes and a store, wired together.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rallypoint_core::kv::{KeyRange, LeaseId, Time, Txn, TxnResult, Watch};
use rallypoint_core::mvcc::{Mvcc, MvccOptions, StreamId, WatchMessage};
use rallypoint_core::rendezvous::documents::{
    Address, BootstrapStore, LivenessAddress, NodeDocument,
};
use rallypoint_core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rallypoint_core::rendezvous::{Node, NodeConfig, NodeInput, NodeOutput, RequestId, WatchSetId};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::super::super::AnyError;
use super::wire;
use crate::convert;
use crate::rendezvous::HandlerOptions;

/// What was done since the last look.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Cost {
    /// Processor time to decode requests, to execute them, and to encode answers and events.
    pub(super) server_seconds: f64,
    /// Processor time of the nodes, encoding and decoding included.
    pub(super) node_seconds: f64,
    /// Messages that nodes sent.
    pub(super) requests: u64,
    /// Messages that nodes received: answers, and events of watches.
    pub(super) messages: u64,
    /// The size of all of them.
    pub(super) bytes: u64,
    pub(super) largest_request: usize,
    pub(super) largest_message: usize,
}

impl Cost {
    fn sent(&mut self, size: usize) {
        self.requests += 1;
        self.bytes += size as u64;
        self.largest_request = self.largest_request.max(size);
    }

    fn received(&mut self, size: usize) {
        self.messages += 1;
        self.bytes += size as u64;
        self.largest_message = self.largest_message.max(size);
    }
}

/// What comes next. First come, first served: the model has no network that could delay anything.
enum Step {
    Give(usize, NodeInput),
    Request(usize, RequestId, Txn),
    /// A stream has something to send. By its turn more may have come, which then shares a message, as on a server.
    Drain(StreamId),
}

/// The node of a stream, and what it is for.
#[derive(Clone, Copy)]
enum Listener {
    Active(usize),
    Set(usize, WatchSetId),
}

pub(super) struct Model {
    pub(super) cost: Cost,
    store: Mvcc,
    nodes: Vec<Node>,
    config: NodeConfig,
    steps: VecDeque<Step>,
    listeners: BTreeMap<StreamId, Listener>,
    /// The streams of coordinators.
    sets: BTreeMap<usize, StreamId>,
    formed: usize,
    now: Time,
}

/// Processor time of this thread, since a machine may have other work.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Runs `work`, and adds its processor time to `sum`.
fn timed<T>(sum: &mut f64, work: impl FnOnce() -> T) -> T {
    let begun = processor_time();
    let done = work();
    *sum += processor_time() - begun;
    done
}

const LEASE_TTL: i64 = 10;

impl Model {
    /// Nodes with sessions and watches, as handlers have them before their first rendezvous.
    pub(super) fn open(count: u32) -> Result<Self, AnyError> {
        let size = count as usize;
        let keys = Keys::new(DEFAULT_PREFIX, "llama-70b-pretraining");
        let mut config =
            HandlerOptions::new("llama-70b-pretraining", size, size).node_config(&keys);
        // The clock stands still while nodes have something to do.
        (config.timeout, config.confirm) = (Duration::from_secs(3600), Duration::from_secs(3600));
        let mut model = Self {
            cost: Cost::default(),
            store: Mvcc::new(MvccOptions::default()),
            nodes: Vec::with_capacity(size),
            steps: VecDeque::new(),
            listeners: BTreeMap::new(),
            sets: BTreeMap::new(),
            formed: 0,
            now: Duration::ZERO,
            config,
        };
        model.store.lease_grant(model.now, model.config.run_lease, 7200)?;
        for who in 0..size {
            model.add(who)?;
        }
        model.run(false)?;
        Ok(model)
    }

    pub(super) fn nodes(&self) -> u32 {
        self.nodes.len() as u32
    }

    pub(super) fn store_bytes(&self) -> usize {
        self.store.bytes()
    }

    fn add(&mut self, who: usize) -> Result<(), AnyError> {
        // Names and addresses as long as those of a cluster.
        let host = format!("gpu-node-{who:06}.cluster.internal");
        let address = format!("10.{}.{}.{}", who >> 16, who >> 8 & 255, who & 255);
        let entropy = fastrand::u64(..);
        let document = NodeDocument {
            id: format!("{host}-{}-{entropy:016x}", 100_000 + who),
            address: address.clone(),
            host,
            pid: 100_000 + who as u32,
            local_workers: 8,
            liveness: Some(LivenessAddress { host: address, port: 40_000, token: token() }),
            started: self.config.started,
            ..Default::default()
        };
        self.nodes.push(Node::new(self.config.clone(), document, entropy));
        let lease = lease_of(who);
        self.cost.sent(wire::length(&wire::grant(LEASE_TTL)));
        timed(&mut self.cost.server_seconds, || {
            self.store.lease_grant(self.now, lease, LEASE_TTL)
        })?;
        self.cost.received(wire::length(&wire::granted(LEASE_TTL)));
        let active = Watch::new(KeyRange::key(self.config.keys.active()));
        self.watch(Listener::Active(who), vec![active])?;
        let snapshot = self.config.snapshot_txn();
        let found = self.ask(&snapshot)?;
        self.steps.push_back(Step::Give(who, NodeInput::SessionOpened { lease }));
        let another_server = false;
        self.steps.push_back(Step::Give(who, NodeInput::Snapshot { found, another_server }));
        Ok(())
    }

    fn watch(&mut self, listener: Listener, watches: Vec<Watch>) -> Result<StreamId, AnyError> {
        let stream = self.store.open_stream();
        self.listeners.insert(stream, listener);
        for watch in watches {
            self.cost.sent(wire::length(&convert::watch_create(watch.clone())));
            let next = self.store.revision() + 1;
            let from = if watch.start_revision > 0 { watch.start_revision } else { next };
            let work = || self.store.watch(stream, None, watch.from_revision(from));
            timed(&mut self.cost.server_seconds, work)?;
        }
        self.steps.push_back(Step::Drain(stream));
        Ok(stream)
    }

    /// A transaction, there and back.
    fn ask(&mut self, txn: &Txn) -> Result<TxnResult, AnyError> {
        let request = timed(&mut self.cost.node_seconds, || wire::encode_txn(txn.clone()));
        self.cost.sent(request.len());
        let mut woken = Vec::new();
        let answer = timed(&mut self.cost.server_seconds, || -> Result<Vec<u8>, AnyError> {
            let txn = convert::txn(wire::decode_txn(&request)?)?;
            let result = match txn.is_read_only() {
                true => self.store.read_txn(&txn)?,
                false => self.store.txn(txn)?,
            };
            woken = self.store.publish_all();
            Ok(wire::encode_answer(result))
        })?;
        self.steps.extend(woken.into_iter().map(Step::Drain));
        self.cost.received(answer.len());
        let decode = || -> Result<_, AnyError> { Ok(wire::decode_answer(&answer)?.try_into()?) };
        timed(&mut self.cost.node_seconds, decode)
    }

    /// All nodes enter, until all are members of a group.
    pub(super) fn form(&mut self) -> Result<(), AnyError> {
        self.formed = 0;
        for who in 0..self.nodes.len() {
            self.steps.push_back(Step::Give(who, NodeInput::Enter));
        }
        self.run(true)
    }

    /// Every node renews its lease once.
    pub(super) fn renew(&mut self) -> Result<(), AnyError> {
        for who in 0..self.nodes.len() {
            let request =
                timed(&mut self.cost.node_seconds, || wire::encode_renewal(lease_of(who)));
            self.cost.sent(request.len());
            let renewed = timed(&mut self.cost.server_seconds, || -> Result<_, AnyError> {
                let lease = wire::decode_renewal(&request)?;
                let ttl = self.store.lease_keep_alive(self.now, lease).ok_or("a lease is lost")?;
                Ok(wire::encode_renewed(lease, ttl))
            })?;
            self.cost.received(renewed.len());
        }
        Ok(())
    }

    fn run(&mut self, until_formed: bool) -> Result<(), AnyError> {
        loop {
            while let Some(step) = self.steps.pop_front() {
                match step {
                    Step::Give(who, input) => self.give(who, input)?,
                    Step::Drain(stream) => self.drain(stream)?,
                    Step::Request(who, id, txn) => {
                        let result = self.ask(&txn)?;
                        self.steps.push_back(Step::Give(who, NodeInput::Answered { id, result }));
                    }
                }
            }
            if !until_formed || self.formed == self.nodes.len() {
                return Ok(());
            }
            self.wake()?;
        }
    }

    /// Nobody has anything to do before the first alarm of a node.
    fn wake(&mut self) -> Result<(), AnyError> {
        let alarms = self.nodes.iter().map(Node::next_wake).enumerate();
        let (who, at) = alarms
            .filter_map(|(who, at)| Some((who, at?)))
            .min_by_key(|(_, at)| *at)
            .ok_or("no group forms, and nobody waits for anything")?;
        if at >= self.config.confirm {
            return Err(
                format!("only {} of {} nodes have a rank", self.formed, self.nodes.len()).into()
            );
        }
        self.now = self.now.max(at);
        self.steps.push_back(Step::Give(who, NodeInput::Wake));
        Ok(())
    }

    fn drain(&mut self, stream: StreamId) -> Result<(), AnyError> {
        let Some(listener) = self.listeners.get(&stream).copied() else { return Ok(()) };
        loop {
            let next = timed(&mut self.cost.server_seconds, || {
                let message = self.store.next_message(stream)?;
                let id = match &message {
                    WatchMessage::Events { id, .. } => Some(*id),
                    WatchMessage::Compacted { .. } => None,
                };
                Some((id, wire::encode_events(message)))
            });
            let Some((id, message)) = next else { return Ok(()) };
            let id = id.ok_or("the store has compacted what a node has yet to read")?;
            self.cost.received(message.len());
            let decode = || wire::decode_events(&message).map(convert::WatchResponse::from);
            let events = timed(&mut self.cost.node_seconds, decode)?.events;
            let (who, input) = match listener {
                Listener::Active(who) => (who, NodeInput::ActiveChanged { events }),
                Listener::Set(who, set) => {
                    (who, NodeInput::Watched { id: set, watch: id as usize, events })
                }
            };
            self.steps.push_back(Step::Give(who, input));
        }
    }

    fn give(&mut self, who: usize, input: NodeInput) -> Result<(), AnyError> {
        let Some(node) = self.nodes.get_mut(who) else { return Ok(()) };
        let outputs: Vec<NodeOutput> = timed(&mut self.cost.node_seconds, || {
            node.handle(self.now, input);
            std::iter::from_fn(|| node.poll_output()).collect()
        });
        for output in outputs {
            self.execute(who, output)?;
        }
        Ok(())
    }

    fn execute(&mut self, who: usize, output: NodeOutput) -> Result<(), AnyError> {
        match output {
            NodeOutput::Request { id, txn, .. } => {
                self.steps.push_back(Step::Request(who, id, txn))
            }
            NodeOutput::Watch { id, watches } => {
                self.unwatch(who);
                let stream = self.watch(Listener::Set(who, id), watches)?;
                self.sets.insert(who, stream);
                self.steps.push_back(Step::Give(who, NodeInput::Watching { id }));
            }
            NodeOutput::Unwatch => self.unwatch(who),
            NodeOutput::ServeBootstrapStore { round } => {
                let address = Address { host: format!("gpu-node-{who:06}"), port: 29_500 };
                let store =
                    BootstrapStore { address, token: token(), liveness: None, runs_server: false };
                let ready = NodeInput::BootstrapStoreReady { round, store };
                self.steps.push_back(Step::Give(who, ready));
            }
            NodeOutput::Formed(_) => self.formed += 1,
            NodeOutput::Failed(failure) => return Err(format!("{failure:?}").into()),
            NodeOutput::Fenced(cause) => return Err(format!("a node is fenced: {cause:?}").into()),
            NodeOutput::Done(_)
            | NodeOutput::Resync
            | NodeOutput::OpenSession
            | NodeOutput::EndSession => {}
        }
        Ok(())
    }

    fn unwatch(&mut self, who: usize) {
        if let Some(stream) = self.sets.remove(&who) {
            self.listeners.remove(&stream);
            self.store.close_stream(stream);
        }
    }
}

fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// As large as those that clients draw.
fn lease_of(who: usize) -> LeaseId {
    i64::MAX - 1 - who as LeaseId
}
