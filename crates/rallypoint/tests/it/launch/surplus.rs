//! More launchers than the job has room for.

use std::collections::BTreeSet;

use super::{Group, Job, Launcher, free_endpoint, host_of};

/// A job of two, with a third launcher that knows that it is one too many.
fn with_a_spare(job: &Job, endpoint: &str) -> (Vec<Launcher>, Group, Launcher) {
    let nodes = job.launchers(2);
    let group = job.group(2);
    host_of(&nodes, endpoint);
    let spare = job.launch();
    spare.says("a place to become free");
    (nodes, group, spare)
}

#[test]
fn d3_a_surplus_node_waits_disturbs_nobody_and_leaves_quietly() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let (mut nodes, group, mut spare) = with_a_spare(&job, &endpoint);
    assert!(group.lives() && !spare.has_ended());
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    let said = spare.ends_with(0).stderr;
    assert!(!said.contains("panic"), "{said}");
    assert_eq!(job.rounds(), BTreeSet::from([group.round]));
    job.nothing_is_left();
}

#[test]
fn d3_a_surplus_node_takes_the_place_of_one_that_dies() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", "lease_ttl=2,last_call_timeout=30");
    let (mut nodes, first, spare) = with_a_spare(&job, &endpoint);
    let host = host_of(&nodes, &endpoint);
    let mut dead = nodes.remove(1 - host);
    let rank = first.of(&dead)[0].rank;
    dead.kill();
    let second = job.group_after(&first, 2);
    assert_eq!(second.workers[rank].launcher(), spare.number, "it has the rank of the dead one");
    second.tell("exit 0");
    nodes.push(spare);
    for node in &mut nodes {
        node.ends_with(0);
    }
}
