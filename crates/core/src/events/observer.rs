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

    /// The events that follow from an input of the node, from what it decided, and from what it knows since: `node` has
    /// handled the input.
    pub fn node(
        &mut self,
        now: Time,
        input: &NodeInput,
        outputs: &[NodeOutput],
        node: &Node,
    ) -> Vec<Observation> {
        let mut events: Vec<Observation> = self.node.told(now, input, node).into_iter().collect();
        events.extend(self.node.observed(now, node));
        events.extend(outputs.iter().filter_map(|output| self.node.decided(output, node)));
        events
    }
}

/// The time since the beginning of a stage, in milliseconds.
fn since(begun: Option<Time>, now: Time) -> Option<u64> {
    begun.map(|begun| super::millis(now.saturating_sub(begun)))
}
