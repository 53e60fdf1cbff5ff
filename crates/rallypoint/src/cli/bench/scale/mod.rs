//! `rallypoint bench scale`: a group of any size in one process, without a network.

mod model;
mod wire;

use clap::Args;
use serde::Serialize;

use self::model::{Cost, Model};
use super::super::AnyError;
use super::print;

pub(super) const AFTER_HELP: &str = "\
The nodes are the real state machines of the rendezvous, with documents of real size, on the real store of the server.
Every message is encoded and decoded as on the wire, but travels within this process: no connections, no HTTP/2, no
TLS, no disk. So this is what the protocol and the store cost by themselves, also for more nodes than a host has
descriptors for.

The group forms (round 1), forms again when all of its nodes re-enter (round 2), and renews each lease once (idle).

Examples:
  rallypoint bench scale --nodes 100000
  rallypoint bench scale --nodes 10000 --json";

#[derive(Args)]
pub(in crate::cli) struct ScaleBench {
    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// Print one JSON object for each phase instead of a table
    #[arg(long)]
    json: bool,
}

/// What a phase of the model cost.
#[derive(Debug, Serialize)]
struct Phase {
    nodes: u32,
    phase: &'static str,
    #[serde(flatten)]
    cost: Cost,
    /// Keys, values and history in the store, in bytes.
    store_bytes: usize,
}

impl ScaleBench {
    pub(super) fn run(self) -> Result<(), AnyError> {
        let mut model = Model::open(self.nodes)?;
        self.print_header();
        self.print(&Phase::take("open", &mut model));
        for phase in ["round 1", "round 2"] {
            model.form()?;
            self.print(&Phase::take(phase, &mut model));
        }
        model.renew()?;
        self.print(&Phase::take("idle", &mut model));
        Ok(())
    }

    fn print_header(&self) {
        if !self.json {
            let names =
                ["server µs", "nodes µs", "requests", "messages", "bytes", "largest", "store MB"];
            let header = names.map(|name| format!("{name:>12}")).concat();
            print(&format!("{:<10}{header}   a node", "phase"));
        }
    }

    fn print(&self, phase: &Phase) {
        if self.json {
            // A struct of numbers and plain words has nothing that could fail.
            print(&serde_json::to_string(phase).unwrap_or_default());
            return;
        }
        let Cost { server_seconds, node_seconds, requests, messages, bytes, .. } = phase.cost;
        let each = |sum: f64| sum / f64::from(self.nodes);
        print(&format!(
            "{:<10}{:>12.2}{:>12.2}{:>12.2}{:>12.2}{:>12.0}{:>12}{:>12.1}",
            phase.phase,
            each(server_seconds * 1e6),
            each(node_seconds * 1e6),
            each(requests as f64),
            each(messages as f64),
            each(bytes as f64),
            phase.cost.largest_request.max(phase.cost.largest_message),
            phase.store_bytes as f64 / 1e6,
        ));
    }
}

impl Phase {
    fn take(phase: &'static str, model: &mut Model) -> Self {
        let cost = std::mem::take(&mut model.cost);
        Self { nodes: model.nodes(), phase, cost, store_bytes: model.store_bytes() }
    }
}
