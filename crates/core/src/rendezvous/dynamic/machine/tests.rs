use crate::rendezvous::documents::RunOutcome;
use std::time::Duration;

use super::*;
use crate::rendezvous::dynamic::DynamicSettings;

const MIN_TWO: Limits = Limits { min: 2, max: 3 };

/// A document on which nodes act one after another.
struct Table {
    now: Time,
    state: Option<SharedState>,
    settings: DynamicSettings,
}

impl Table {
    fn new(limits: Limits) -> Self {
        Self { now: Time::from_secs(1000), state: None, settings: DynamicSettings::new(limits) }
    }

    fn node(&self, id: &str) -> Observer {
        let mut observer = Observer::new(id, self.settings.clone());
        observer.begin_waiting(self.now);
        observer
    }

    /// Lets a node act until it waits or ends, and returns its last action.
    fn act(&mut self, observer: &mut Observer, intent: Intent) -> (Action, Reason) {
        for _ in 0..20 {
            if let Some(state) = &self.state {
                observer.look(self.now, state);
            }
            match decide(self.now, self.state.as_ref(), observer, intent) {
                (Action::Write(state), _) => {
                    let read =
                        SharedState::from_json(&state.to_json()).expect("what is written is read");
                    self.state = Some(read);
                }
                ended => return ended,
            }
        }
        panic!("it never rests: {:?}", self.state);
    }

    fn join(&mut self, observer: &mut Observer, not_before: u64) -> (Action, Reason) {
        self.act(observer, Intent::Join { not_before })
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Forms a group of these nodes, which join in this order.
    fn group<const N: usize>(&mut self, ids: [&str; N]) -> [Observer; N] {
        let mut nodes = ids.map(|id| self.node(id));
        for node in &mut nodes {
            self.join(node, 1);
        }
        self.pass(self.settings.last_call);
        for node in &mut nodes {
            assert!(matches!(self.join(node, 1), (Action::Meet { round: 1, .. }, _)));
        }
        nodes
    }

    fn state(&self) -> &SharedState {
        self.state.as_ref().unwrap()
    }
}

fn meet(round: u64, rank: u32, world_size: u32) -> Action {
    Action::Meet { round, rank, world_size }
}

#[test]
fn the_first_node_waits_for_min_nodes_and_the_last_one_completes_the_round_at_once() {
    let mut table = Table::new(MIN_TWO);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|id| table.node(id));
    let (action, reason) = table.join(&mut a, 1);
    assert!(matches!(action, Action::Wait(Some(until)) if until > table.now));
    assert_eq!(reason.describe(table.now), "1 of 2 nodes, waiting for 1 more");
    let (_, reason) = table.join(&mut b, 1);
    let words = "2 of 3 nodes, 30 s of last call left, then it starts (2:3 nodes)";
    assert_eq!(reason.describe(table.now), words);
    assert!(table.state().last_call.is_some());
    assert_eq!(table.join(&mut c, 1).0, meet(1, 2, 3));
    assert_eq!(table.join(&mut a, 1).0, meet(1, 0, 3));
    assert_eq!(table.join(&mut b, 1).0, meet(1, 1, 3));
}

#[test]
fn each_node_counts_the_last_call_from_when_it_saw_it_and_the_first_one_completes_the_round() {
    let mut table = Table::new(MIN_TWO);
    let [mut a, mut b] = ["a", "b"].map(|id| table.node(id));
    table.join(&mut a, 1);
    table.join(&mut b, 1);
    table.pass(Duration::from_secs(29));
    // This node sees the last call only now, so it counts 30 s from here.
    let (_, reason) = table.join(&mut a, 1);
    let words = "2 of 3 nodes, 30 s of last call left, then it starts (2:3 nodes)";
    assert_eq!(reason.describe(table.now), words);
    table.pass(Duration::from_secs(1));
    assert_eq!(table.join(&mut b, 1).0, meet(1, 1, 2));
    assert_eq!(table.join(&mut a, 1).0, meet(1, 0, 2));
}

#[test]
fn too_few_nodes_cancel_the_last_call_and_the_next_one_has_another_number() {
    let mut table = Table::new(MIN_TWO);
    let [mut a, mut b] = ["a", "b"].map(|id| table.node(id));
    table.join(&mut a, 1);
    table.join(&mut b, 1);
    let first = table.state().last_call.unwrap();
    table.pass(Duration::from_secs(20));
    assert_eq!(table.act(&mut b, Intent::Leave).0, Action::Gone);
    assert_eq!(table.state().last_call, None);
    table.join(&mut b, 1);
    assert!(table.state().last_call.unwrap() > first);
    // A node that saw both tells them apart.
    table.pass(Duration::from_secs(10));
    assert!(matches!(table.join(&mut a, 1).0, Action::Wait(_)));
}

#[test]
fn a_late_node_waits_if_the_group_has_room_and_is_a_spare_if_not() {
    let mut table = Table::new(Limits { min: 1, max: 2 });
    let [mut a] = table.group(["a"]);
    let mut b = table.node("b");
    let (_, reason) = table.join(&mut b, 1);
    assert_eq!(reason, Reason::LateForRound(1));
    assert_eq!(table.state().waiting(1), 1);
    // The member joins again, and the group forms without a last call, since all live nodes have joined.
    table.join(&mut a, 2);
    assert_eq!(table.join(&mut b, 1).0, meet(2, 1, 2));
    assert_eq!(table.join(&mut a, 2).0, meet(2, 0, 2));

    let mut c = table.node("c");
    assert_eq!(table.join(&mut c, 1).1, Reason::NotNeeded(2));
    assert_eq!(table.state().waiting(2), 0);
    // A spare waits without a timeout.
    for _ in 0..1000 {
        table.pass(Duration::from_secs(5));
        for (node, intent) in [(&mut a, Intent::Rest), (&mut b, Intent::Rest)] {
            table.act(node, intent);
        }
        assert_eq!(table.join(&mut c, 1).1, Reason::NotNeeded(2));
    }
    let mut state = table.state().clone();
    state.close("a", RunOutcome::Succeeded, "the work is done");
    table.state = Some(state);
    let closed = DynamicClosure {
        by: "a".into(),
        outcome: RunOutcome::Succeeded,
        reason: "the work is done".into(),
    };
    assert_eq!(table.join(&mut c, 1).0, Action::Fail(DynamicFailure::NotNeeded(closed.clone())));
    let mut d = table.node("d");
    assert_eq!(table.join(&mut d, 1).0, Action::Fail(DynamicFailure::Closed(closed)));
}

#[test]
fn survivors_see_a_dead_member_and_a_spare_takes_its_rank() {
    let mut table = Table::new(MIN_TWO);
    let [mut a, mut b, mut c] = table.group(["a", "b", "c"]);
    let mut spare = table.node("spare");
    assert_eq!(table.join(&mut spare, 1).1, Reason::NotNeeded(1));
    // The first node sends no heartbeat from here on.
    for _ in 0..4 {
        table.pass(Duration::from_secs(5));
        table.act(&mut b, Intent::Rest);
        table.act(&mut c, Intent::Rest);
        table.join(&mut spare, 1);
    }
    assert!(!table.state().nodes.contains_key("a"));
    assert!(table.state().participants.contains_key("a"), "the roster of a group never changes");
    assert_eq!(table.state().wait_list.iter().collect::<Vec<_>>(), ["spare"]);
    assert_eq!(table.state().waiting(1), 2);
    table.join(&mut c, 2);
    table.join(&mut spare, 1);
    table.join(&mut b, 2);
    assert_eq!(table.join(&mut b, 2).0, meet(2, 1, 3));
    assert_eq!(table.join(&mut c, 2).0, meet(2, 2, 3));
    assert_eq!(table.join(&mut spare, 1).0, meet(2, 0, 3));
    // The node was not dead. It must not count itself as a member of its former group.
    assert_eq!(table.act(&mut a, Intent::Rest).0, Action::Wait(None));
    assert_eq!(table.state().waiting(1), 3);
    assert_eq!(table.join(&mut a, 2).1, Reason::NotNeeded(2));
}

#[test]
fn a_spare_that_joins_first_does_not_replace_a_member() {
    let mut table = Table::new(Limits { min: 2, max: 2 });
    let [mut a, mut b] = table.group(["a", "b"]);
    let mut spare = table.node("spare");
    table.join(&mut spare, 1);
    table.join(&mut a, 2);
    let (_, reason) = table.join(&mut spare, 1);
    assert!(reason.describe(table.now).contains("1 live nodes still to come"), "{reason:?}");
    assert_eq!(table.join(&mut b, 2).0, meet(2, 1, 2));
    assert_eq!(table.join(&mut spare, 1).1, Reason::NotNeeded(2));
}

#[test]
fn the_next_round_opens_when_the_last_participant_has_left() {
    let mut table = Table::new(Limits { min: 1, max: 1 });
    let [mut a] = table.group(["a"]);
    table.act(&mut a, Intent::Leave);
    assert_eq!((table.state().round, table.state().complete), (2, false));
}

#[test]
fn missing_heartbeats_count_only_while_the_observer_watches() {
    let mut table = Table::new(MIN_TWO);
    let [mut a, _, _] = table.group(["a", "b", "c"]);
    // No node could write for an hour, or this node did not run: no node counts as dead.
    table.pass(Duration::from_secs(3600));
    table.act(&mut a, Intent::Rest);
    assert_eq!(table.state().nodes.len(), 3);
    // A new node has seen no heartbeat of theirs, and allows them their full time.
    let mut late = table.node("late");
    for seconds in [0, 5, 5, 4] {
        table.pass(Duration::from_secs(seconds));
        table.act(&mut a, Intent::Rest);
        table.join(&mut late, 1);
        assert_eq!(late.dead(table.state()).count(), 0);
    }
    table.pass(Duration::from_secs(1));
    table.join(&mut late, 1);
    assert_eq!(table.state().waiting(1), 3, "two are dead, and one waits for their places");
}

#[test]
fn a_timeout_names_what_was_missing() {
    let mut table = Table::new(MIN_TWO);
    let mut a = table.node("a");
    table.join(&mut a, 1);
    table.pass(table.settings.join);
    let (Action::Fail(DynamicFailure::Timeout { missing }), _) = table.join(&mut a, 1) else {
        panic!("it goes on waiting")
    };
    assert_eq!(missing, "1 of 2 nodes, waiting for 1 more; no other node has joined");
}

#[test]
fn nodes_with_other_limits_fail() {
    let mut table = Table::new(MIN_TWO);
    let mut a = table.node("a");
    table.join(&mut a, 1);
    table.settings = DynamicSettings::new(Limits { min: 4, max: 4 });
    let mut b = table.node("b");
    let ours = table.settings.limits;
    let failure = DynamicFailure::Limits { theirs: MIN_TWO, ours };
    assert_eq!(table.join(&mut b, 1).0, Action::Fail(failure));
    table.act(&mut a, Intent::Leave);
    table.join(&mut b, 1);
    assert_eq!(table.state().limits, ours);
}

#[test]
fn round_numbers_grow_after_the_state_was_lost() {
    let mut table = Table::new(Limits { min: 1, max: 2 });
    let mut b = table.node("b");
    table.join(&mut b, 1);
    let mut a = table.node("a");
    assert_eq!(table.join(&mut a, 8).0, meet(8, 0, 2));
}

#[test]
fn the_error_of_an_invalid_document_says_why() {
    let good = SharedState::fresh(MIN_TWO, 1);
    let mut gap = good.clone();
    gap.complete = true;
    gap.participants.insert("a".into(), Some(1));
    for (bytes, words) in [
        (b"gASVDwAAAAAAAAA".to_vec(), "not the JSON of a rendezvous"),
        (b"{}".to_vec(), "missing field `format`"),
        (br#"{"format": 2, "more": true}"#.to_vec(), "format 2, and this version reads format 1"),
        (br#"{"format": 1}"#.to_vec(), "missing field"),
        (gap.to_json(), "its ranks have gaps"),
    ] {
        let error = SharedState::from_json(&bytes).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
