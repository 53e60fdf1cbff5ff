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

/// What events determine of a page of metrics.
#[derive(Debug, Clone)]
pub struct Reckoned {
    exact: Numbers,
    /// The phase that has not ended, and the seconds that are certain: the page tells those up to now.
    growing: (String, f64),
}

impl Reckoned {
    /// Whether a page tells this. Counts are exact. Sums of seconds may differ in their last digit.
    pub fn is_told_by(&self, page: &Numbers) -> bool {
        let (growing, least) = &self.growing;
        let mut page = page.0.clone();
        let told = page.remove(growing).unwrap_or_default();
        let are_equal = |one: &f64, other: &f64| (one - other).abs() < 1e-6;
        told > least - 1e-6
            && self.exact.0.len() == page.len()
            && self
                .exact
                .0
                .iter()
                .all(|(name, one)| page.get(name).is_some_and(|another| are_equal(one, another)))
    }
}

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

/// The phase of a node that begins with an event, by the words of the metric's label.
fn phase(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "rendezvous_began" => "meeting",
        "group_formed" => "starting",
        "workers_started" => "training",
        "workers_stopping" => "stopping",
        "workers_stopped" | "barrier_reached" | "no_group" | "finished" => "waiting",
        _ => return None,
    })
}

/// The states that begin with an event: of the run, and of the node.
fn states(kind: &str, event: &Value) -> (Option<&'static str>, Option<String>) {
    let run = match kind {
        "round_opened" => Some("joinable"),
        "round_frozen" => Some("frozen"),
        "round_final" => Some("final"),
        "run_closed" => Some("closed"),
        _ => None,
    };
    let node = match kind {
        "registered" => event["registered"].as_str(),
        "rendezvous_began" | "joined" => Some("joining"),
        "group_formed" => Some("member"),
        "place_lost" | "fenced" | "left" | "no_group" | "finished" => Some("out"),
        _ => None,
    };
    (run, node.map(str::to_owned))
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
pub fn numbers_of(events: &[RunEvent]) -> Reckoned {
    let mut numbers = Numbers::default();
    numbers.set("restarts_left", MAX_RESTARTS);
    let (mut is_member, mut has_asked, mut lost) = (false, false, 0.0);
    let mut first: Option<(&str, u64)> = None;
    let (mut current, mut since) = ("waiting", 0);
    let (mut of_run, mut of_node) = (None, "out".to_owned());
    let mut nodes =
        BTreeMap::from(["member", "waiting", "suspect", "missing"].map(|name| (name, 0.0)));
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
        if let Some(next) = phase(kind) {
            numbers.add("seconds_total", current, (event.ms - since) as f64 / 1e3);
            (current, since) = (next, event.ms);
        }
        let (run, node) = states(kind, &fields);
        (of_run, of_node) = (run.or(of_run), node.unwrap_or(of_node));
        match kind {
            "round_opened" => nodes.values_mut().for_each(|count| *count = 0.0),
            "round_final" => drop(nodes.insert("member", fields["size"].as_f64().unwrap())),
            "members_lost" => drop(nodes.insert("missing", fields["count"].as_f64().unwrap())),
            "nodes_waiting" => drop(nodes.insert("waiting", fields["count"].as_f64().unwrap())),
            "member_suspected" => *nodes.get_mut("suspect").unwrap() += 1.0,
            _ => {}
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
    numbers.add("node_state", &of_node, 1.0);
    if let Some(state) = of_run {
        numbers.add("run_state", state, 1.0);
    }
    nodes.iter().for_each(|(state, count)| numbers.add("nodes", state, *count));
    let growing = format!("seconds_total {current}");
    let certain = numbers.0.remove(&growing).unwrap_or_default();
    Reckoned { exact: Numbers::new(numbers.0), growing: (growing, certain) }
}
