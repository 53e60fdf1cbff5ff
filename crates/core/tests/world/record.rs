//! What the nodes of a world were told and decided, as their events, and the proof that it can be decided again.

use std::collections::{BTreeMap, BTreeSet};

use rallypoint_core::agent::{AgentInput, AgentOutput, AgentSettings};
use rallypoint_core::events::{Detail, EventBody, Journal, Moment, Replay, ReplayError, RunEvent};
use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::NodeDocument;
use rallypoint_core::rendezvous::{NodeInput, NodeOutput};

use super::events::{Who, World};
use super::random::Random;

/// The journals of all nodes, and what they have written.
#[derive(Default)]
pub(crate) struct Records {
    nodes: BTreeMap<Who, (Journal, Vec<u8>)>,
    /// The number of workers that exited, as the agents were told.
    exits: usize,
}

impl World {
    fn moment(&self) -> Moment {
        Moment { now: self.time(), wall: self.now }
    }

    pub(crate) fn record_beginning(&mut self, who: Who, document: &NodeDocument, entropy: u64) {
        let at = self.moment();
        let Some(records) = &mut self.records else { return };
        let (mut journal, mut text) =
            (Journal::new("sim", document.id.clone(), Detail::Records), Vec::new());
        journal.node_began(at, &self.plan.config, document, entropy, &mut text);
        records.nodes.insert(who, (journal, text));
    }

    pub(crate) fn record_agent_beginning(&mut self, who: Who, settings: &AgentSettings) {
        let at = self.moment();
        let Some(records) = &mut self.records else { return };
        if let Some((journal, text)) = records.nodes.get_mut(&who) {
            journal.agent_began(at, settings, text);
        }
    }

    /// Gives a node an input, and records it if records are wanted.
    pub(crate) fn give_node(&mut self, who: Who, time: Time, input: NodeInput) -> Vec<NodeOutput> {
        let at = self.moment();
        let node = &mut self.nodes[who].rendezvous;
        let journal = self.records.as_mut().and_then(|records| records.nodes.get_mut(&who));
        if let Some((journal, text)) = journal {
            return journal.node_step(at, input, node, text).0;
        }
        node.handle(time, input);
        std::iter::from_fn(|| node.poll_output()).collect()
    }

    pub(crate) fn record_agent(&mut self, who: Who, input: &AgentInput, outputs: &[AgentOutput]) {
        let at = self.moment();
        let Some(records) = &mut self.records else { return };
        if let Some((journal, text)) = records.nodes.get_mut(&who) {
            journal.agent_step(at, input, outputs, text);
        }
        if matches!(input, AgentInput::Exited(_)) {
            records.exits += 1;
        }
    }
}

impl Records {
    /// The events of each node are whole, and its record leads to the same decisions; a changed line does not.
    pub(crate) fn check(&self, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed);
        let mut exits = 0;
        for (_, text) in self.nodes.values() {
            let text = str::from_utf8(text).map_err(|error| error.to_string())?;
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let events: Result<Vec<_>, _> =
                lines.iter().map(|line| RunEvent::parse(line)).collect();
            let events = events.map_err(|error| error.to_string())?;
            exits += events
                .iter()
                .filter(|event| matches!(event.body, EventBody::WorkerExited { .. }))
                .count();
            check_order(&events)?;
            replay(&lines).map_err(|error| error.to_string())?;
            self.check_change(&mut random, &events, lines)?;
        }
        match exits == self.exits {
            true => Ok(()),
            false => Err(format!("{} workers exited, and {exits} are in the events", self.exits)),
        }
    }

    /// A line that was changed is found, and named.
    fn check_change(
        &self,
        random: &mut Random,
        events: &[RunEvent],
        mut lines: Vec<String>,
    ) -> Result<(), String> {
        let at = random.below(events.len());
        let mut changed = events[at].clone();
        let is_record = match &mut changed.body {
            EventBody::AgentStep { outputs, .. } | EventBody::NodeStep { outputs, .. } => {
                outputs.push("another".into());
                true
            }
            EventBody::AgentBegan { .. } | EventBody::NodeBegan { .. } => return Ok(()),
            _ => false,
        };
        if !is_record {
            changed.round += 1;
        }
        lines[at] = changed.to_line();
        match replay(&lines) {
            Err(ReplayError::Differs { line, .. }) if line == at as u64 + 1 => Ok(()),
            other => Err(format!("line {} was changed: {other:?}", at + 1)),
        }
    }
}

fn check_order(events: &[RunEvent]) -> Result<(), String> {
    let mut opened = BTreeSet::new();
    for (number, event) in (1..).zip(events) {
        if event.seq != number {
            return Err(format!("number {number} is {event:?}"));
        }
        match event.body {
            EventBody::RoundOpened { .. } => drop(opened.insert(event.round)),
            EventBody::RoundFinal { .. } if !opened.contains(&event.round) => {
                return Err(format!("round {} is final and was not opened", event.round));
            }
            _ => {}
        }
    }
    Ok(())
}

fn replay(lines: &[String]) -> Result<(), ReplayError> {
    let mut replay = Replay::default();
    lines.iter().try_for_each(|line| replay.line(line))?;
    replay.end();
    Ok(())
}
