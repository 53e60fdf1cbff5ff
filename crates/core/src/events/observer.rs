//! The observer of a node: the one place that derives events from what the machines are told and what they decide.
//!
//! It sees every input of the [`Agent`](crate::agent::Agent) and of the [`Node`] with the outputs
//! that followed, measures the stages between them, and decides nothing.

mod agent;
mod node;

use self::agent::AgentObserver;
use self::node::NodeObserver;
use super::EventBody;
use crate::agent::{AgentInput, AgentOutput};
use crate::kv::Time;
use crate::rendezvous::{Node, NodeInput, NodeOutput};

/// An event before it has a number and a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The round that the event belongs to; 0 if it belongs to none.
    pub round: u64,
    /// The kind, and its fields.
    pub body: EventBody,
    /// Why, in a sentence; empty if there is nothing to say.
    pub why: String,
}

impl Observation {
    fn new(round: u64, body: EventBody) -> Self {
        Self { round, body, why: String::new() }
    }

    fn because(self, why: impl ToString) -> Self {
        Self { why: why.to_string(), ..self }
    }
}

/// Derives the events of one node.
#[derive(Debug, Default)]
pub struct EventObserver {
    agent: AgentObserver,
    node: NodeObserver,
}

impl EventObserver {
    /// The events that follow from an input of the agent, and from what it decided.
    pub fn agent(
        &mut self,
        now: Time,
        input: &AgentInput,
        outputs: &[AgentOutput],
    ) -> Vec<Observation> {
        let mut events: Vec<Observation> = self.agent.told(now, input).into_iter().collect();
        events.extend(outputs.iter().filter_map(|output| self.agent.decided(now, output)));
        events
    }

    /// Gives the node an input. Returns what it decided, and the events that follow from the input, from what the node
    /// knows since, and from its decisions. The input is not copied for it: that of a coordinator may have a thousand
    /// documents.
    pub fn node_step(
        &mut self,
        now: Time,
        input: NodeInput,
        node: &mut Node,
    ) -> (Vec<NodeOutput>, Vec<Observation>) {
        let mut events: Vec<Observation> = self.node.told(now, &input, node).into_iter().collect();
        node.handle(now, input);
        let outputs: Vec<NodeOutput> = std::iter::from_fn(|| node.poll_output()).collect();
        self.node.observed(now, node, &mut events);
        events.extend(outputs.iter().filter_map(|output| self.node.decided(output, node)));
        (outputs, events)
    }
}

/// The time since the beginning of a stage, in milliseconds.
fn since(begun: Option<Time>, now: Time) -> Option<u64> {
    begun.map(|begun| super::millis(now.saturating_sub(begun)))
}
