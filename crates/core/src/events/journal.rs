//! The journal of a node: its events in order, and between them the record of what its machines were told and decided.

use serde::Serialize;

use super::observer::{EventObserver, Observation};
use super::{FORMAT, millis, rfc3339};
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

/// What a journal writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// No lines: the events are for a reader in this process.
    Nothing,
    /// Events.
    Events,
    /// Events, and between them the records that [`Replay`](super::Replay) needs.
    Records,
}

/// Numbers the events of a node, and records the inputs and outputs from which they follow.
///
/// Each step is a record, followed by its events. Lines are appended to a text as they are made, from what they are
/// about: nothing is copied for them.
#[derive(Debug)]
pub struct Journal {
    run_id: String,
    node_id: String,
    detail: Detail,
    seq: u64,
    observer: EventObserver,
}

/// A line as it is written. [`RunEvent`](super::RunEvent) has the same fields, as they are read.
#[derive(Serialize)]
struct Line<'a, B> {
    format: u32,
    seq: u64,
    time: &'a str,
    ms: u64,
    run_id: &'a str,
    node_id: &'a str,
    round: u64,
    #[serde(flatten)]
    body: &'a B,
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
}

/// A record as it is written. [`EventBody`](super::EventBody) has the same kinds, as they are read.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Record<'a> {
    AgentBegan {
        version: &'static str,
        settings: &'a AgentSettings,
    },
    AgentStep {
        at_ns: u64,
        input: &'a AgentInput,
        outputs: &'a [AgentOutput],
    },
    NodeBegan {
        version: &'static str,
        config: &'a NodeConfig,
        document: &'a NodeDocument,
        entropy: u64,
    },
    NodeStep {
        at_ns: u64,
        input: &'a NodeInput,
        outputs: &'a [NodeOutput],
    },
}

impl Journal {
    /// The journal of this node, before its first line.
    pub fn new(run_id: impl Into<String>, node_id: impl Into<String>, detail: Detail) -> Self {
        let (run_id, node_id) = (run_id.into(), node_id.into());
        Self { run_id, node_id, detail, seq: 0, observer: EventObserver::default() }
    }

    /// Records an agent before its first input.
    pub fn agent_began(&mut self, at: Moment, settings: &AgentSettings, text: &mut Vec<u8>) {
        self.lines(at, &[], Some(&Record::AgentBegan { version: VERSION, settings }), text);
    }

    /// Records an input of the agent and the outputs that followed. The events of it are returned.
    pub fn agent_step(
        &mut self,
        at: Moment,
        input: &AgentInput,
        outputs: &[AgentOutput],
        text: &mut Vec<u8>,
    ) -> Vec<Observation> {
        let events = self.observer.agent(at.now, input, outputs);
        let record = Record::AgentStep { at_ns: nanos(at.now), input, outputs };
        self.lines(at, &events, Some(&record), text);
        events
    }

    /// Records a node before its first input: the arguments of [`Node::new`].
    pub fn node_began(
        &mut self,
        at: Moment,
        config: &NodeConfig,
        document: &NodeDocument,
        entropy: u64,
        text: &mut Vec<u8>,
    ) {
        let began = Record::NodeBegan { version: VERSION, config, document, entropy };
        self.lines(at, &[], Some(&began), text);
    }

    /// Gives the node an input, and records it and the outputs that follow. Returns the outputs, and the events.
    pub fn node_step(
        &mut self,
        at: Moment,
        input: NodeInput,
        node: &mut Node,
        text: &mut Vec<u8>,
    ) -> (Vec<NodeOutput>, Vec<Observation>) {
        let recorded = (self.detail == Detail::Records).then(|| input.clone());
        let (outputs, events) = self.observer.node_step(at.now, input, node);
        let record = recorded.as_ref().map(|input| Record::NodeStep {
            at_ns: nanos(at.now),
            input,
            outputs: &outputs,
        });
        self.lines(at, &events, record.as_ref(), text);
        (outputs, events)
    }

    fn lines(
        &mut self,
        at: Moment,
        events: &[Observation],
        record: Option<&Record<'_>>,
        text: &mut Vec<u8>,
    ) {
        let record = record.filter(|_| self.detail == Detail::Records);
        if self.detail == Detail::Nothing || (events.is_empty() && record.is_none()) {
            return;
        }
        let (time, ms) = (rfc3339(at.wall), millis(at.now));
        if let Some(record) = record {
            let round = events.first().map_or(0, |event| event.round);
            self.line((&time, ms), round, record, "", text);
        }
        for Observation { round, body, why } in events {
            self.line((&time, ms), *round, body, why, text);
        }
    }

    fn line<B: Serialize>(
        &mut self,
        (time, ms): (&str, u64),
        round: u64,
        body: &B,
        why: &str,
        text: &mut Vec<u8>,
    ) {
        self.seq += 1;
        let Self { run_id, node_id, seq, .. } = self;
        let line = Line { format: FORMAT, seq: *seq, time, ms, run_id, node_id, round, body, why };
        // A line consists of numbers, strings and lists, which JSON can always represent, and a vector takes all bytes.
        let _ = serde_json::to_writer(&mut *text, &line);
        text.push(b'\n');
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn nanos(time: Time) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
