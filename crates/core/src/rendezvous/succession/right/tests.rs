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
            self.puts(self.keys.ready(round, id), "".into(), lease);
        }
        let by = NodeName { id: members[0].to_owned(), address: String::new() };
        let active = Active::new(RunHistory::new(7), round, Status::Final, by);
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
