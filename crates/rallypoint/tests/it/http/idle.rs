//! A healthy group that idles writes nothing, also if it is observed.

use std::time::{Duration, Instant};

use super::{Metrics, get, told_address};
use crate::launch::{Job, Launcher, until, wait};
use crate::support::Embedded;

/// The time for which the group idles. Leases are renewed several times.
const WHILE: Duration = Duration::from_secs(6);

/// What a server has been asked, and what it has written.
#[derive(Debug, PartialEq)]
struct Asked {
    revision: f64,
    /// Calls, and streams that were begun, other than those that renew leases.
    calls: f64,
    leases: f64,
}

fn asked(server: &Embedded) -> (Asked, f64) {
    let metrics = Metrics::of(&server.address());
    let asked = Asked {
        revision: metrics.sum("etcd_debugging_mvcc_current_revision", &[]),
        calls: metrics.sum("grpc_server_started_total", &[])
            - metrics.sum("grpc_server_started_total", &["grpc_method=\"LeaseKeepAlive\""]),
        leases: metrics.sum("etcd_debugging_lease_granted_total", &[]),
    };
    (asked, metrics.sum("etcd_debugging_lease_renewed_total", &[]))
}

#[test]
fn an_idle_group_with_events_metrics_and_a_hang_watch_only_renews_its_leases() {
    let server = wait(Embedded::memory());
    let job = Job::with_conf(&server.address(), "3", "is_host=false,lease_ttl=3");
    let launch = || {
        let options = ["--http", "127.0.0.1:0", "--hang-after", "600", "--max-restarts", "3"];
        job.recorded().with(&options).start()
    };
    let mut nodes: Vec<Launcher> = (0..3).map(|_| launch()).collect();
    let group = job.group(3);
    let pages: Vec<String> = nodes
        .iter()
        .map(|node| until("the address of the pages", || told_address(&node.stderr())))
        .collect();
    let (before, renewed) = until("the group has settled", || {
        let (before, _) = asked(&server);
        std::thread::sleep(Duration::from_secs(1));
        Some(asked(&server)).filter(|(after, _)| *after == before)
    });
    let events = |node: usize| std::fs::metadata(job.events_of(node)).unwrap().len();
    let written: u64 = (0..3).map(events).sum();
    let begun = Instant::now();
    while begun.elapsed() < WHILE {
        pages.iter().for_each(|pages| assert_eq!(get(pages, "/metrics").code, 200));
        std::thread::sleep(Duration::from_millis(200));
    }
    let (after, still_renewed) = asked(&server);
    assert_eq!(after, before, "an idle group asks for nothing");
    assert!(still_renewed >= renewed + 6.0, "three nodes renewed {}", still_renewed - renewed);
    let more = (0..3).map(events).sum::<u64>() - written;
    assert_eq!(more, 0, "bytes of events of a group to which nothing happens");
    assert!(group.lives());
    group.tell("exit 0");
    nodes.iter_mut().for_each(|node| drop(node.ends_with(0)));
}
