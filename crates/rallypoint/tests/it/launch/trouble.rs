//! Servers, pipes and descendants that do not do as they should.

use std::process::{Command, Stdio};

use super::{Job, Launcher, free_endpoint, until_listed, wait};
use crate::support::process::Process;
use crate::support::{Embedded, Etcd, Proxy, Version};

fn finish(job: &Job, nodes: &mut [Launcher], workers: usize) {
    job.group(workers).tell("exit 0");
    for node in nodes {
        node.ends_with(0);
    }
    job.nothing_is_left();
}

/// All nodes lose their sessions, and with them the right to run workers.
#[test]
fn a_server_that_stands_still_past_the_lease_stops_all_workers() {
    let mut server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "2", "lease_ttl=2,last_call_timeout=30");
    let order = "trap '' TERM";
    // They do not go by themselves, and would have the time.
    let node = |_| {
        let line = job.launcher().with(&["--shutdown-timeout", "600"]);
        line.program(&["sh", &job.file("worker.sh"), order]).start()
    };
    let mut nodes: Vec<Launcher> = (0..2).map(node).collect();
    let first = job.group(2);
    server.pause();
    for worker in &first.workers {
        worker.is_gone();
    }
    assert!(nodes.iter_mut().all(|node| !node.has_ended()));
    server.resume();
    let second = job.group_after(&first, 2);
    assert_eq!(second.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "0");
    finish(&job, &mut nodes, 2);
}

/// Leases are long enough, and the data are on disk. And no launcher takes the place of a server that was
/// started by hand, though it is on this host: its user will start it again.
#[test]
fn a_server_that_comes_back_in_time_causes_no_restart() {
    let mut server = wait(Embedded::disk());
    let mut etcd = wait(Etcd::start(Version::V3_5));
    for real in [false, true] {
        let address = if real { etcd.address() } else { server.address() };
        let job = Job::at(&address, "2:3");
        let mut nodes = job.launchers(3);
        let group = job.group(3);
        match real {
            true => etcd.kill(),
            false => server.kill(),
        }
        group.workers[0].does("sleep 0.5");
        match real {
            true => wait(etcd.restart()),
            false => wait(server.restart()),
        }
        group.does(":");
        // They still hear what happens: one leaves.
        let mut leaves = nodes.pop().unwrap();
        leaves.signal(rustix::process::Signal::TERM);
        leaves.ends_with(143);
        let second = job.group_after(&group, 2);
        assert_eq!(job.workers().len(), 5, "no worker was restarted before");
        assert_eq!(second.workers[0].get("TORCHELASTIC_RESTART_COUNT"), "0");
        finish(&job, &mut nodes, 2);
    }
}

/// A node that is done asks over and over again whether the other nodes are, and does not leave for want of an answer:
/// those who still work would be stopped for it.
#[test]
fn connections_that_break_at_the_exit_barrier_cause_no_failure() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let server = wait(Embedded::memory());
    let proxy = runtime.block_on(Proxy::start(server.address()));
    for done in [0, 1] {
        let job = Job::new(&[
            "--rdzv-endpoint",
            &proxy.address(),
            "--rdzv-id",
            &done.to_string(),
            "--nnodes",
            "2",
        ]);
        let mut nodes = job.launchers(2);
        let group = job.group(2);
        let (first, last) = (&group.workers[done], &group.workers[1 - done]);
        first.tell("exit 0");
        first.is_gone();
        for _ in 0..20 {
            proxy.sever();
            last.does("sleep 0.05");
        }
        assert!(nodes.iter_mut().all(|node| !node.has_ended()), "both are needed");
        last.tell("exit 0");
        for node in &mut nodes {
            node.ends_with(0);
        }
        assert_eq!(job.workers().len(), 2, "no worker was restarted");
    }
}

/// A launcher of a job that is over: it is unknown whether it is late, or means another job.
#[test]
fn who_comes_to_a_job_that_is_over_learns_how_it_ended() {
    let server = wait(Embedded::memory());
    let cases = [
        ("exit 0", 0, "all workers succeeded"),
        ("exit 7", 1, "exit code 7"),
        ("exit 78", 78, "exit code 78"),
    ];
    for (order, code, words) in cases {
        let id = code.to_string();
        let job = Job::new(&["--rdzv-endpoint", &server.address(), "--rdzv-id", &id]);
        let mut node = job.launch();
        job.group(1).tell(order);
        node.ends_with(code);
        until_listed(&server.address(), &id, 0);
        let said = job.launch().ends_with(1).stderr;
        assert!(said.contains(words) && said.contains("--rdzv-id"), "{said}");
        assert_eq!(job.workers().len(), 1, "nothing was run");
    }
}

/// The workers go on when their output is not read any more.
#[test]
fn output_that_is_not_read_is_no_failure() {
    let job = Job::new(&[]);
    let log = job.path().join("log");
    let script = format!(
        "'{}' run --tee 3 --log-dir /dev/null -- sh -c '
             n=0; while [ $n -lt 3000 ]; do echo $n; n=$((n + 1)); done; touch $JOB/done
         ' 2>&1 | head -n 1; exec true",
        env!("CARGO_BIN_EXE_rallypoint")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("JOB", job.path()).stdin(Stdio::null());
    let output = std::fs::File::create(&log).unwrap();
    shell.stdout(output.try_clone().unwrap()).stderr(output);
    let _shell = Process::of(&mut shell, vec![log]);
    super::until_true("the worker is done", || job.path().join("done").exists());
    job.nothing_is_left();
}

/// What has left the worker's group is not ours to stop, and is not waited for.
#[test]
fn a_descendant_that_holds_the_output_does_not_hold_up_the_launcher() {
    let job = Job::new(&["--tee", "3"]);
    let script = "setsid sh -c 'echo $$ > $JOB/stray; exec sleep 600' & while ! [ -s $JOB/stray ]; do sleep 0.02; done; echo last";
    let mut node = job.launcher().program(&["sh", "-c", script]).start();
    let ended = node.ends_with(0);
    assert_eq!(ended.stdout, "[default0]:last\n");
    let stray = std::fs::read_to_string(job.path().join("stray")).unwrap();
    let status = Command::new("kill").args(["-KILL", stray.trim()]).status().unwrap();
    assert!(status.success(), "it was left alone");
}

#[test]
fn many_workers() {
    let job = Job::at(&free_endpoint(), "2");
    let mut nodes: Vec<Launcher> =
        (0..2).map(|_| job.launch_with(&["--nproc-per-node", "32", "--redirects", "3"])).collect();
    let first = job.group(64);
    assert_eq!(first.workers[63].number("WORLD_SIZE"), 64);
    first.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
    super::until_true("nothing is left", || job.processes().is_empty());
}
