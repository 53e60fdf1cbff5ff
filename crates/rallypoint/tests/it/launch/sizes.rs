//! Groups that have only some sizes, that wait for planned nodes, and that do not grow too soon.

use std::collections::BTreeSet;

use super::{Group, Job, Launcher, free_endpoint, wait};
use crate::support::Embedded;

/// No lease expires, so a connection tells who is dead.
const SHORT_CALL: &str = "lease_ttl=600,last_call_timeout=1";

/// Nothing happens by time.
const LONG_CALL: &str = "lease_ttl=600,last_call_timeout=600";

fn launchers(job: &Job, count: usize, options: &[&str]) -> Vec<Launcher> {
    (0..count).map(|_| job.launch_with(options)).collect()
}

fn finish(group: &Group, nodes: &mut [Launcher]) {
    group.tell("exit 0");
    for node in nodes {
        node.ends_with(0);
    }
}

/// The one that the group has no place for.
fn spare<'a>(group: &Group, nodes: &'a [Launcher]) -> &'a Launcher {
    let members = group.launchers();
    let mut others = nodes.iter().filter(|node| !members.contains(&node.number));
    let spare = others.next().expect("a spare");
    assert!(others.next().is_none(), "{members:?}");
    spare
}

#[test]
fn a_job_grows_and_shrinks_by_units() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "2:8", SHORT_CALL);
    let unit = ["--node-unit", "2"];
    let mut nodes = launchers(&job, 3, &unit);
    let first = job.group(2);
    let waits = "a place to become free, or for 2 spares in all: round 1 has 2 nodes, and the next size is 4";
    spare(&first, &nodes).says(waits);
    spare(&first, &nodes).says("; sizes 2, 4, 6, 8");
    assert!(first.lives());
    assert_eq!(job.rounds(), BTreeSet::from([first.round]), "one more node is no larger group");

    nodes.push(job.launch_with(&unit));
    let second = job.group_after(&first, 4);

    let dead = second.workers[1].launcher();
    let mut dead = nodes.remove(nodes.iter().position(|node| node.number == dead).unwrap());
    dead.kill();
    let third = job.group_after(&second, 2);
    spare(&third, &nodes).says("round 3 has 2 nodes");
    assert_eq!(job.rounds().len(), 3);
    for worker in &third.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0");
    }
    finish(&third, &mut nodes);
    job.nothing_is_left();
}

#[test]
fn a_job_waits_for_its_smallest_size_and_is_full_at_its_largest() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "2:8", LONG_CALL);
    let sizes = ["--sizes", "5,3"];
    let mut nodes = launchers(&job, 2, &sizes);
    nodes[0].says("2 of 3 nodes, waiting for 1 more");
    nodes[0].says("; sizes 3, 5; here: ");
    nodes.extend(launchers(&job, 3, &sizes));
    finish(&job.group(5), &mut nodes);
    job.nothing_is_left();
}

#[test]
fn planned_nodes_are_waited_for_and_no_others() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "1:4", LONG_CALL);
    let planned = ["--planned", "2"];
    let mut nodes = launchers(&job, 1, &planned);
    nodes[0].says("1 of 2 planned nodes, ");
    nodes.push(job.launch_with(&planned));
    let first = job.group(2);
    // The group grows beyond its plan too.
    nodes.push(job.launch_with(&planned));
    let second = job.group_after(&first, 3);
    finish(&second, &mut nodes);
    job.nothing_is_left();
}

/// Who comes soon after a group has formed does not make it meet again. A failure does, and then they are in.
#[test]
fn a_group_does_not_grow_too_soon() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "1:3", LONG_CALL);
    let options = ["--planned", "1", "--scale-up-after", "600", "--max-restarts", "1"];
    let mut nodes = launchers(&job, 1, &options);
    let first = job.group(1);
    nodes.push(job.launch_with(&options));
    nodes[1].says("to make room, 600s after they formed their group or later (scale_up_after)");
    assert!(first.lives());
    first.workers[0].tell("exit 1");
    let second = job.group_after(&first, 2);
    assert_eq!(job.rounds().len(), 2);
    finish(&second, &mut nodes);
    job.nothing_is_left();
}

#[test]
fn a_group_grows_when_its_time_has_come() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "1:3", SHORT_CALL);
    let options = ["--scale-up-after", "2"];
    let mut nodes = launchers(&job, 1, &options);
    let first = job.group(1);
    nodes.push(job.launch_with(&options));
    finish(&job.group_after(&first, 2), &mut nodes);
    job.nothing_is_left();
}

#[test]
fn nodes_that_disagree_on_the_sizes_are_told() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "1:4", SHORT_CALL);
    let mut nodes = launchers(&job, 1, &["--node-unit", "1"]);
    let first = job.group(1);
    let said = job.launch_with(&["--sizes", "1,2"]).ends_with(1).stderr;
    assert!(said.contains("this node has sizes 1/2, but node "), "{said}");
    assert!(said.contains(" has none: give every node of run \"job\" the same"), "{said}");
    finish(&first, &mut nodes);
    job.nothing_is_left();
}
