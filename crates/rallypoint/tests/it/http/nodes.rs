//! The pages of `rallypoint run`.

use super::{Metrics, get, get_with, told_address};
use crate::launch::{Job, Launcher, free_endpoint, until, until_true};

const HTTP: [&str; 2] = ["--http", "127.0.0.1:0"];

/// The address of a launcher's pages.
fn pages(launcher: &Launcher) -> String {
    until("the launcher names the address of its pages", || told_address(&launcher.stderr()))
}

#[test]
fn a_node_is_healthy_while_it_waits_and_ready_when_it_is_a_member() {
    let endpoint = free_endpoint();
    let job = Job::at(&endpoint, "2");
    let mut first = job.launch_with(&HTTP);
    let address = pages(&first);
    let waiting = until("the node waits for another", || {
        let page = get(&address, "/readyz");
        assert_eq!(page.code, 503);
        page.body.contains("1 of 2").then_some(page)
    });
    assert!(waiting.body.starts_with("no member of a group: "), "{waiting:?}");
    assert_eq!(get(&address, "/healthz").code, 200);
    // This node embeds the server.
    assert_eq!(Metrics::of(&address).sum("etcd_server_has_leader", &[]), 1.0);

    let mut second = job.launch_with(&HTTP);
    let group = job.group(2);
    assert_eq!(get(&address, "/readyz").code, 200);
    assert_eq!(get(&pages(&second), "/readyz").code, 200);
    let without_server = get(&pages(&second), "/metrics");
    assert!(without_server.body.contains("process_resident_memory_bytes"));
    assert!(!without_server.body.contains("etcd_server_has_leader"));
    second.kill();
    until_true("the node waits again", || get(&address, "/readyz").code == 503);
    assert_eq!(get(&address, "/healthz").code, 200);
    let mut third = job.launch_with(&HTTP);
    job.group_after(&group, 2).workers.iter().for_each(|worker| worker.tell("exit 0"));
    assert_eq!(first.ended().code, Some(0));
    assert_eq!(third.ended().code, Some(0));
}

#[test]
fn the_secret_of_the_job_opens_the_metrics() {
    let job = Job::new(&["--standalone"]);
    let line = job.launcher().with(&HTTP).env("RALLYPOINT_SECRET", "sesame");
    let mut launcher = line.start();
    let group = job.group(1);
    let address = pages(&launcher);
    assert_eq!(get(&address, "/readyz").code, 200);
    assert_eq!(get(&address, "/metrics").code, 401);
    let page = get_with(&address, "/metrics", "Authorization: Bearer sesame\r\n");
    assert_eq!(page.code, 200);
    group.workers.iter().for_each(|worker| worker.tell("exit 0"));
    assert_eq!(launcher.ended().code, Some(0));
}

#[test]
fn an_address_in_use_is_an_error_that_names_the_option() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let job = Job::new(&["--standalone", "--http", &address]);
    let ended = job.launch().ended();
    assert_eq!(ended.code, Some(1));
    let expected = format!(
        "cannot listen on {address}; --http, or http in --rdzv-conf, names another address"
    );
    assert!(ended.stderr.contains(&expected), "{}", ended.stderr);
}
