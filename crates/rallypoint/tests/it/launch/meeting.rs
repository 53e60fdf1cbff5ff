//! Four launchers on one machine, with one command line and no server.

use std::collections::BTreeSet;

use super::{Job, Launcher, free_endpoint, host, host_of, until, wait};
use crate::support::embedded::Embedded;

#[test]
fn four_launchers_meet_without_a_server_started_by_hand() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "4");
    let mut nodes = (0..4).map(|_| job.launch_with(&["--nproc-per-node", "2"])).collect::<Vec<_>>();
    let group = job.group(8);
    assert!(group.launchers().into_iter().eq(0..4));
    for worker in &group.workers {
        assert_eq!(worker.number("GROUP_RANK") * 2 + worker.number("LOCAL_RANK"), worker.rank);
        assert_eq!((worker.get("LOCAL_WORLD_SIZE"), worker.get("GROUP_WORLD_SIZE")), ("2", "4"));
        assert_eq!(worker.get("TORCHELASTIC_RUN_ID"), "job");
    }
    host_of(&nodes, &endpoint);
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    assert_eq!(job.rounds(), BTreeSet::from([group.round]), "no worker was restarted");
    job.nothing_is_left();
}

/// The budget is the job's: the second failure, on another node, is one too many.
#[test]
fn a_killed_worker_restarts_all_and_the_second_ends_the_job() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "4");
    let mut nodes = (0..4).map(|_| job.launch_with(&["--max-restarts", "1"])).collect::<Vec<_>>();
    let first = job.group(4);
    first.workers[2].tell("kill -KILL $$");
    let second = job.group_after(&first, 4);
    assert_eq!(second.launchers().len(), 4);
    for (before, after) in first.workers.iter().zip(&second.workers) {
        assert_eq!((before.attempt, after.attempt), (0, 1));
        assert_eq!(before.launcher(), after.launcher(), "everyone keeps its rank");
        let restarts = |of: &super::Worker| of.number("TORCHELASTIC_RESTART_COUNT");
        assert_eq!((restarts(before), restarts(after)), (0, 1));
        assert_eq!(after.get("TORCHELASTIC_MAX_RESTARTS"), "1");
    }
    second.workers[1].tell("kill -SEGV $$");
    for node in &mut nodes {
        let said = node.ends_with(1).stderr;
        for word in [&host(), "rank 1", "SIGSEGV"] {
            assert!(said.contains(word), "launcher {} does not say {word}", node.number);
        }
    }
    assert_eq!(job.rounds(), BTreeSet::from([first.round, second.round]));
    job.nothing_is_left();
}

/// One cause often makes workers of several nodes fail: that is one restart.
#[test]
fn failures_of_one_round_use_one_restart() {
    let job = Job::at(&free_endpoint(), "3");
    let mut nodes = (0..3).map(|_| job.launch_with(&["--max-restarts", "2"])).collect::<Vec<_>>();
    let first = job.group(3);
    first.tell("exit 3");
    let second = job.group_after(&first, 3);
    assert!(second.workers.iter().all(|worker| worker.get("TORCHELASTIC_RESTART_COUNT") == "1"));
    second.workers[0].tell("exit 3");
    let third = job.group_after(&second, 3);
    third.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// Each of them has its own files, and the last is what is reported.
#[test]
fn a_worker_that_always_fails_is_restarted_as_often_as_allowed() {
    let job = Job::new(&["--max-restarts", "3", "--redirects", "1"]);
    let logs = job.file("logs");
    let script = "echo attempt $RALLYPOINT_ATTEMPT of $TORCHELASTIC_RESTART_COUNT; exit 3";
    let line = job.launcher().with(&["--log-dir", &logs]).program(&["sh", "-c", script]);
    let said = line.start().ends_with(1).stderr;
    assert!(said.contains("exit code 3") && said.contains("all 3 restarts were used"), "{said}");
    let mut rounds = Vec::new();
    let run = std::fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path().join(host());
    for round in std::fs::read_dir(&run).unwrap() {
        rounds.push(round.unwrap().path());
    }
    rounds.sort();
    assert_eq!(rounds.len(), 4);
    for (attempt, round) in rounds.iter().enumerate() {
        let log = round.join("rank_0/stdout.log");
        let text = std::fs::read_to_string(log).unwrap();
        assert_eq!(text, format!("attempt {attempt} of {attempt}\n"));
    }
}

/// The member waits until another node is there.
#[test]
fn a_server_may_be_late() {
    let endpoint = free_endpoint();
    let conf = |is_host: &str| format!("lease_ttl=30,is_host={is_host}");
    let job = Job::new(&["--nnodes", "2", "--rdzv-endpoint", &endpoint, "--rdzv-id", "job"]);
    let mut early = job.launch_with(&["--rdzv-conf", &conf("false")]);
    early.says(&endpoint);
    assert!(!early.has_ended());
    let mut late = job.launch_with(&["--rdzv-conf", &conf("true")]);
    let group = job.group(2);
    assert_eq!(host_of(std::slice::from_ref(&late), &endpoint), 0);
    group.tell("exit 0");
    early.ends_with(0);
    late.ends_with(0);
}

/// Every wait says what it is waiting for, and its end says what did not come.
#[test]
fn who_waits_in_vain_says_for_whom() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "3", "timeout=1");
    let said = job.launch().ends_with(1).stderr;
    assert!(said.contains("1 of at least 3 nodes"), "{said}");
    assert!(job.workers().is_empty());
    // And where there is no server at all.
    let nowhere = free_endpoint();
    let job = Job::with_conf(&nowhere, "2", "timeout=1,is_host=false");
    let said = job.launch().ends_with(1).stderr;
    assert!(said.contains(&nowhere), "it says where it looked");
}

/// Seen: only the node that began the round knew who was missing, and that is one of many logs.
#[test]
fn every_node_that_waits_says_which_are_missing() {
    let job = Job::at(&free_endpoint(), "4");
    let launch = |rank: &&str| job.launch_with(&["--node-rank", rank]);
    let mut nodes: Vec<Launcher> = ["0", "1", "3"].iter().map(launch).collect();
    for node in &nodes {
        node.says_soon("node ranks missing: 2");
    }
    nodes.push(job.launch_with(&["--node-rank", "2"]));
    job.group(4).tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

/// Otherwise one of them would be disturbed by the end of the other, or would have to wait for it.
#[test]
fn a_second_job_at_the_endpoint_of_another_is_refused() {
    let endpoint = free_endpoint();
    let [one, other] = ["one", "other"].map(|id| Job::at(&endpoint, "2").named(id));
    let mut nodes = one.launchers(2);
    let group = one.group(2);
    let said = other.launch().ends_with(1).stderr;
    assert!(said.contains("is that of run \"one\""), "{said}");
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    assert_eq!(one.workers().len(), 2, "no worker was restarted");
}

#[test]
fn two_jobs_share_a_server_and_nothing_else() {
    let server = wait(Embedded::memory());
    let jobs = ["one", "two"].map(|id| Job::at(&server.address(), "2").named(id));
    let mut nodes: Vec<_> = jobs.iter().flat_map(|job| job.launchers(2)).collect();
    let groups = jobs.each_ref().map(|job| job.group(2));
    assert_eq!(groups[0].workers[0].get("TORCHELASTIC_RUN_ID"), "one");
    assert_eq!(groups[1].workers[0].get("TORCHELASTIC_RUN_ID"), "two");
    groups[0].tell("exit 0");
    for node in &mut nodes[..2] {
        node.ends_with(0);
    }
    groups[1].does("sleep 1");
    groups[1].tell("exit 0");
    for node in &mut nodes[2..] {
        node.ends_with(0);
    }
    for job in &jobs {
        assert_eq!(job.workers().len(), 2, "no worker was restarted");
        until("nothing is left", || job.processes().is_empty().then_some(()));
    }
}

#[test]
fn nodes_that_disagree_about_their_number_are_told() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2:3");
    let mut first = job.launch();
    first.says("1 of 2 nodes");
    let odd = Job::at(&endpoint, "2:4");
    let said = odd.launch().ends_with(1).stderr;
    for words in ["2:3", "2:4"] {
        let spelt = words.replace(':', " to ");
        assert!(said.contains(words) || said.contains(&spelt), "it does not say {words}");
    }
    // The job itself does not mind.
    assert!(!first.has_ended());
    let mut others = job.launchers(2);
    job.group(3).tell("exit 0");
    first.ends_with(0);
    for other in &mut others {
        other.ends_with(0);
    }
}

#[test]
fn a_misconfigured_launcher_that_comes_first_fails_and_other_nodes_run() {
    let endpoint = free_endpoint();
    let odd = Job::at(&endpoint, "4");
    let mut wrong = odd.launch();
    wrong.says("1 of 4 nodes");
    let job = Job::at(&endpoint, "3");
    let mut nodes = job.launchers(3);
    let group = job.group(3);
    assert_eq!(group.workers[0].number("WORLD_SIZE"), 3);
    // It runs the server, and stays for the other nodes; what it did wrong it says at once.
    wrong.says("this node has min:max nodes 4:4, but node");
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    wrong.ends_with(1);
}

#[test]
fn a_log_says_how_much_of_the_last_call_is_left_and_not_how_much_was() {
    const LAST_CALL: u64 = 14;
    let conf = format!("last_call_timeout={LAST_CALL}");
    let job = Job::with_conf(&free_endpoint(), "1:2", &conf);
    let mut node = job.launch();
    job.group(1).tell("exit 0");
    let said = node.ends_with(0).stderr;
    let between = |line: &str, start: &str, end: &str| -> Option<u64> {
        line.split_once(start)?.1.split_once(end)?.0.trim().parse().ok()
    };
    let lines: Vec<(u64, u64)> = said
        .lines()
        .filter_map(|line| {
            Some((between(line, "1 of 2 nodes, ", " s of last")?, between(line, "nodes) (", " s")?))
        })
        .collect();
    assert!(lines.len() >= 2, "{said}");
    for (left, waited) in lines {
        assert!(
            (LAST_CALL - 2..=LAST_CALL + 2).contains(&(left + waited)),
            "{left} {waited}: {said}"
        );
    }
}
