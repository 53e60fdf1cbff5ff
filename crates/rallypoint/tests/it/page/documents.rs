//! Runs as documents: what nodes would write, written by a client at once.

use bytes::Bytes;
use futures_util::future::join_all;
use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::{KeyRange, Op, Put, Txn};
use rallypoint::core::rendezvous::documents::encode;
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use serde_json::{Value, json};

use crate::launch::wait;

/// Operations of one transaction, and calls at a time.
const AT_ONCE: usize = 100;

/// The documents of a run. The first document of a node is on a lease of its own.
pub struct Documents {
    keys: Keys,
    puts: Vec<Put>,
    of_nodes: Vec<Put>,
    /// Documents that follow from other documents, and are written after them.
    late: Vec<Put>,
    events: u64,
}

impl Documents {
    pub fn of(run: &str) -> Self {
        let keys = Keys::new(DEFAULT_PREFIX, run);
        Self { keys, puts: Vec::new(), of_nodes: Vec::new(), late: Vec::new(), events: 0 }
    }

    fn put(&mut self, key: String, value: Bytes) {
        self.puts.push(Put::new(key, value));
    }

    /// The state of the round: `more` are the fields of the document that differ.
    pub fn active(&mut self, round: u64, status: &str, (min, max): (usize, usize), more: &Value) {
        let mut active = json!({
            "history": "0000000000000007", "round": round, "status": status,
            "limits": { "min": min, "max": max }, "rank_policy": "stable",
            "coordinator": { "id": "n0", "address": "10.0.0.1" }, "reason": "the run begins",
        });
        for (name, value) in more.as_object().unwrap() {
            active[name] = value.clone();
        }
        let formed = if status == "final" { round } else { 0 };
        let rounds = json!({ "round": round, "formed": formed });
        self.put(self.keys.active(), encode(&active));
        self.put(self.keys.round(), encode(&rounds));
    }

    /// A live node.
    pub fn node(&mut self, id: &str, host: &str, number: usize) {
        self.node_with_rank(id, host, number, None);
    }

    /// A live node that wants a rank.
    pub fn node_with_rank(&mut self, id: &str, host: &str, number: usize, hint: Option<usize>) {
        let document = json!({
            "id": id, "host": host, "address": format!("10.1.{}.{}", number / 250, number % 250 + 1),
            "pid": 4000 + number, "local_workers": 8, "hint": hint,
        });
        self.of_nodes.push(Put::new(self.keys.node(id), encode(&document)));
    }

    /// A node that has joined a round.
    pub fn joined(&mut self, round: u64, id: &str, hint: Option<usize>) {
        self.put(self.keys.member(round, id), encode(&json!({ "hint": hint })));
    }

    /// A member of a group.
    pub fn member(&mut self, round: u64, id: &str, rank: usize, world: usize) {
        self.joined(round, id, None);
        self.put(self.keys.rank(round, id), encode(&json!({ "rank": rank, "world": world })));
        self.put(self.keys.ready(round, id), Bytes::new());
    }

    pub fn spare(&mut self, id: &str) {
        self.put(self.keys.spare(id), encode(&json!({})));
    }

    pub fn suspect(&mut self, id: &str) {
        self.late.push(Put::new(self.keys.suspect(id), Bytes::new()));
    }

    /// The last lines of a worker that failed.
    pub fn failure(&mut self, output: &Value) {
        self.put(self.keys.failure(), encode(output));
    }

    /// The report of a hang.
    pub fn hang(&mut self, report: &Value) {
        self.put(self.keys.hang(), encode(report));
    }

    pub fn restarts(&mut self, budget: &Value) {
        self.put(self.keys.restarts(), encode(budget));
    }

    /// The next event of the run, at this time.
    pub fn event(&mut self, time: &str, round: u64, kind: &str, more: &Value) {
        self.events += 1;
        let mut event = json!({
            "format": 1, "seq": self.events, "time": time, "ms": 1, "node_id": "n0",
            "round": round, "kind": kind,
        });
        for (name, value) in more.as_object().unwrap() {
            event[name] = value.clone();
        }
        self.put(self.keys.event(self.events), event.to_string().into());
    }

    /// Writes all of them to a server.
    pub fn write(self, endpoint: &str) {
        wait(async {
            let client = Client::connect(ClientOptions::new([endpoint])).await.unwrap();
            for nodes in self.of_nodes.chunks(AT_ONCE) {
                let writes = nodes.iter().map(async |put| {
                    let lease = client.lease_grant(600, None).await.unwrap().id;
                    client.put(put.clone().on_lease(lease)).await.unwrap();
                });
                join_all(writes).await;
            }
            for puts in self.puts.chunks(AT_ONCE).chain([self.late.as_slice()]) {
                let success = puts.iter().cloned().map(Op::Put).collect();
                client.txn(Txn { success, ..Txn::default() }).await.unwrap();
            }
        });
    }
}

/// Deletes a document of a node, as the end of its lease does.
pub fn lose(endpoint: &str, run: &str, node: &str) {
    let key = Keys::new(DEFAULT_PREFIX, run).node(node);
    wait(async {
        let client = Client::connect(ClientOptions::new([endpoint])).await.unwrap();
        client.delete(KeyRange::key(key)).await.unwrap();
    });
}
