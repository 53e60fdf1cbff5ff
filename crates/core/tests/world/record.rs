//! What the nodes of a world were told and decided, as their events, and the proof that it can be decided again.

use std::collections::{BTreeMap, BTreeSet};

use rallypoint_core::agent::{AgentInput, AgentOutput, AgentSettings};
use rallypoint_core::events::{EventBody, Journal, Moment, Outputs, Replay, ReplayError, RunEvent};
use rallypoint_core::rendezvous::documents::NodeDocument;
use rallypoint_core::rendezvous::{NodeInput, NodeOutput};
use serde::Serialize;

use super::events::{Who, World};
use super::random::Random;

/// The journals of all nodes, and what they have written.
#[derive(Default)]
pub(crate) struct Records {
    nodes: BTreeMap<Who, (Journal, Vec<RunEvent>)>,
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
        let mut journal = Journal::new("sim", document.id.clone());
        let lines = journal.node_began(at, &self.plan.config, document, entropy);
        records.nodes.insert(who, (journal, lines));
    }

    pub(crate) fn record_agent_beginning(&mut self, who: Who, settings: &AgentSettings) {
        self.record(who, |journal, at| journal.agent_began(at, settings));
    }

    pub(crate) fn record_node(&mut self, who: Who, input: NodeInput, outputs: &[NodeOutput]) {
        let at = self.moment();
        let Some(records) = &mut self.records else { return };
        if let Some((journal, lines)) = records.nodes.get_mut(&who) {
            let node = &self.nodes[who].rendezvous;
            lines.extend(journal.node_step(at, input, outputs, node));
        }
    }

    pub(crate) fn record_agent(&mut self, who: Who, input: &AgentInput, outputs: &[AgentOutput]) {
        self.record(who, |journal, at| journal.agent_step(at, input, outputs));
        if let (AgentInput::Exited(_), Some(records)) = (input, &mut self.records) {
            records.exits += 1;
        }
    }

    fn record(&mut self, who: Who, lines: impl FnOnce(&mut Journal, Moment) -> Vec<RunEvent>) {
        let at = self.moment();
        let Some(records) = &mut self.records else { return };
        if let Some((journal, written)) = records.nodes.get_mut(&who) {
            written.extend(lines(journal, at));
        }
    }
}

impl Records {
    /// The events of each node are whole, and its record leads to the same decisions; a changed line does not.
    pub(crate) fn check(&self, seed: u64) -> Result<(), String> {
        let mut random = Random::new(seed);
        let mut exits = 0;
        for (_, events) in self.nodes.values() {
            exits += events
                .iter()
                .filter(|event| matches!(event.body, EventBody::WorkerExited { .. }))
                .count();
            check_order(events)?;
            let lines: Vec<String> = events.iter().map(RunEvent::to_line).collect();
            replay(&lines).map_err(|error| error.to_string())?;
            self.check_change(&mut random, events, lines)?;
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
            EventBody::AgentStep { outputs, .. } => {
                *outputs = one_more(outputs);
                true
            }
            EventBody::NodeStep { outputs, .. } => {
                *outputs = one_more(outputs);
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

/// A record with one more output.
fn one_more<T: Serialize>(outputs: &Outputs<T>) -> Outputs<T> {
    let mut values = outputs.values();
    values.push("another".into());
    Outputs::Recorded(values)
}
