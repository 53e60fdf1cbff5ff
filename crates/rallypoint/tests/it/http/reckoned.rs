//! The numbers that the events of a node lead to, counted from the lines of its file by the words of the documents.

use std::collections::BTreeMap;

use rallypoint::core::events::RunEvent;
use serde_json::Value;

/// The restarts that a job of these tests may use.
const MAX_RESTARTS: f64 = 3.0;

/// The stages, and the fields of events that have their times.
const STAGES: [(&str, &str); 8] = [
    ("join", "join_ms"),
    ("gather", "gather_ms"),
    ("last_call", "last_call_ms"),
    ("confirm", "confirm_ms"),
    ("rank", "ranks_ms"),
    ("start", "start_ms"),
    ("stop", "stop_ms"),
    ("barrier", "barrier_ms"),
];

/// Metrics by name and label. Those that are zero are left out: a series may begin with its first event.
#[derive(Debug, Clone, Default)]
pub struct Numbers(BTreeMap<String, f64>);

impl Numbers {
    pub fn new(numbers: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self(numbers.into_iter().filter(|(_, value)| *value != 0.0).collect())
    }

    fn add(&mut self, name: &str, label: &str, value: f64) {
        *self.0.entry(format!("{name} {label}")).or_default() += value;
    }

    fn set(&mut self, name: &str, value: f64) {
        self.0.insert(format!("{name} "), value);
    }

    fn get(&self, name: &str) -> f64 {
        self.0.get(&format!("{name} ")).copied().unwrap_or_default()
    }
}

impl PartialEq for Numbers {
    /// Counts are exact. Sums of seconds may differ in their last digit.
    fn eq(&self, other: &Self) -> bool {
        let are_equal = |one: &f64, other: &f64| (one - other).abs() < 1e-6;
        self.0.len() == other.0.len()
            && self
                .0
                .iter()
                .all(|(name, one)| other.0.get(name).is_some_and(|another| are_equal(one, another)))
    }
}

/// The first sign that a member sees of a change, by the words of the metric's label.
fn sign(kind: &str, event: &Value) -> Option<&'static str> {
    Some(match kind {
        "worker_exited" if event["stopping"] == false && event["exit"]["code"] != 0 => {
            "worker_failed"
        }
        "start_failed" => "worker_failed",
        "members_lost" => "node_lost",
        "place_lost" | "fenced" => "session_lost",
        "signalled" => "preempted",
        "group_changed" => match event["change"].as_object()?.keys().next()?.as_str() {
            "nodes_waiting" => "node_joined",
            "peer_lost" => "node_lost",
            "peer_failed" => "worker_failed",
            "peer_leaves" => "preempted",
            _ => "other",
        },
        _ => return None,
    })
}

fn code(exit: &Value) -> String {
    match (&exit["code"], exit["signal"].as_i64()) {
        (Value::Number(code), _) => code.to_string(),
        (_, Some(11)) => "SIGSEGV".to_owned(),
        (_, Some(15)) => "SIGTERM".to_owned(),
        (_, Some(9)) => "SIGKILL".to_owned(),
        _ => panic!("{exit}"),
    }
}

/// What a page of metrics must tell after these events.
pub fn numbers_of(events: &[RunEvent]) -> Numbers {
    let mut numbers = Numbers::default();
    numbers.set("restarts_left", MAX_RESTARTS);
    let (mut is_member, mut has_asked, mut lost) = (false, false, 0.0);
    let mut first: Option<(&str, u64)> = None;
    for event in events {
        let fields = serde_json::to_value(&event.body).unwrap();
        let kind = fields["kind"].as_str().unwrap();
        if let Some(reason) = sign(kind, &fields).filter(|_| is_member) {
            first.get_or_insert((reason, event.ms));
        }
        for (stage, field) in STAGES {
            if let Some(ms) = fields[field].as_f64() {
                numbers.add("stage_seconds_count", stage, 1.0);
                numbers.add("stage_seconds_sum", stage, ms / 1e3);
            }
        }
        match kind {
            "rendezvous_began" => {
                let other = if has_asked { "other" } else { "begin" };
                numbers.add("rounds_total", first.map_or(other, |(reason, _)| reason), 1.0);
                (is_member, has_asked) = (false, true);
            }
            "joined" | "registered" | "place_lost" | "fenced" | "left" | "no_group"
            | "finished" => {
                is_member = false;
            }
            "group_formed" => {
                is_member = true;
                let used = fields["restarts"].as_f64().unwrap();
                numbers.set("restarts_left", MAX_RESTARTS - used);
            }
            "restart_granted" => {
                numbers.set("restarts_left", numbers.get("restarts_left") - 1.0);
            }
            "restart_refunded" => {
                numbers.set("restarts_left", numbers.get("restarts_left") + 1.0);
            }
            "workers_started" => {
                if let Some((reason, since)) = first.take() {
                    let seconds = (event.ms - since) as f64 / 1e3;
                    numbers.add("recovery_seconds_count", reason, 1.0);
                    numbers.add("recovery_seconds_sum", reason, seconds);
                }
            }
            "worker_exited" => numbers.add("worker_exits_total", &code(&fields["exit"]), 1.0),
            "members_lost" => {
                let count = fields["count"].as_f64().unwrap();
                numbers.add("members_lost_total", "", count - lost);
                lost = count;
            }
            "round_opened" => lost = 0.0,
            _ => {}
        }
        if matches!(kind, "round_opened" | "round_frozen" | "round_final") {
            numbers.set("run_round", event.round as f64);
        }
    }
    Numbers::new(numbers.0)
}
