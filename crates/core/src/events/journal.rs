//! The journal of a node: its events in order, and between them the record of what its machines were told and decided.

use super::observer::{EventObserver, Observation};
use super::outputs::Outputs;
use super::{EventBody, FORMAT, RunEvent, millis, rfc3339};
use crate::agent::{AgentInput, AgentOutput, AgentSettings};
use crate::kv::Time;
use crate::rendezvous::documents::NodeDocument;
use crate::rendezvous::{Node, NodeConfig, NodeInput, NodeOutput};

/// A moment by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time that the machine is given.
    pub now: Time,
    /// The wall-clock time, in milliseconds since 1970, for display only.
    pub wall: u64,
}

/// Numbers the events of a node, and records the inputs and outputs from which they follow.
///
/// Each step is a record, followed by its events. [`Replay`](super::Replay) reads both.
#[derive(Debug)]
pub struct Journal {
    run_id: String,
    node_id: String,
    seq: u64,
    observer: EventObserver,
    has_records: bool,
}

impl Journal {
    /// The journal of this node, before its first line.
    pub fn new(run_id: impl Into<String>, node_id: impl Into<String>) -> Self {
        let (run_id, node_id) = (run_id.into(), node_id.into());
        Self { run_id, node_id, seq: 0, observer: EventObserver::default(), has_records: true }
    }

    /// The same without records: events alone, which cost less and cannot be replayed.
    #[must_use]
    pub fn without_records(self) -> Self {
        Self { has_records: false, ..self }
    }

    /// Records an agent before its first input.
    pub fn agent_began(&mut self, at: Moment, settings: &AgentSettings) -> Vec<RunEvent> {
        self.lines(at, Vec::new(), || EventBody::AgentBegan {
            version: version(),
            settings: settings.clone(),
        })
    }

    /// Records an input of the agent and the outputs that followed.
    pub fn agent_step(
        &mut self,
        at: Moment,
        input: &AgentInput,
        outputs: &[AgentOutput],
    ) -> Vec<RunEvent> {
        let events = self.observer.agent(at.now, input, outputs);
        self.lines(at, events, || {
            let (input, outputs) = (input.clone(), Outputs::Decided(outputs.to_vec()));
            EventBody::AgentStep { at_ns: nanos(at.now), input, outputs }
        })
    }

    /// Records a node before its first input: the arguments of [`Node::new`].
    pub fn node_began(
        &mut self,
        at: Moment,
        config: &NodeConfig,
        document: &NodeDocument,
        entropy: u64,
    ) -> Vec<RunEvent> {
        self.lines(at, Vec::new(), || {
            let (config, document) = (Box::new(config.clone()), Box::new(document.clone()));
            EventBody::NodeBegan { version: version(), config, document, entropy }
        })
    }

    /// Records an input of the node and the outputs that followed. The node has handled the input.
    pub fn node_step(
        &mut self,
        at: Moment,
        input: NodeInput,
        outputs: &[NodeOutput],
        node: &Node,
    ) -> Vec<RunEvent> {
        let events = self.observer.node(at.now, &input, outputs, node);
        self.lines(at, events, || {
            let (input, outputs) = (Box::new(input), Outputs::Decided(outputs.to_vec()));
            EventBody::NodeStep { at_ns: nanos(at.now), input, outputs }
        })
    }

    fn lines(
        &mut self,
        at: Moment,
        events: Vec<Observation>,
        record: impl FnOnce() -> EventBody,
    ) -> Vec<RunEvent> {
        let round = events.first().map_or(0, |event| event.round);
        let record =
            self.has_records.then(|| Observation { round, body: record(), why: String::new() });
        record.into_iter().chain(events).map(|observation| self.line(at, observation)).collect()
    }

    fn line(&mut self, at: Moment, Observation { round, body, why }: Observation) -> RunEvent {
        self.seq += 1;
        RunEvent {
            format: FORMAT,
            seq: self.seq,
            time: rfc3339(at.wall),
            ms: millis(at.now),
            run_id: self.run_id.clone(),
            node_id: self.node_id.clone(),
            round,
            body,
            why,
        }
    }
}

fn version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

fn nanos(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
