//! Runs as documents, and what an operator reads of them.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::*;
use crate::agent::{NodeExit, Operation, RestartBudget, RoundFailure};
use crate::kv::{KeyValue, LeaseId, Revision};
use crate::rendezvous::documents::{
    Active, Extra, Joined, NodeDocument, NodeName, Objection, PROVED_DEAD, RankHints, Ranked,
    RunHistory, Status, Unreached, encode,
};
use crate::rendezvous::keys::Keys;
use crate::rendezvous::sizes::Steps;

const NOW: DisplayTime = DisplayTime::from_unix_millis(1_000_000_000);

/// The keys of a run, as a server has them.
struct Run {
    keys: Keys,
    kvs: Vec<KeyValue>,
    leases: BTreeMap<LeaseId, LeaseMargin>,
    revision: Revision,
}

impl Run {
    fn new() -> Self {
        let keys = Keys::new("/p", "job");
        Self { keys, kvs: Vec::new(), leases: BTreeMap::new(), revision: 10 }
    }

    fn bytes(mut self, key: String, value: Bytes, lease: LeaseId) -> Self {
        self.revision += 1;
        let (create_revision, mod_revision) = (self.revision, self.revision);
        let key = key.into();
        self.kvs.push(KeyValue { key, value, create_revision, mod_revision, version: 1, lease });
        self
    }

    fn put(self, key: String, value: &impl Serialize) -> Self {
        self.bytes(key, encode(value), 0)
    }

    /// `rdzv/active` and `rdzv/round`, as they are written together.
    fn active(self, status: Status, change: impl FnOnce(&mut Active)) -> Self {
        let coordinator = NodeName { id: "h0_1".into(), address: "10.0.0.1".into() };
        let mut active = Active {
            limits: Limits { min: 3, max: 3 },
            rank_policy: "stable".into(),
            since: Some(DisplayTime::from_unix_millis(1_000_000_000 - 75_000)),
            reason: "the run begins".into(),
            began: 4,
            world: 3,
            rank0: "h0_1".into(),
            ..Active::new(RunHistory::new(7), 4, status, coordinator)
        };
        change(&mut active);
        let (at, round) = (self.keys.active(), self.keys.round());
        self.put(at, &active).put(round, &active.rounds(Extra::new()))
    }

    /// A live node, with a lease that has this much of 10 s left.
    fn node(mut self, number: u32, hint: Option<u32>, left_s: i64) -> Self {
        let lease = LeaseId::from(number) + 100;
        self.leases.insert(lease, LeaseMargin { left_s, ttl_s: 10 });
        let id = id(number);
        let document = NodeDocument {
            id: id.clone(),
            address: format!("10.0.0.{}", number + 1),
            host: format!("h{number}"),
            pid: 1,
            local_workers: 8,
            rank_hints: RankHints { hint, topology: None },
            ..NodeDocument::default()
        };
        let key = self.keys.node(&id);
        self.bytes(key, encode(&document), lease)
    }

    fn joined(self, round: u64, number: u32, hint: Option<u32>) -> Self {
        let rank_hints = RankHints { hint, topology: None };
        let key = self.keys.member(round, &id(number));
        let joined = Some(NOW.minus(Duration::from_secs(70)));
        self.put(key, &Joined { rank_hints, joined, ..Joined::default() })
    }

    /// A rank, and its confirmation.
    fn ranked(self, round: u64, number: u32, is_ready: bool) -> Self {
        let key = self.keys.rank(round, &id(number));
        let ready = self.keys.ready(round, &id(number));
        let run = self.put(key, &Ranked { rank: number, world: 3 });
        if is_ready { run.bytes(ready, Bytes::new(), 0) } else { run }
    }

    fn member(self, number: u32) -> Self {
        self.node(number, None, 9).joined(4, number, None).ranked(4, number, true)
    }

    fn budget(self, budget: &RestartBudget) -> Self {
        let key = self.keys.restarts();
        self.put(key, budget)
    }

    fn status(&self) -> RunStatus {
        RunStatus::new("job", &self.keys, &self.kvs, &self.leases)
    }

    fn states(&self) -> String {
        let one = |node: &NodeStatus| {
            let rank = node.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
            format!("{rank} {} {}", node.id, node.state.word())
        };
        self.status().nodes.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn told(&self) -> String {
        let sentences = explain(&self.status(), NOW);
        sentences.iter().map(|sentence| format!("{}\n", sentence.text)).collect()
    }
}

fn id(number: u32) -> String {
    format!("h{number}_1")
}

fn action(operation: Operation) -> OperatorAction {
    let (by, reason) = ("ali@login".to_owned(), "its disk is full".to_owned());
    OperatorAction { operation, by, reason, round: 4, at: None }
}

fn running() -> Run {
    let budget = RestartBudget { used: 1, max: Some(3), ..RestartBudget::default() };
    Run::new().active(Status::Final, |_| {}).member(0).member(1).member(2).budget(&budget)
}

#[test]
fn an_unknown_run_is_said_to_be_unknown() {
    let run = Run::new();
    let status = run.status();
    assert_eq!((status.state, &*status.reason), (RunState::None, "no such run on this server"));
    assert!(run.told().starts_with("This server has no run \"job\": no node has joined it"));
}

#[test]
fn the_time_of_a_join_is_that_of_the_round_in_progress() {
    let joined = Some(NOW.minus(Duration::from_secs(70)));
    let run = running().node(3, None, 9).joined(3, 3, None);
    let status = run.status();
    let times: Vec<_> = status.nodes.iter().map(|node| node.joined).collect();
    assert_eq!(times, [joined, joined, joined, None], "the last one joined an earlier round");
}

#[test]
fn a_round_that_waits_names_the_nodes_that_are_missing() {
    let run = Run::new()
        .active(Status::Joinable, |active| active.limits = Limits { min: 4, max: 4 })
        .node(0, Some(0), 9)
        .joined(4, 0, Some(0))
        .node(2, Some(2), 9)
        .joined(4, 2, Some(2));
    let status = run.status();
    assert_eq!(status.reason, "waits for 2 more nodes");
    let counts = NodeCounts { present: 2, min: 4, max: 4, needed: 2, ..NodeCounts::default() };
    assert_eq!(status.counts, counts);
    let ranks: Vec<_> = status.missing.iter().map(|node| node.rank).collect();
    assert_eq!(ranks, [Some(1), Some(3)]);
    assert_eq!(
        run.told(),
        "Run \"job\" forms a group: round 4 takes nodes, for 1 min 15 s now.\n\
         It has 2 of 4 nodes (h0_1 and h2_1), and waits for 2 more.\n\
         Node ranks 1 and 3 have not been seen.\n\
         Round 4 began because: the run begins.\n\
         Start 2 more nodes with the same --rdzv-id and --rdzv-endpoint, or look at the logs of those that \
         should be there. --rdzv-conf timeout=SECONDS lets the others wait longer.\n"
    );
}

#[test]
fn a_missing_node_rank_has_its_last_exit() {
    let exit = NodeExit {
        node: "h1_1".into(),
        host: "h1".into(),
        rank: Some(1),
        code: 69,
        reason: "the preflight command failed.".into(),
        at: Some(DisplayTime::from_unix_millis(1_000_000_000 - 60_000)),
    };
    let run = Run::new()
        .active(Status::Joinable, |active| active.limits = Limits { min: 3, max: 3 })
        .node(0, Some(0), 9)
        .joined(4, 0, Some(0));
    let key = run.keys.exit(&exit.name());
    let run = run.put(key, &exit);
    assert_eq!(run.status().missing[0].last_exit, Some(exit));
    let told = run.told();
    assert!(told.contains("Node rank 2 has not been seen.\n"), "{told}");
    let words = "Node rank 1 was here and is gone: h1_1 ended 1 min ago with exit code 69: the preflight command failed.\n";
    assert!(told.contains(words), "{told}");
    let back = run.node(1, Some(1), 9).joined(4, 1, Some(1)).told();
    assert!(!back.contains("exit code"), "{back}");
}

#[test]
fn a_running_group_has_its_members_its_spare_and_its_restarts() {
    let spare = running().node(7, None, 9);
    let key = spare.keys.spare(&id(7));
    let run = spare.bytes(key, Bytes::new(), 107);
    assert_eq!(run.states(), "0 h0_1 member, 1 h1_1 member, 2 h2_1 member, - h7_1 spare");
    let status = run.status();
    assert_eq!((&*status.reason, status.counts.spare, status.counts.present), ("running", 1, 3));
    assert_eq!(status.restarts, RestartStatus { used: 1, max: Some(3), left: Some(2) });
    let orders: Vec<usize> = status.nodes.iter().map(|node| node.order).collect();
    assert_eq!(orders, [1, 2, 3, 4]);
    assert_eq!(
        run.told(),
        "Run \"job\" runs: round 4 has a group of 3 nodes (3 wanted), for 1 min 15 s now.\n\
         h7_1 stands by as a spare: the group is full.\n\
         Round 4 began because: the run begins.\n"
    );
}

#[test]
fn a_lost_member_is_listed_and_not_left_out() {
    let mut run = running();
    let gone = [run.keys.node("h1_1"), run.keys.member(4, "h1_1"), run.keys.ready(4, "h1_1")];
    run.kvs.retain(|kv| !gone.iter().any(|key| key.as_bytes() == kv.key));
    assert_eq!(run.states(), "0 h0_1 member, 1 h1_1 lost, 2 h2_1 member");
    assert_eq!(run.status().reason, "lost h1_1");
    assert_eq!(run.status().missing[0].id.as_deref(), Some("h1_1"));
    let told = run.told();
    let gone = "h1_1, rank 1 of the last group, is gone: it left, or its lease expired.\n";
    assert!(told.contains(gone), "{told}");
}

#[test]
fn how_a_loss_is_known_is_told() {
    let event = |kind: &str, why: &str| {
        format!(
            r#"{{"format":1,"seq":1,"time":"","ms":0,"node_id":"h0_1","round":4,"kind":{kind},"nodes":["h1_1"],"why":"{why}"}}"#
        )
    };
    let lost = event(r#""members_lost","count":1"#, "h1_1: its lease expired");
    let proved = event(r#""losses_proved""#, PROVED_DEAD).replace(r#""seq":1"#, r#""seq":2"#);
    let mut run = running();
    let gone = [run.keys.node("h1_1"), run.keys.member(4, "h1_1"), run.keys.ready(4, "h1_1")];
    run.kvs.retain(|kv| !gone.iter().any(|key| key.as_bytes() == kv.key));
    for (seq, event, why) in [(1, lost, "its lease expired"), (2, proved, PROVED_DEAD)] {
        let key = run.keys.event(seq);
        run = run.bytes(key, event.into(), 0);
        assert_eq!(run.status().missing[0].why, why);
        let told = run.told();
        assert!(
            told.contains(&format!("h1_1, rank 1 of the last group, is gone: {why}.\n")),
            "{told}"
        );
    }
}

#[test]
fn a_round_after_a_group_waits_for_workers_to_stop() {
    let mut run = running().active(Status::Joinable, |active| {
        (active.round, active.previous) = (5, 4);
        active.reason = "round 4 lost h2_1".into();
    });
    let gone = [run.keys.node("h2_1"), run.keys.member(4, "h2_1"), run.keys.ready(4, "h2_1")];
    run.kvs.retain(|kv| !gone.iter().any(|key| key.as_bytes() == kv.key));
    // Node 0 has stopped its workers and joined.
    let ready = run.keys.ready(4, "h0_1");
    run.kvs.retain(|kv| kv.key != ready);
    let run = run.joined(5, 0, None);
    assert_eq!(run.states(), "0 h0_1 joined, 1 h1_1 stopping, 2 h2_1 lost");
    assert_eq!(run.status().reason, "waits for 2 more nodes");
    let told = run.told();
    for part in [
        "It waits for h1_1 to stop its workers of the last group: no group forms beside them.",
        "h2_1, rank 2 of the last group, is gone",
        "Round 5 began because: round 4 lost h2_1.",
        "the round goes on when its lease expires in 9 s at the latest.",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// At a successor of the server of the last group.
#[test]
fn a_round_without_a_quorum_says_what_an_operator_can_do() {
    let run = Run::new().active(Status::Joinable, |active| {
        active.limits = Limits { min: 1, max: 3 };
        active.lacks_quorum = Some(5);
        active.waits_for = "1 node joined, 1 of the last group are here, and 2 are needed".into();
    });
    let run = run.node(0, None, 9).joined(4, 0, None);
    assert_eq!(run.status().reason, "waits for more of the last group");
    let told = run.told();
    for part in [
        "It waits: 1 node joined, 1 of the last group are here, and 2 are needed.",
        "`rallypoint reopen --force job` lets the group form without them; if they still run somewhere, there are two",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("last call"), "{told}");
}

#[test]
fn a_frozen_round_names_the_nodes_that_have_not_confirmed() {
    let mut run = Run::new().active(Status::Frozen, |_| {});
    for number in 0..3 {
        run = run.node(number, None, 9).joined(4, number, None).ranked(4, number, number != 1);
    }
    assert_eq!(run.states(), "0 h0_1 confirmed, 1 h1_1 joined, 2 h2_1 confirmed");
    assert_eq!(run.status().reason, "waits for h1_1 to confirm");
}

#[test]
fn contradictions_between_nodes_are_named() {
    let mut run = Run::new().active(Status::Joinable, |_| {});
    for number in 0..2 {
        run = run.node(number, Some(0), 9).joined(4, number, Some(0));
    }
    let key = run.keys.objector(&id(5));
    let (limits, rank_policy) = (Limits { min: 2, max: 4 }, "stable".to_owned());
    let sizes = SizeRules { steps: Steps::Only(vec![2, 4]), ..SizeRules::default() };
    let node = NodeName { id: id(5), address: "10.0.0.6".into() };
    let run = run.node(5, None, 9).put(key, &Objection { limits, sizes, rank_policy, node });
    let told = run.told();
    for part in [
        "Node rank 0 was given to h0_1 and h1_1.\n",
        "Give each node a --node-rank of its own",
        "h5_1 does not join: it has min:max nodes 2:4, sizes 2/4 (the round has none) and rank \
         policy stable, and the round has min:max nodes 3:3.",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn the_sizes_that_a_group_may_have_are_named() {
    let sizes = |planned| SizeRules { steps: Steps::Unit(4), planned, scale_up_after_ms: 100_000 };
    let rules = |active: &mut Active, planned| {
        (active.limits, active.sizes) = (Limits { min: 2, max: 8 }, sizes(planned));
    };
    let mut run = Run::new().active(Status::Joinable, |active| rules(active, None));
    for number in 0..3 {
        run = run.node(number, None, 9).joined(4, number, None);
    }
    assert_eq!(run.status().reason, "waits for 1 more node");
    let told = run.told();
    assert!(
        told.contains("It has 3 of 4 or 8 nodes (h0_1, h1_1 and h2_1), and waits for 1 more."),
        "{told}"
    );
    let mut run = Run::new().active(Status::Joinable, |active| rules(active, Some(6)));
    for number in 0..5 {
        run = run.node(number, None, 9).joined(4, number, None);
    }
    assert_eq!(run.status().reason, "last call: 5 of 6 planned nodes");
    let told = run.told();
    assert!(
        told.contains("It has 5 of 6 planned nodes (4 or 8 wanted), which is enough"),
        "{told}"
    );
    let mut run = Run::new().active(Status::Final, |active| {
        rules(active, None);
        active.world = 4;
    });
    for number in 0..4 {
        run = run.node(number, None, 9).joined(4, number, None).ranked(4, number, true);
    }
    let key = run.keys.spare(&id(4));
    let run = run.node(4, None, 9).bytes(key, Bytes::new(), 0);
    let told = run.told();
    for part in [
        "h4_1 stands by as a spare: the group has 4 nodes, and its next size, 8, needs 4 spares in all.",
        "The group has room for 4 more nodes: start 3 with the same",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // The group has formed 75 s ago.
    let key = run.keys.waiting(&id(5));
    let told = run.node(5, None, 9).bytes(key, Bytes::new(), 0).told();
    let part = "h5_1 joined late; the group does not grow for 1 min 40 s after it has formed \
                (scale_up_after), which is for 25 s more.";
    assert!(told.contains(part), "{told}");
}

#[test]
fn a_closed_run_says_by_whom_and_why() {
    let run = Run::new().active(Status::Closed, |active| {
        active.coordinator = NodeName { id: "ali@login".into(), address: String::new() };
        active.outcome = Some(RunOutcome::Failed);
        active.reason = "the learning rate is wrong".into();
        (active.world, active.previous) = (0, 4);
    });
    assert_eq!(run.status().reason, "failed: the learning rate is wrong");
    assert_eq!(
        run.told(),
        "Run \"job\" failed, and was closed 1 min 15 s ago by ali@login.\n\
         The reason given: the learning rate is wrong.\n\
         `rallypoint reopen job` lets nodes join again; a new job takes another --rdzv-id.\n"
    );
}

#[test]
fn failures_evictions_and_late_renewals_are_told() {
    let last = RoundFailure {
        round: 3,
        blame: "rank 5 on h1 exited with 1".into(),
        verdict: RestartVerdict::Counted,
        hang: false,
    };
    let evict = action(Operation::Evict { node: id(1) });
    let budget = RestartBudget {
        used: 3,
        max: Some(3),
        last: Some(last),
        actions: vec![evict],
        ..RestartBudget::default()
    };
    let mut run = running().budget(&budget);
    run.leases.insert(102, LeaseMargin { left_s: 1, ttl_s: 10 });
    let key = run.keys.ready(4, "h0_1");
    let unreached = "no connection to rank 0 at 10.0.0.9:1".to_owned();
    let run = run.put(key, &Unreached { unreached });
    let told = run.told();
    for part in [
        "h0_1 has no connection to rank 0 at 10.0.0.9:1.\n",
        "h1_1 evicted by ali@login: its disk is full.\n",
        "No restart is left: the next failure of a worker closes the run.\n",
        "Workers failed in round 3: rank 5 on h1 exited with 1; it used a restart (3 of 3 used).\n",
        "Node h1_1 was evicted by ali@login: its disk is full.\n",
        "h2_1 renews its lease late, with 1 of 10 s left,",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_hang_is_told_until_it_is_over_or_the_round_is() {
    use crate::agent::{HangOver, HangRequest};
    let since = Some(NOW.minus(Duration::from_secs(700)));
    let request = |round, number| {
        let budget = RestartBudget { max: Some(3), ..RestartBudget::default() };
        let host = "h1".into();
        budget.request_stacks(HangRequest { round, number, host, millis: 600_000, since })
    };
    let group = || Run::new().active(Status::Final, |_| {}).member(0).member(1).member(2);
    let hung = request(4, 2);
    let run = group().budget(&hung);
    let status = run.status();
    assert_eq!(status.reason, "no progress for over 10 min on h1");
    assert_eq!(status.hang.map(|hang| (hang.since, hang.silent_ms)), Some((since, 600_000)));
    assert_eq!(
        run.told(),
        "Run \"job\" runs: round 4 has a group of 3 nodes (3 wanted), for 1 min 15 s now.\n\
         The job hangs: the workers on h1 have made no progress for 11 min 40 s.\n\
         Where its workers are has not been reported.\n\
         Round 4 began because: the run begins.\n\
         The log of the node with rank 0 has the stacks. `rallypoint evict job NODE` lets the job go on without a node; \
         --on-hang restart does so by itself if one is to blame. A job that only works for long needs a longer \
         --hang-after.\n"
    );
    let last = RoundFailure {
        round: 4,
        blame: "no progress on h1".into(),
        verdict: RestartVerdict::Counted,
        hang: true,
    };
    let restarts = RestartBudget { last: Some(last), ..hung.clone() };
    let over = hung.end_hang(HangOver { round: 4, number: 2 });
    for (budget, why) in [
        (request(3, 9), "an earlier round"),
        (over.clone(), "workers make progress again"),
        (restarts, "the job restarts"),
    ] {
        let status = group().budget(&budget).status();
        assert_eq!((&*status.reason, status.hang), ("running", None), "{why}");
        assert!(status.last_hang.is_some(), "the page may show it");
    }
    let next = HangRequest { round: 4, number: 3, host: "h2".into(), millis: 7_000, since: None };
    let again = group().budget(&over.request_stacks(next)).status();
    assert_eq!(again.reason, "no progress for over 7 s on h2");
    let restarting = Run::new().active(Status::Joinable, |active| active.round = 5).budget(&hung);
    assert_eq!(restarting.status().hang, None, "another round has begun");
}

#[test]
fn a_document_that_cannot_be_read_is_a_problem_and_no_panic() {
    let run = Run::new();
    let key = run.keys.active();
    let run = run.bytes(key, Bytes::from_static(b"{\"format\": 9}"), 0);
    let status = run.status();
    assert_eq!(status.state, RunState::None);
    assert!(status.problems[0].contains("has format 9"), "{:?}", status.problems);
}
