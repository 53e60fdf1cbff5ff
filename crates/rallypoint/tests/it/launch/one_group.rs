//! One group at a time, in the worlds where it is hardest: suspected nodes with slow workers, slow stops, launchers
//! that stand still, a server that lost its memory; and pauses after which no node took the place.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::documents::{Active, decode};
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rustix::process::{Pid, Signal, kill_process};

use super::{Group, Job, Launcher, Worker, free_endpoint, host_of, query, until_true, wait};
use crate::support::Embedded;

/// How long a group may take to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// The live workers, which are of one round at any time.
fn living(job: &Job) -> Vec<Worker> {
    let before = Instant::now();
    let mut living: Vec<Worker> = job.workers().into_iter().filter(Worker::lives).collect();
    let rounds: BTreeSet<u64> = living.iter().map(|worker| worker.round).collect();
    if rounds.len() > 1 {
        // One may have gone while the next was looked at.
        living.retain(Worker::lives);
        let rounds: BTreeSet<u64> = living.iter().map(|worker| worker.round).collect();
        assert!(rounds.len() <= 1, "workers of rounds {rounds:?} live beside each other");
    }
    assert!(before.elapsed() < PATIENCE);
    living
}

/// Waits for the group after this one. At no time are there workers of both.
fn next_group(job: &Job, before: &Group, workers: usize) -> Group {
    let begun = Instant::now();
    while living(job).iter().filter(|worker| worker.round > before.round).count() < workers {
        assert!(begun.elapsed() < PATIENCE, "no group of {workers} after round {}", before.round);
        sleep(Duration::from_millis(10));
    }
    job.group_after(before, workers)
}

fn finish(group: &Group, nodes: &mut [Launcher]) {
    group.tell("exit 0");
    for node in nodes {
        node.ends_with(0);
    }
}

/// What the final document says.
fn active(address: &str) -> Active {
    let key = Keys::new(DEFAULT_PREFIX, "job").active();
    let found = query(address, KeyRange::key(key));
    decode(&found.kvs[0].key, &found.kvs[0].value).unwrap()
}

/// The id of the node that this launcher is.
fn node_of(address: &str, launcher: &Launcher) -> String {
    let found = query(address, Keys::new(DEFAULT_PREFIX, "job").nodes());
    let mine = format!("-{}-", launcher.id());
    let ids = found.kvs.iter().map(|kv| Keys::id_of(&kv.key).unwrap().to_owned());
    ids.into_iter().find(|id| id.contains(&mine)).unwrap()
}

/// Rank 0 loses its connection to a member that lives: another comes in its name, with the token, and is reset.
fn suspect(address: &str, member: &str) {
    let store = active(address).store.unwrap();
    let mut stream = TcpStream::connect((store.address.host.as_str(), store.address.port)).unwrap();
    let own = stream.local_addr().unwrap().to_string();
    let string = |word: &str| [&(word.len() as u64).to_le_bytes(), word.as_bytes()].concat();
    let words: Vec<u8> =
        [member, &store.token, &own, "", ""].into_iter().flat_map(string).collect();
    let hello = [b"\x00\xce\xf7\x85\x3c\xe0".as_slice(), &words, &[0, 0]].concat();
    stream.write_all(&hello).unwrap();
    let _ = stream.read(&mut [0; 256]).unwrap();
}

/// Seen: 120 ms after a reset, a spare ran as rank 2 beside the live worker of that rank, which was saving its work.
#[test]
fn a_spare_does_not_run_beside_a_suspected_member_whose_worker_is_saving() {
    let server = wait(Embedded::memory());
    let address = server.address();
    let job = Job::with_conf(&address, "3", "last_call_timeout=30");
    let mut nodes = job.launchers(3);
    let first = job.group(3);
    nodes.push(job.launch());
    until_true("the spare is there", || {
        query(&address, Keys::new(DEFAULT_PREFIX, "job").spares()).kvs.len() == 1
    });
    let slow = &first.workers[2];
    slow.does("trap 'sleep 3; exit 0' TERM");
    suspect(&address, &node_of(&address, &nodes[slow.launcher()]));
    let second = next_group(&job, &first, 3);
    assert_eq!(second.launchers(), first.launchers(), "who lives keeps its place");
    finish(&second, &mut nodes);
}

/// Seen: with a last call of 5 s and a worker that took 15 s to end, two groups for the time in between.
#[test]
fn a_slow_stop_is_waited_for_however_short_the_last_call() {
    let server = wait(Embedded::memory());
    let conf = "last_call_timeout=0,lease_ttl=2";
    let job = Job::with_conf(&server.address(), "2:3", conf);
    let launch = || job.launch_with(&["--max-restarts", "3"]);
    // With no last call, those who come a moment later come into the next group.
    let mut nodes = vec![launch(), launch(), launch()];
    let first = job.group(3);
    first.workers[2].does("trap 'sleep 6; exit 0' TERM");
    first.workers[0].tell("kill -KILL $$");
    let second = next_group(&job, &first, 3);
    finish(&second, &mut nodes);
}

/// Seen: the workers of a launcher that stood still past its lease lived on beside the new group.
#[test]
fn a_launcher_that_stands_still_has_no_workers_when_others_take_its_place() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2:3", "lease_ttl=2,last_call_timeout=30");
    let mut nodes = job.launchers(3);
    let first = job.group(3);
    let still = (host_of(&nodes, &endpoint) + 1) % 3;
    let old = first.of(&nodes[still])[0].clone();
    nodes[still].signal(Signal::STOP);
    let second = next_group(&job, &first, 2);
    assert!(!old.lives());
    nodes[still].signal(Signal::CONT);
    let third = next_group(&job, &second, 3);
    for worker in &third.workers {
        assert_eq!(worker.get("TORCHELASTIC_RESTART_COUNT"), "0", "no worker has failed");
    }
    finish(&third, &mut nodes);
}

/// Seen: nodes carried their ranks into strangers' groups, and rounds began again.
#[test]
fn a_server_that_lost_its_memory_leads_to_one_group_of_a_later_round() {
    let mut server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "3", "lease_ttl=4,last_call_timeout=30");
    let mut nodes: Vec<Launcher> = (0..3).map(|_| job.recorded().start()).collect();
    let first = job.group(3);
    first.workers[1].does("trap 'sleep 2; exit 0' TERM");
    server.kill();
    wait(server.restart());
    let second = next_group(&job, &first, 3);
    assert_eq!(second.launchers(), first.launchers());
    finish(&second, &mut nodes);
    job.replays(3, |_| true);
}

/// Waits until this number of workers runs that are not of this group. None of its own do then.
fn group_of_others(job: &Job, before: &Group, workers: usize) -> Vec<Worker> {
    let begun = Instant::now();
    loop {
        let living = job.workers().into_iter().filter(Worker::lives);
        let (old, new): (Vec<_>, Vec<_>) =
            living.partition(|worker| before.pids().contains(&worker.pid));
        // One may have gone while the next was looked at.
        let both = !new.is_empty() && old.iter().any(Worker::lives);
        assert!(!both, "{new:?} run beside {old:?}");
        if new.len() == workers {
            return new;
        }
        assert!(begun.elapsed() < PATIENCE, "no other group of {workers}");
        sleep(Duration::from_millis(10));
    }
}

/// Seen: a server in memory is killed, another comes, and nodes that never heard of the group form one of their own
/// on it, while the workers of the old one are still to find out, or save their work.
#[test]
fn new_nodes_on_a_server_that_lost_its_memory_wait_for_the_group_that_they_do_not_know() {
    let mut server = wait(Embedded::memory());
    let conf = "is_host=false,lease_ttl=6,last_call_timeout=30";
    let job = Job::with_conf(&server.address(), "2", conf);
    let mut old = job.launchers(2);
    let first = job.group(2);
    first.does("trap 'sleep 3; exit 0' TERM");
    server.kill();
    sleep(Duration::from_secs(1));
    let mut new = job.launchers(2);
    sleep(Duration::from_millis(300));
    wait(server.restart());
    let second = group_of_others(&job, &first, 2);
    second.iter().for_each(|worker| worker.tell("exit 0"));
    for node in old.iter_mut().chain(&mut new) {
        node.ends_with(0);
    }
}

/// The same where the server is a launcher's, which is started again with a new node beside it.
#[test]
fn a_launcher_with_the_server_that_is_started_again_waits_for_the_group_that_it_does_not_know() {
    let endpoint = free_endpoint();
    let job = Job::with_conf(&endpoint, "2", "lease_ttl=6,last_call_timeout=30");
    let node = |serves: bool| {
        let conf = format!("is_host={serves},lease_ttl=6,last_call_timeout=30");
        job.launch_with(&["--rdzv-conf", &conf])
    };
    let (mut head, mut member) = (node(true), node(false));
    let first = job.group(2);
    first.of(&member)[0].does("trap 'sleep 3; exit 0' TERM");
    head.kill();
    sleep(Duration::from_millis(500));
    let (mut again, mut new) = (node(true), node(false));
    let second = group_of_others(&job, &first, 2);
    second.iter().for_each(|worker| worker.tell("exit 0"));
    for node in [&mut member, &mut again, &mut new] {
        node.ends_with(0);
    }
}

/// Seen: the server comes back from its directory when the leases are over for the nodes, but not for itself, and the
/// nodes wait for what they said under those leases.
#[test]
fn nodes_whose_sessions_ended_while_the_server_was_away_do_not_wait_for_themselves() {
    let mut server = wait(Embedded::disk());
    let job = Job::with_conf(&server.address(), "2", "lease_ttl=10,last_call_timeout=30");
    let mut nodes = job.launchers(2);
    let first = job.group(2);
    server.kill();
    until_true("their workers are gone", || living(&job).is_empty());
    sleep(Duration::from_secs(2));
    wait(server.restart());
    let begun = Instant::now();
    let second = next_group(&job, &first, 2);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    finish(&second, &mut nodes);
}

/// All processes of a job: its launchers, their guards and the workers.
fn signal_all(job: &Job, signal: Signal) {
    for process in job.processes() {
        let pid = Pid::from_raw(process.try_into().unwrap()).unwrap();
        // Some may have ended by themselves.
        let _ = kill_process(pid, signal);
    }
}

/// All of them stand still for longer than a lease of 2 s, and have time to find out about it.
fn sleep_past_the_lease(job: &Job) {
    signal_all(job, Signal::STOP);
    sleep(Duration::from_secs(5));
    signal_all(job, Signal::CONT);
    sleep(Duration::from_secs(3));
}

/// Seen: launcher and worker stopped for longer than the lease, and the worker was killed, though nobody could have
/// taken its place.
#[test]
fn a_pause_of_a_job_on_one_node_costs_nothing() {
    let job = Job::new(&["--standalone", "--rdzv-conf", "lease_ttl=2"]);
    let mut node = job.launch();
    let group = job.group(1);
    sleep_past_the_lease(&job);
    assert!(group.lives());
    group.does("touch $JOB/still-there");
    assert_eq!(job.rounds(), BTreeSet::from([group.round]));
    group.tell("exit 0");
    node.ends_with(0);
    job.nothing_is_left();
}

/// The same for a whole node whose server is elsewhere: it asks first whether the round has moved.
#[test]
fn a_pause_of_a_node_whose_place_was_not_taken_costs_nothing() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "1:2", "lease_ttl=2,last_call_timeout=0");
    let mut node = job.launch();
    let group = job.group(1);
    sleep_past_the_lease(&job);
    assert!(group.lives(), "{}", node.stderr());
    assert_eq!(job.rounds(), BTreeSet::from([group.round]));
    group.tell("exit 0");
    node.ends_with(0);
    job.nothing_is_left();
}
