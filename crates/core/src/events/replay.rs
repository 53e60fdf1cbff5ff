//! Decides again: gives the recorded inputs to fresh machines, and compares what they decide with what was recorded.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use super::observer::{EventObserver, Observation};
use super::{EventBody, EventError, RunEvent, millis};
use crate::agent::Agent;
use crate::kv::Time;
use crate::rendezvous::Node;

/// Why a file of events is not the record of what the machines decide.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// A line cannot be read.
    #[error("line {line} cannot be read")]
    Unreadable {
        /// The number of the line.
        line: u64,
        /// What is wrong with it.
        source: EventError,
    },
    /// Lines are missing.
    #[error(
        "line {line} is number {found} of node {node}, and number {expected} is missing: the file is not whole, \
         because lines were removed or could not be written"
    )]
    Gap {
        /// The number of the line.
        line: u64,
        /// The node.
        node: String,
        /// The sequence number that should be here.
        expected: u64,
        /// The sequence number that is.
        found: u64,
    },
    /// The file has events, and no records.
    #[error(
        "line {line} is the first of node {node}, and no record: the file has events alone, and cannot be replayed; \
         --records of rallypoint run records what a replay needs"
    )]
    NoRecords {
        /// The number of the line.
        line: u64,
        /// The node.
        node: String,
    },
    /// An input is recorded for a machine whose beginning is not.
    #[error("line {line}: there is no {began} of node {node} before this line")]
    NoBeginning {
        /// The number of the line.
        line: u64,
        /// The node.
        node: String,
        /// The kind of the missing record.
        began: &'static str,
    },
    /// The recorded inputs lead to something else than what is recorded.
    #[error(
        "line {line} differs (number {seq} of node {node}): recorded is {recorded}, and the inputs up to it lead to \
         {replayed}; the record was written by version {version}"
    )]
    Differs {
        /// The number of the line.
        line: u64,
        /// The sequence number of the line.
        seq: u64,
        /// The node.
        node: String,
        /// What the line says.
        recorded: String,
        /// What it should say.
        replayed: String,
        /// The version that wrote the record.
        version: String,
    },
}

/// What was replayed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// The number of starts of nodes.
    pub starts: u64,
    /// The number of inputs that the machines were given.
    pub inputs: u64,
    /// The number of outputs that they decided on.
    pub outputs: u64,
    /// The number of events that followed.
    pub events: u64,
    /// The numbers of the lines that were cut off, by the end of a process or a full disk.
    pub cut_off: Vec<u64>,
}

/// Replays a file, line by line. The lines of several nodes may be mixed.
#[derive(Debug, Default)]
pub struct Replay {
    line: u64,
    nodes: BTreeMap<String, NodeReplay>,
    /// The last line, if it cannot be read. Only the last line of a process may be cut off.
    unreadable: Option<(u64, EventError)>,
    replayed: Replayed,
}

/// The machines of a node, and the events that must follow.
#[derive(Debug, Default)]
struct NodeReplay {
    seq: u64,
    version: String,
    observer: EventObserver,
    agent: Option<Agent>,
    node: Option<Node>,
    now: Time,
    expected: VecDeque<Observation>,
}

impl Replay {
    /// Takes the next line.
    ///
    /// # Errors
    /// [`ReplayError`] names the line, what it says, and what it should say.
    pub fn line(&mut self, text: &str) -> Result<(), ReplayError> {
        self.line += 1;
        let line = self.line;
        if text.trim().is_empty() {
            return Ok(());
        }
        let event = RunEvent::parse(text);
        if let Some((line, source)) = self.unreadable.take() {
            match &event {
                Ok(event) if event.seq == 1 => self.replayed.cut_off.push(line),
                _ => return Err(ReplayError::Unreadable { line, source }),
            }
        }
        match event {
            Ok(event) => self.event(line, event),
            Err(source @ EventError::Format(_)) => Err(ReplayError::Unreadable { line, source }),
            Err(error) => {
                self.unreadable = Some((line, error));
                Ok(())
            }
        }
    }

    /// What was replayed, after the last line.
    pub fn end(mut self) -> Replayed {
        self.replayed.cut_off.extend(self.unreadable.map(|(line, _)| line));
        self.replayed
    }

    fn event(&mut self, line: u64, event: RunEvent) -> Result<(), ReplayError> {
        let node = event.node_id.clone();
        let replay = self.nodes.entry(node.clone()).or_default();
        if event.seq == 1 {
            *replay = NodeReplay::default();
            self.replayed.starts += 1;
        }
        if event.seq != replay.seq + 1 {
            let (expected, found) = (replay.seq + 1, event.seq);
            return Err(ReplayError::Gap { line, node, expected, found });
        }
        if event.seq == 1 && !is_record(&event.body) {
            return Err(ReplayError::NoRecords { line, node });
        }
        replay.seq = event.seq;
        let before = replay.now;
        let found = replay.take(&event, &mut self.replayed);
        found.map_err(|difference| match difference {
            Difference::NoBeginning(began) => ReplayError::NoBeginning { line, node, began },
            Difference::Decisions(recorded, replayed) => {
                let words = |outputs: &[Value]| Value::from(outputs).to_string();
                let (recorded, replayed) = (words(&recorded), words(&replayed));
                let (seq, version) = (event.seq, replay.version.clone());
                ReplayError::Differs { line, seq, node, recorded, replayed, version }
            }
            Difference::Event(expected) => {
                let replayed = match expected {
                    None => "no event".to_owned(),
                    Some(expected) => {
                        let (Observation { round, body, why }, ms) = (*expected, millis(before));
                        RunEvent { round, body, why, ms, ..event.clone() }.to_line()
                    }
                };
                let (seq, version) = (event.seq, replay.version.clone());
                let recorded = event.to_line();
                ReplayError::Differs { line, seq, node, recorded, replayed, version }
            }
        })
    }
}

/// How a line differs from what follows from the lines before it.
enum Difference {
    NoBeginning(&'static str),
    /// The recorded outputs, and those that the machine has now.
    Decisions(Vec<Value>, Vec<Value>),
    /// This event should be here.
    Event(Option<Box<Observation>>),
}

impl NodeReplay {
    fn take(&mut self, event: &RunEvent, replayed: &mut Replayed) -> Result<(), Difference> {
        if !is_record(&event.body) {
            let expected = self.expected.pop_front();
            let ms = millis(self.now);
            let is_it = |Observation { round, body, why }: &Observation| {
                (*round, body, why, ms) == (event.round, &event.body, &event.why, event.ms)
            };
            if !expected.as_ref().is_some_and(is_it) {
                return Err(Difference::Event(expected.map(Box::new)));
            }
            replayed.events += 1;
            return Ok(());
        }
        if let Some(missing) = self.expected.pop_front() {
            return Err(Difference::Event(Some(Box::new(missing))));
        }
        let (outputs, recorded) = match &event.body {
            EventBody::AgentBegan { version, settings } => {
                self.version.clone_from(version);
                self.agent = Some(Agent::new(settings.clone()));
                return Ok(());
            }
            EventBody::NodeBegan { version, config, document, entropy } => {
                self.version.clone_from(version);
                let (config, document) = ((**config).clone(), (**document).clone());
                self.node = Some(Node::new(config, document, *entropy));
                return Ok(());
            }
            EventBody::AgentStep { at_ns, input, outputs } => {
                let agent = self.agent.as_mut().ok_or(Difference::NoBeginning("agent_began"))?;
                self.now = Time::from_nanos(*at_ns);
                agent.handle(self.now, input.clone());
                let decided: Vec<_> = std::iter::from_fn(|| agent.poll_output()).collect();
                self.expected = self.observer.agent(self.now, input, &decided).into();
                (values(&decided), outputs)
            }
            EventBody::NodeStep { at_ns, input, outputs } => {
                let node = self.node.as_mut().ok_or(Difference::NoBeginning("node_began"))?;
                self.now = Time::from_nanos(*at_ns);
                let (decided, events) = self.observer.node_step(self.now, (**input).clone(), node);
                self.expected = events.into();
                (values(&decided), outputs)
            }
            _ => return Ok(()),
        };
        replayed.inputs += 1;
        replayed.outputs += outputs.len() as u64;
        if outputs != *recorded {
            return Err(Difference::Decisions(recorded.clone(), outputs));
        }
        Ok(())
    }
}

fn is_record(body: &EventBody) -> bool {
    matches!(
        body,
        EventBody::AgentBegan { .. }
            | EventBody::AgentStep { .. }
            | EventBody::NodeBegan { .. }
            | EventBody::NodeStep { .. }
    )
}

/// Outputs as a line has them.
fn values<T: Serialize>(outputs: &[T]) -> Vec<Value> {
    outputs.iter().map(|output| serde_json::to_value(output).unwrap_or_default()).collect()
}
