use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::kv::KeyValue;
use crate::rendezvous::documents::{NodeName, RunHistory, encode};

const TTL: Duration = Duration::from_secs(24);

fn at(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

struct Server {
    right: ServingRight,
    keys: Keys,
}

impl Server {
    /// A server whose group of round 1 has these members, each on the lease of its position.
    fn of(members: &[&str]) -> Self {
        let keys = Keys::new("/p", "r");
        let mut server = Self { right: ServingRight::new(keys.clone(), TTL), keys };
        server.forms(1, members);
        server
    }

    fn forms(&mut self, round: u64, members: &[&str]) {
        for (lease, id) in (1..).zip(members) {
            self.puts(self.keys.node(id), "{}".into(), lease);
            self.puts(self.keys.member(round, id), "{}".into(), lease);
            self.puts(self.keys.ready(round, id), "".into(), lease);
        }
        self.is_final(round);
    }

    fn is_final(&mut self, round: u64) {
        self.is_active(round, Status::Final);
    }

    fn is_active(&mut self, round: u64, status: Status) {
        let by = NodeName { id: "a".to_owned(), address: String::new() };
        let active = Active::new(RunHistory::new(7), round, status, by);
        self.puts(self.keys.active(), encode(&active), 1);
    }

    fn puts(&mut self, key: String, value: bytes::Bytes, lease: LeaseId) {
        self.changes(EventKind::Put, key, value, lease);
    }

    fn changes(&mut self, kind: EventKind, key: String, value: bytes::Bytes, lease: LeaseId) {
        let kv = KeyValue { key: key.into(), value, lease, ..KeyValue::default() };
        self.right.changed(&Event { kind, kv, prev_kv: None });
    }

    fn hears(&mut self, leases: &[LeaseId], seconds: u64) {
        for lease in leases {
            self.right.confirmed(*lease, at(seconds));
        }
    }
}

#[test]
fn half_of_the_group_must_be_heard_within_two_renewals() {
    // The size of the group, the leases that were heard at 100 s, and until when the right holds. A node counts as heard
    // for 13 s.
    let table: [(usize, &[LeaseId], bool); 9] = [
        (1, &[1], true),
        (1, &[], false),
        // Two nodes: the side of the server goes on, since the other side can not.
        (2, &[1], true),
        (3, &[1], false),
        (3, &[1, 3], true),
        (4, &[1, 2], true),
        (4, &[2], false),
        (5, &[1, 2], false),
        (5, &[2, 3, 4], true),
    ];
    let names = ["a", "b", "c", "d", "e"];
    for (size, heard, holds) in table {
        let mut server = Server::of(&names[..size]);
        server.hears(heard, 100);
        assert_eq!(server.right.holds(at(113)), holds, "{heard:?} of {size}");
        assert!(!server.right.holds(at(114)), "{heard:?} of {size}, and then nothing");
    }
}

#[test]
fn without_a_group_the_right_is_not_in_question() {
    let mut right = ServingRight::new(Keys::new("/p", "r"), TTL);
    assert!(right.holds(at(1_000)) && !right.is_over(at(2_000)));
}

#[test]
fn a_response_that_was_confirmed_counts_from_its_sending() {
    let mut server = Server::of(&["a"]);
    server.hears(&[1], 100);
    // An older response is confirmed later.
    server.hears(&[1], 90);
    assert!(server.right.holds(at(110)));
}

#[test]
fn who_left_in_good_order_is_not_missed() {
    let mut server = Server::of(&["a", "b", "c"]);
    server.hears(&[1], 100);
    assert!(!server.right.holds(at(101)));
    server.puts(server.keys.left(1, "b"), "".into(), 9);
    assert!(server.right.holds(at(101)), "one of two");
}

#[test]
fn a_lease_that_expired_is_no_leave() {
    let mut server = Server::of(&["a", "b", "c"]);
    server.hears(&[1, 2], 100);
    server.changes(EventKind::Delete, server.keys.node("b"), "".into(), 0);
    server.changes(EventKind::Delete, server.keys.ready(1, "b"), "".into(), 0);
    assert!(!server.right.holds(at(101)), "one of three");
}

#[test]
fn a_later_group_replaces_the_one_before() {
    let mut server = Server::of(&["a", "b", "c", "d"]);
    server.hears(&[1], 100);
    assert!(!server.right.holds(at(101)));
    server.forms(2, &["a", "b"]);
    assert!(server.right.holds(at(101)), "one of two");
    assert_eq!(server.right.round(), 2);
}

#[test]
fn the_right_is_over_when_it_was_lost_for_a_lease() {
    let mut server = Server::of(&["a", "b", "c"]);
    server.hears(&[1, 2], 100);
    assert!(!server.right.is_over(at(113)));
    assert!(!server.right.is_over(at(120)), "lost since now");
    assert!(!server.right.is_over(at(143)));
    // Heard again in time.
    server.hears(&[1, 2], 143);
    assert!(!server.right.is_over(at(144)));
    assert!(!server.right.is_over(at(157)));
    assert!(server.right.is_over(at(181)));
}

#[test]
fn a_node_on_a_new_lease_has_received_the_grant() {
    let mut right = ServingRight::new(Keys::new("/p", "r"), TTL);
    right.granted(1, at(100));
    let mut server = Server { right, keys: Keys::new("/p", "r") };
    server.forms(1, &["a"]);
    assert!(server.right.holds(at(113)));
    assert!(!server.right.holds(at(114)), "the grant counts from its time, not from its use");
}

/// The answers by counting the group each time.
#[derive(Default)]
struct Plain {
    leases: BTreeMap<String, LeaseId>,
    group: BTreeSet<String>,
    heard: BTreeMap<LeaseId, Time>,
    lost: Option<Time>,
}

impl Plain {
    fn hears(&mut self, lease: LeaseId, sent: Time) {
        let heard = self.heard.entry(lease).or_insert(sent);
        *heard = sent.max(*heard);
    }

    fn holds(&mut self, now: Time) -> bool {
        let is_heard = |id: &&String| {
            let heard = self.leases.get(*id).and_then(|lease| self.heard.get(lease));
            heard.is_some_and(|at| now.saturating_sub(*at) <= heard_for(TTL))
        };
        let holds = 2 * self.group.iter().filter(is_heard).count() >= self.group.len();
        self.lost = if holds { None } else { self.lost.or(Some(now)) };
        holds
    }

    fn is_over(&mut self, now: Time) -> bool {
        !self.holds(now) && self.lost.is_some_and(|since| now >= since + TTL)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Joins(usize, LeaseId),
    IsGone(usize),
    Leaves(usize),
    /// The members, one bit for each node.
    Forms(u8),
    Granted(LeaseId),
    /// A response that was sent so many seconds ago.
    Confirmed(LeaseId, u64),
    /// All leases up to this one.
    AllConfirmed(LeaseId, u64),
    Waits(u64),
    Holds,
    IsOver,
}

fn step() -> impl Strategy<Value = Step> {
    // Each node has leases of its own, one after another.
    let (node, lease) = (0..8_usize, 1..24_i64);
    prop_oneof![
        2 => lease.clone().prop_map(|lease| Step::Joins((lease as usize - 1) % 8, lease)),
        1 => node.clone().prop_map(Step::IsGone),
        1 => node.prop_map(Step::Leaves),
        1 => any::<u8>().prop_map(Step::Forms),
        1 => lease.clone().prop_map(Step::Granted),
        6 => (1..12_i64, 0..20_u64).prop_map(|(lease, ago)| Step::Confirmed(lease, ago)),
        2 => (lease, 0..10_u64).prop_map(|(last, ago)| Step::AllConfirmed(last, ago)),
        4 => (1..9_u64).prop_map(Step::Waits),
        6 => Just(Step::Holds),
        1 => Just(Step::IsOver),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..Default::default() })]

    /// What is known without counting is what counting says.
    #[test]
    fn the_group_need_not_be_counted(
        (members, steps) in (any::<u8>(), vec(step(), 1..120)),
    ) {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let keys = Keys::new("/p", "r");
        let mut server = Server { right: ServingRight::new(keys.clone(), TTL), keys };
        let mut plain = Plain::default();
        let (mut now, mut round) = (100, 0);
        let joined = (1..).zip(0..names.len()).map(|(lease, node)| Step::Joins(node, lease));
        for step in joined.chain([Step::Forms(members)]).chain(steps) {
            match step {
                Step::Joins(node, lease) => {
                    server.puts(server.keys.node(names[node]), "{}".into(), lease);
                    plain.leases.insert(names[node].to_owned(), lease);
                }
                Step::IsGone(node) => {
                    let key = server.keys.node(names[node]);
                    server.changes(EventKind::Delete, key, "".into(), 0);
                    plain.leases.remove(names[node]);
                }
                Step::Leaves(node) => {
                    server.puts(server.keys.left(round, names[node]), "".into(), 9);
                    plain.group.remove(names[node]);
                }
                Step::Forms(members) => {
                    round += 1;
                    let member = |(node, name): (usize, &&str)| {
                        (members & (1 << node) != 0).then(|| (*name).to_owned())
                    };
                    plain.group = names.iter().enumerate().filter_map(member).collect();
                    for id in &plain.group {
                        server.puts(server.keys.ready(round, id), "".into(), 9);
                    }
                    server.is_final(round);
                }
                Step::Granted(lease) => {
                    server.right.granted(lease, at(now));
                    plain.hears(lease, at(now));
                }
                Step::Confirmed(lease, ago) => {
                    server.right.confirmed(lease, at(now - ago));
                    plain.hears(lease, at(now - ago));
                }
                Step::AllConfirmed(last, ago) => {
                    for lease in 1..=last {
                        server.right.confirmed(lease, at(now - ago));
                        plain.hears(lease, at(now - ago));
                    }
                }
                Step::Waits(seconds) => now += seconds,
                Step::Holds => prop_assert_eq!(server.right.holds(at(now)), plain.holds(at(now))),
                Step::IsOver => {
                    prop_assert_eq!(server.right.is_over(at(now)), plain.is_over(at(now)));
                }
            }
        }
    }
}

#[test]
fn a_renewal_does_not_count_a_healthy_group() {
    let names: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut server = Server::of(&names);
    let leases: Vec<LeaseId> = (1..=1_000).collect();
    server.hears(&leases, 100);
    // Each node confirms every six seconds what was sent to it six seconds before, as with a lease of 24 s.
    let mut counted = 0;
    for second in 106..=1_060 {
        for lease in leases.iter().filter(|lease| **lease as u64 % 6 == second % 6) {
            server.right.confirmed(*lease, at(second - 6));
            counted += usize::from(
                !matches!(server.right.known, Known::HoldsUntil(until) if at(second) <= until),
            );
            assert!(server.right.holds(at(second)));
        }
    }
    // Of 159,000 renewals in 40 times to live.
    assert!(counted <= 40 * 7, "{counted}");
}

#[test]
fn leases_that_nobody_renews_are_forgotten() {
    let mut server = Server::of(&["a"]);
    for second in 0..10_000 {
        server.right.granted(second as LeaseId + 10, at(second));
        server.hears(&[1, second as LeaseId + 20_000], second);
        assert!(server.right.holds(at(second)));
    }
    assert!(server.right.heard.len() <= MANY_LEASES, "{}", server.right.heard.len());
}

#[test]
fn a_lost_right_is_not_counted_again_before_it_may_have_come_back() {
    let mut server = Server::of(&["a", "b", "c", "d", "e"]);
    server.hears(&[1, 2], 100);
    assert!(!server.right.holds(at(101)));
    let missing = |server: &Server| match server.right.known {
        Known::Lost { missing, .. } => missing,
        _ => usize::MAX,
    };
    // Who was heard already is not one more, and an old response is none.
    server.hears(&[1, 2], 101);
    server.hears(&[3], 80);
    assert_eq!(missing(&server), 1);
    server.hears(&[3], 101);
    assert_eq!(missing(&server), 0);
    assert!(server.right.holds(at(102)));
}

/// The head is `a`. It and some others leave a group of this size, and these members join the next round.
fn succeeded(names: &[&str], leave: &[&str], join: &[&str]) -> Server {
    let mut server = Server::of(names);
    for id in leave {
        server.puts(server.keys.left(1, id), "".into(), 9);
        server.changes(EventKind::Delete, server.keys.member(1, id), "".into(), 0);
        assert!(!server.right.can_be_succeeded(), "the group of round 1 is to form again");
    }
    server.is_active(2, Status::Joinable);
    for id in join {
        assert!(!server.right.can_be_succeeded(), "{id} is still missing");
        server.puts(server.keys.member(2, id), "{}".into(), 1);
    }
    server
}

#[test]
fn the_server_of_a_node_that_left_may_end_when_enough_have_joined_the_next_round() {
    let names = ["a", "b", "c", "d", "e"];
    assert!(succeeded(&names[..3], &["a"], &["b", "c"]).right.can_be_succeeded());
    assert!(succeeded(&names, &["a"], &["b", "c", "d"]).right.can_be_succeeded());
    assert!(succeeded(&names, &["a", "e"], &["b", "c", "d"]).right.can_be_succeeded());
    // Two of five have no quorum elsewhere, although all others have left.
    let mut server = succeeded(&names, &["a", "b", "c"], &["d", "e"]);
    assert!(!server.right.can_be_succeeded());
    // A newcomer is no member of the last group.
    server.puts(server.keys.member(2, "f"), "{}".into(), 1);
    assert!(!server.right.can_be_succeeded());
    // Here they have one, and a group of two has it everywhere.
    server.forms(2, &["d", "e"]);
    assert!(!server.right.can_be_succeeded(), "they may not know it yet");
    assert_eq!(server.right.can_go_on(), Some(2));
    server.puts(server.keys.left(2, "e"), "".into(), 9);
    assert_eq!(server.right.can_go_on(), None, "it is to form again");
}

#[test]
fn the_server_of_a_closed_run_is_not_succeeded() {
    let mut server = succeeded(&["a", "b", "c"], &["a"], &["b", "c"]);
    server.is_active(2, Status::Closed);
    assert!(!server.right.can_be_succeeded());
    assert_eq!(server.right.can_go_on(), None);
}

#[test]
fn the_server_of_a_node_that_is_no_member_may_end_while_a_group_runs() {
    assert_eq!(Server::of(&["b", "c", "d"]).right.can_go_on(), Some(1));
}
