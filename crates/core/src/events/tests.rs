mod reference;
mod replay;

use std::time::Duration;

use super::*;
use crate::agent::placement::Placement;
use crate::agent::{
    Agent, AgentInput, AgentSettings, Exit, Exited, GroupChange, NodeGroup, RestartAnswer,
};
use crate::kv::{OpResult, RangeResult, Time, TxnResult};
use crate::rendezvous::documents::{
    Active, Address, DisplayTime, Limits, NodeDocument, NodeName, Status, decode,
};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::ranks::RankPolicy;
use crate::rendezvous::sizes::SizeRules;
use crate::rendezvous::{Node, NodeConfig, NodeInput};

fn seconds(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn moment(at: u64) -> Moment {
    Moment { now: seconds(at), wall: 1_000 * at }
}

/// An agent of two workers, its journal, and what was recorded.
struct Story {
    agent: Agent,
    journal: Journal,
    now: u64,
    text: Vec<u8>,
}

impl Story {
    fn begin() -> Self {
        let settings = AgentSettings {
            host: "here".into(),
            local_workers: 2,
            notice: seconds(5),
            ..AgentSettings::default()
        };
        let (mut journal, mut text) = (Journal::new("job", "a", Detail::Records), Vec::new());
        journal.agent_began(moment(0), &settings, &mut text);
        Self { agent: Agent::new(settings), journal, now: 0, text }
    }

    /// A second passes, and the agent is told something. The events that follow, in a few words.
    fn told(&mut self, input: AgentInput) -> Vec<String> {
        self.now += 1;
        self.agent.handle(seconds(self.now), input.clone());
        let outputs: Vec<_> = std::iter::from_fn(|| self.agent.poll_output()).collect();
        let at = moment(self.now);
        self.journal.agent_step(at, &input, &outputs, &mut self.text).iter().map(brief).collect()
    }

    fn forms(&mut self, round: u64) -> Vec<String> {
        let store = Address { host: "h".into(), port: 1 };
        let group = NodeGroup { round, rank: 1, nodes: 2, restarts: 0, store };
        let mut events = self.told(AgentInput::Formed(group));
        let placement = Placement::identical(1, 2, 2);
        events.extend(self.told(AgentInput::Placed { round, placement }));
        events.extend(self.told(AgentInput::Started { attempt: round - 1 }));
        events
    }

    fn exits(&mut self, attempt: u64, local_rank: u32, exit: Exit) -> Vec<String> {
        let message = (!exit.is_success()).then(|| "out of memory".to_owned());
        self.told(AgentInput::Exited(Exited { attempt, local_rank, exit, message }))
    }
}

fn lines(text: &[u8]) -> Vec<String> {
    str::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

fn read_back(text: &[u8]) -> Vec<RunEvent> {
    lines(text).iter().map(|line| RunEvent::parse(line).unwrap()).collect()
}

/// The kind, round, fields and reason of an event.
fn brief(event: &Observation) -> String {
    let fields = serde_json::to_value(&event.body).unwrap();
    let fields = fields.as_object().unwrap().iter().filter(|(name, _)| *name != "kind");
    let fields: Vec<String> = fields.map(|(name, value)| format!(" {name}={value}")).collect();
    let why = if event.why.is_empty() { String::new() } else { format!(": {}", event.why) };
    format!("{} {}{}{why}", kind(&event.body), event.round, fields.concat())
}

fn kind(body: &EventBody) -> String {
    let body = serde_json::to_value(body).unwrap();
    body["kind"].as_str().unwrap().to_owned()
}

#[test]
fn the_events_of_an_agent_tell_its_story() {
    let mut story = Story::begin();
    assert_eq!(story.told(AgentInput::Begin), ["rendezvous_began 0: this node is new"]);
    assert_eq!(
        story.forms(1),
        [
            r#"group_formed 1 rank=1 rendezvous_ms=1000 restarts=0 size=2 store={"host":"h","port":1}"#,
            "ranks_assigned 1 first_rank=2 ranks_ms=1000 world_size=4",
            "workers_starting 1 attempt=0 first_rank=2",
            "workers_started 1 attempt=0 start_ms=1000",
        ]
    );
    let failed = "rank 3 (local rank 1 on here) failed with exit code 7: out of memory";
    assert_eq!(
        story.exits(0, 1, Exit::Code(7)),
        [
            r#"worker_exited 1 attempt=0 exit={"code":7} local_rank=1 rank=3 stopping=false: out of memory"#.to_owned(),
            format!("workers_stopping 1 attempt=0 left_ms=30000 signal=15: {failed}"),
            format!("restart_requested 1 lived_ms=2000: {failed}"),
        ]
    );
    let answer = RestartAnswer::Granted { short_lives: 1 };
    let counted = AgentInput::Counted { round: 1, answer };
    assert_eq!(story.told(counted), ["restart_granted 1 short_lives=1"]);
    assert_eq!(
        story.exits(0, 0, Exit::Signal(15)),
        [
            r#"worker_exited 1 attempt=0 exit={"signal":15} local_rank=0 rank=2 stopping=true: out of memory"#
        ]
    );
    assert_eq!(
        story.told(AgentInput::Stopped { attempt: 0 }),
        [
            "workers_stopped 1 attempt=0 stop_ms=3000".to_owned(),
            format!("rendezvous_began 1: {failed}")
        ]
    );
    story.forms(2);
    let change = GroupChange::NodesWaiting(1);
    assert_eq!(
        story.told(AgentInput::Changed { round: 2, change }),
        [
            r#"group_changed 2 change={"nodes_waiting":1}: a node waits to join"#,
            "workers_notified 2 attempt=1 left_ms=5000: a node waits to join",
        ]
    );
    let lost = AgentInput::SessionLost { deadline: seconds(30), reason: "silence".into() };
    let events = story.told(lost);
    assert!(events[0].starts_with("fenced 2 left_ms=") && events[0].ends_with(": silence"));
    assert!(events[1].starts_with("workers_stopping 2 attempt=1 left_ms="), "{events:?}");
    story.told(AgentInput::Stopped { attempt: 1 });
    story.forms(3);
    story.exits(2, 0, Exit::Code(0));
    let done = story.exits(2, 1, Exit::Code(0));
    assert_eq!(done[1], "barrier_reached 3");
    assert_eq!(
        story.told(AgentInput::BarrierPassed { round: 3 }),
        [
            "barrier_passed 3 barrier_ms=1000",
            r#"closing 3 outcome="succeeded": all workers succeeded"#,
            "finished 3 exit_code=0 failures=0: all workers of all nodes succeeded",
        ]
    );
    let lines = read_back(&story.text);
    assert!(lines.iter().zip(1..).all(|(line, seq)| line.seq == seq));
    assert_eq!(lines[5].time, "1970-01-01T00:00:03.000Z");
}

#[test]
fn refusals_signals_and_failures_have_events() {
    let refused = RestartAnswer::Refused { used: 2, blame: "rank 0 failed".into() };
    for (input, expected) in [
        (
            AgentInput::Counted { round: 1, answer: refused },
            "restart_refused 1 used=2: rank 0 failed",
        ),
        (AgentInput::Signal(15), "signalled 1 signal=15: SIGTERM"),
        (AgentInput::NotPlaced { round: 1, reason: "time-out".into() }, "ranks_failed 1: time-out"),
        (
            AgentInput::NotStarted { attempt: 0, reason: "no".into() },
            "start_failed 1 attempt=0: no",
        ),
        (AgentInput::NotStopped { attempt: 0, reason: "7".into() }, "stop_failed 1 attempt=0: 7"),
    ] {
        let mut story = Story::begin();
        story.told(AgentInput::Begin);
        story.forms(1);
        assert_eq!(story.told(input)[0], expected);
    }
    let mut story = Story::begin();
    story.told(AgentInput::Begin);
    story.forms(1);
    story.exits(0, 0, Exit::Code(1));
    let lost = GroupChange::PeerLost(vec!["b".into()]);
    let events = story.told(AgentInput::Changed { round: 1, change: lost });
    assert_eq!(events[1], "restart_refunded 1: members were lost: b");
}

fn active(text: &str) -> Active {
    let all = format!(
        r#"{{"format":1,"history":"0000000000000007","limits":{{"min":1,"max":4}},
            "rank_policy":"stable","coordinator":{{"id":"c"}},{text}}}"#
    );
    decode(b"k", all.as_bytes()).unwrap()
}

#[test]
fn the_events_of_a_run_follow_from_its_document() {
    let none = || None;
    let some = |text: &str| Some(active(text));
    let open = r#""round":3,"status":"joinable","reason":"the run begins","previous":1"#;
    let frozen = r#""round":3,"status":"frozen","reason":"the run begins","previous":1,
        "frozen_because":"the group is full","world":2,"rank0":"b""#;
    let group = frozen.replace("\"frozen\"", "\"final\"");
    let lost =
        format!(r#"{group},"lost":1,"lost_names":["b"],"lost_because":["its lease is over"]"#);
    let late = format!(r#"{group},"waiting":2"#);
    let proved = format!(r#"{group},"proved_dead":["d"]"#);
    let proved_one =
        r#"losses_proved 1 nodes=["d"]: proved dead: its host refuses its liveness socket"#;
    let closed = r#""round":3,"status":"closed","reason":"enough","outcome":"failed""#;
    let opened = r#"round_opened 3 coordinator="c" previous=1: the run begins"#;
    let froze = r#"round_frozen 3 rank0="b" size=2: the group is full"#;
    let formed = r#"round_final 3 coordinator="c" rank0="b" size=2"#;
    let lost_one = r#"members_lost 3 count=1 nodes=["b"]: b: its lease is over"#;
    let over = r#"run_closed 3 by="c" outcome="failed": enough"#;
    for (before, after, expected) in [
        (none(), active(open), vec![opened]),
        (some(&group.replace("\"round\":3", "\"round\":2")), active(open), vec![opened]),
        (some(open), active(open), vec![]),
        (some(open), active(frozen), vec![froze]),
        (some(frozen), active(&group), vec![formed]),
        (none(), active(&group), vec![opened, froze, formed]),
        (some(open), active(&lost), vec![froze, formed, lost_one]),
        (some(&group), active(&lost), vec![lost_one]),
        (some(&lost), active(&lost), vec![]),
        (some(frozen), active(&proved), vec![formed, proved_one]),
        (some(&proved), active(&proved), vec![]),
        (some(&group), active(&late), vec!["nodes_waiting 3 count=2"]),
        (some(&late), active(&group), vec![]),
        (some(&group), active(closed), vec![over]),
        (none(), active(closed), vec![over]),
        (some(closed), active(closed), vec![]),
    ] {
        let found: Vec<String> = run_events(before.as_ref(), &after).iter().map(brief).collect();
        assert_eq!(found, expected, "{before:?}\n{after:?}");
    }
}

#[test]
fn what_is_kept_of_a_run_is_bounded_and_numbered() {
    let reason = "ä".repeat(5_000);
    let closed =
        active(&format!(r#""round":3,"status":"closed","reason":"{reason}","events":300"#));
    let stamp = Stamp {
        node_id: "a",
        now: seconds(2),
        started: Some(DisplayTime::from_unix_millis(5_000)),
    };
    let stored = stored_events(None, &closed, stamp);
    let [(300, line)] = &stored[..] else { panic!("{stored:?}") };
    assert!(line.len() < 1_024, "{} bytes", line.len());
    let event = RunEvent::parse(line).unwrap();
    assert_eq!(
        (event.seq, event.ms, event.time.as_str()),
        (300, 2_000, "1970-01-01T00:00:07.000Z")
    );
    assert!(event.why.ends_with('…'));
    let keys = Keys::new("/p", "job");
    assert_eq!(keys.event(300), keys.event(300 + RUN_EVENTS));
    assert!(keys.events().contains(keys.event(7).as_bytes()));
}

fn config() -> NodeConfig {
    let keys = Keys::new("/p", "job");
    NodeConfig {
        run_lease: keys.run_lease(),
        keys,
        limits: Limits { min: 1, max: 1 },
        sizes: SizeRules::default(),
        timeout: seconds(60),
        server_timeout: seconds(60),
        last_call: seconds(1),
        confirm: seconds(5),
        lease_ttl: seconds(5),
        rank_policy: RankPolicy::Stable,
        sole: false,
        succession: None,
        started: None,
        keeps_events: true,
    }
}

/// A node that is told of a server without a run, gets a session, and enters.
fn node_text() -> Vec<u8> {
    let (config, entropy) = (config(), 7);
    let document = NodeDocument { id: "a".into(), ..NodeDocument::default() };
    let (mut journal, mut text) = (Journal::new("job", "a", Detail::Records), Vec::new());
    journal.node_began(moment(0), &config, &document, entropy, &mut text);
    let mut node = Node::new(config, document, entropy);
    let nothing = || OpResult::Range(RangeResult { revision: 5, ..RangeResult::default() });
    let found = |succeeded| TxnResult {
        revision: 5,
        succeeded,
        results: (0..3).map(|_| nothing()).collect(),
    };
    let inputs = [
        NodeInput::Snapshot { found: found(true), another_server: false },
        NodeInput::SessionOpened { lease: 9 },
        NodeInput::Enter,
        NodeInput::Answered {
            id: 1,
            result: TxnResult { revision: 6, succeeded: true, results: vec![] },
        },
        NodeInput::Suspect { node: "b".into() },
        NodeInput::ProvedDead { node: "b".into(), round: 3 },
        NodeInput::Unreached { round: 1, reason: Some("host:1: refused".into()) },
        NodeInput::SessionLost { slept: true, silent: Duration::ZERO },
    ];
    for (at, input) in (1..).zip(inputs) {
        journal.node_step(moment(at), input, &mut node, &mut text);
    }
    text
}

#[test]
fn the_events_of_a_node_tell_its_story() {
    let observed = |RunEvent { round, body, why, .. }| Observation { round, body, why };
    let lines = read_back(&node_text()).into_iter().map(observed);
    let is_event = |event: &Observation| !kind(&event.body).starts_with("node_");
    let events: Vec<String> = lines.filter(is_event).map(|event| brief(&event)).collect();
    let expected = [
        "session_opened 0",
        r#"round_opened 1 coordinator="a" previous=0: the run begins"#,
        "joined 1 join_ms=1000",
        r#"member_suspected 1 node="b": the connection to it ended without a goodbye"#,
        r#"member_proved_dead 1 node="b": the host of its liveness socket refused two connections, so none of its processes is left"#,
        "unreached 1 connected=false: host:1: refused",
        "session_lost 1 slept=true",
    ];
    assert_eq!(events, expected);
}

fn recorded() -> Vec<String> {
    let mut story = Story::begin();
    story.told(AgentInput::Begin);
    story.forms(1);
    story.exits(0, 1, Exit::Code(7));
    // Another start, of another node.
    let other = read_back(&node_text()).into_iter();
    let other = other.map(|event| RunEvent { node_id: "b".into(), ..event }.to_line());
    lines(&story.text).into_iter().chain(other).collect()
}

#[test]
fn statuses_of_other_rounds_are_not_confused() {
    let name = NodeName { id: "c".into(), address: String::new() };
    let open = active(r#""round":4,"status":"joinable""#);
    assert_eq!((open.coordinator.clone(), open.status), (name, Status::Joinable));
    let other_history =
        Active { history: crate::rendezvous::documents::RunHistory::new(8), ..open.clone() };
    assert_eq!(run_events(Some(&open), &other_history).len(), 1, "a history that began again");
}
