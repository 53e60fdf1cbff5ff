//! One fault after another, on whatever host, in whatever way: every time all nodes are in one group again.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Ground, LEASE};
use crate::launch::Launcher;
use crate::launch::chaos::seed_and_steps;

const HOSTS: usize = 5;

#[test]
#[expect(clippy::print_stderr, reason = "a test that fails tells its story")]
fn a_job_survives_one_fault_after_another() {
    // A node stands still, the head is killed, and hosts are cut off from their peers twice.
    let (seed, steps) = seed_and_steps(38, 4);
    let mut random = fastrand::Rng::with_seed(seed);
    let ground = Ground::new("1:5", HOSTS);
    let (mut nodes, mut group) = ground.starts();
    for step in 0..steps {
        // Those who may serve are hit more often.
        let host = random.usize(..HOSTS).min(random.usize(..HOSTS));
        let other = (host + random.usize(1..HOSTS)) % HOSTS;
        let time =
            Duration::from_millis(random.u64(..2 * u64::try_from(LEASE.as_millis()).unwrap()));
        let fault = random.choice(["kill", "restart", "cut", "part", "stop"]).unwrap();
        eprintln!("step {step}: {fault} {host} (and {other}) for {time:?}");
        let begun = Instant::now();
        match fault {
            "kill" => {
                ground.kill(host);
                sleep(time);
                nodes[host] = ground.start(host);
            }
            "restart" => {
                nodes[host].kill();
                nodes[host] = ground.start(host);
            }
            "cut" => {
                ground.network.plug(host, "down");
                sleep(time);
                ground.network.plug(host, "up");
            }
            "part" => {
                ground.network.part(&[host, other]);
                sleep(time);
                ground.network.join(&[host, other]);
            }
            _ => {
                nodes[host].signal(Signal::STOP);
                sleep(time);
                nodes[host].signal(Signal::CONT);
            }
        }
        // A short fault may go unnoticed, or strike when its time is over: a group that lasts is one of all.
        let lasts = LEASE * 2;
        group = loop {
            let found = ground.job.group(HOSTS);
            let since = Instant::now();
            while found.lives() && since.elapsed() < lasts {
                sleep(Duration::from_millis(50));
            }
            if found.lives() {
                break found;
            }
        };
        assert!(group.launchers().into_iter().eq(sorted(&nodes)), "{group:?}");
        ground.had_one_group();
        eprintln!("round {} after {:.1?}", group.round, begun.elapsed());
    }
    ground.ends(&mut nodes, &group);
}

fn sorted(nodes: &[Launcher]) -> Vec<usize> {
    let mut numbers: Vec<usize> = nodes.iter().map(|node| node.number).collect();
    numbers.sort_unstable();
    numbers
}
