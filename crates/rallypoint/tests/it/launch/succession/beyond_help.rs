//! The head is lost, and nobody may take its place.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Ground, LEASE, LONG_LEASE, ORDER, SERVER_TIMEOUT};
use crate::launch::{Launcher, until_true};

/// What the last words of a node name where the rest of the last group is missing.
const REMEDY: &str = "`rallypoint reopen --force job`";

/// What a node says when it has given up.
const GIVES_UP: &str = "goes on from its last checkpoint";

/// The head is lost. Each of these nodes says what it lacks and for how long it waits, and ends with 75 after that time.
/// Returns what they have said since.
fn give_up(nodes: &mut [Launcher], words: &str, lose: impl FnOnce() -> Instant) -> Vec<String> {
    let said: Vec<usize> = nodes.iter().map(|node| node.stderr().len()).collect();
    let lost = lose();
    let ends = nodes.iter_mut().map(|node| node.ends_with(75).stderr);
    let last: Vec<String> =
        ends.zip(said).map(|(stderr, before)| stderr[before..].to_owned()).collect();
    let waited = lost.elapsed();
    assert!(waited >= SERVER_TIMEOUT - Duration::from_secs(1), "they waited for {waited:?}");
    let limit = format!("for up to {}s (server_timeout)", SERVER_TIMEOUT.as_secs());
    for said in &last {
        let at = |words: &str| said.find(words).unwrap_or_else(|| panic!("no {words:?}: {said}"));
        for words in [words, &limit] {
            assert!(at(words) < at(GIVES_UP), "{words:?} is to be said while it waits: {said}");
        }
    }
    last
}

/// Each of these nodes has named the remedy of an operator, or none has.
fn name_the_remedy(last: &[String], named: bool) {
    for said in last {
        assert_eq!(said.contains(REMEDY), named, "{said}");
    }
}

/// Also where the group may have more: the user is told before anything is lost.
#[test]
fn a_group_that_may_be_of_two_is_told_so_at_the_start() {
    let ground = Ground::new("2:4", 4);
    let mut node = ground.start(0);
    until_true("it says so", || {
        node.stderr().contains("two nodes cannot outvote each other: while the group has only two")
    });
    node.signal(Signal::TERM);
    node.ends_with(128 + 15);
    ground.job.nothing_is_left();
}

#[test]
fn one_of_two_nodes_cannot_outvote_the_head() {
    let ground = Ground::with("1:2", 2, "node0,node1", LEASE, SERVER_TIMEOUT);
    let (mut nodes, first) = ground.starts();
    let last =
        give_up(&mut nodes[1..], "and two nodes cannot outvote each other", || ground.vanish(0));
    name_the_remedy(&last, true);
    assert_eq!(ground.job.rounds().len(), 1, "{first:?}");
    ground.is_over(&[1]);
}

#[test]
fn half_of_a_group_does_not_go_on_without_the_other_half() {
    let ground = Ground::with("1:4", 4, ORDER, LEASE, SERVER_TIMEOUT);
    let (mut nodes, _) = ground.starts();
    let last = give_up(&mut nodes[1..3], "more than half", || {
        // Both at once: after the loss of one, three others are enough for the next.
        ground.cut(3);
        let lost = ground.vanish(0);
        ground.kill(3);
        lost
    });
    name_the_remedy(&last, true);
    assert_eq!(ground.job.rounds().len(), 1);
    ground.is_over(&[1, 2]);
}

/// An operator who knows that the others are gone lets the rest go on, and is named for it.
#[test]
fn an_operator_lets_the_rest_go_on() {
    let ground = Ground::new("1:4", 4);
    let (mut nodes, first) = ground.starts();
    let lost = ground.cut(3);
    ground.cut(2);
    ground.vanish(0);
    ground.kill(2);
    ground.kill(3);
    let last = &mut nodes[1..2];
    until_true("it says what it lacks", || last[0].stderr().contains("and 3 are needed"));
    let reopen = |options: &[&str]| {
        let words = ["reopen", "--rdzv-endpoint", "node0,node1,node2", "job"];
        ground.says(1, &[&words, options].concat())
    };
    // The document that tells an operator follows what the log says.
    until_true("nothing is to be opened, but to be forced", || {
        reopen(&["--yes"]).2.contains("--force lets it go on without them")
    });
    let (code, _, asked) = reopen(&["--force"]);
    assert_eq!(code, Some(1));
    assert!(asked.contains("There is no terminal to ask on: give --yes"), "{asked}");
    assert!(ground.job.rounds().len() == 1, "nothing has changed");
    let (code, out, err) = reopen(&["--force", "--reason", "rack 2 is gone", "--yes"]);
    assert_eq!(
        (code, &*out),
        (Some(0), "run \"job\" goes on without the rest of its last group\n"),
        "{err}"
    );
    let next = ground.regroups_late(lost, &first, &[1]);
    let (_, explained, err) =
        ground.says(1, &["explain", "--rdzv-endpoint", "node0,node1,node2", "job"]);
    let recorded = "run was let go on without the rest of its last group by ";
    assert!(
        explained.contains(recorded) && explained.contains("rack 2 is gone"),
        "{explained}{err}"
    );
    let (code, _, err) = reopen(&["--force", "--yes"]);
    assert_eq!(code, Some(1));
    assert!(err.contains("there is nothing to force"), "{err}");
    ground.ends(last, &next);
    ground.is_over(&[1]);
}

/// Without succession, the other hosts of the order do not serve, though they are more than half of the group.
#[test]
fn succession_can_be_turned_off() {
    let ground = Ground::with("1:3", 3, ORDER, LONG_LEASE, SERVER_TIMEOUT);
    let conf = format!("{},succession=off", ground.conf);
    let (mut nodes, _) = ground.starts_with(&["--rdzv-conf", &conf], &[]);
    let last = give_up(&mut nodes[1..], "the server to answer again", || ground.kill(0));
    // No server is there at which anybody could overrule anything.
    name_the_remedy(&last, false);
    assert_eq!(ground.job.rounds().len(), 1);
    ground.is_over(&[1, 2]);
}
