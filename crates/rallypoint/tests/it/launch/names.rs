//! Hosts whose names mean one thing to themselves and another to the others.

use super::hosts::{Host, Network, address};
use super::{Job, Launcher};

fn launch(host: &Host, job: &Job, options: &[&str]) -> Launcher {
    let enter = host.enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    job.launcher().with(options).by(&enter).start()
}

/// Debian, Ubuntu and DGX OS have `127.0.1.1` for a host's own name.
#[test]
fn a_host_that_knows_its_own_name_by_loopback_is_reached_by_the_others() {
    let network = Network::new(2);
    let [head, other] = &network.hosts[..] else { unreachable!() };
    head.knows(&[("127.0.1.1", "node0"), (&address(1), "node1")]);
    other.knows(&[("127.0.1.1", "node1"), (&address(0), "node0")]);
    let job = Job::at("node0:29400", "2");
    let mut nodes =
        [launch(head, &job, &["--node-rank", "0"]), launch(other, &job, &["--node-rank", "1"])];
    let group = job.group(2);
    assert_eq!(group.workers[0].get("MASTER_ADDR"), address(0));
    group.tell("exit 0");
    for node in &mut nodes {
        node.ends_with(0);
    }
}

#[test]
fn a_host_with_several_addresses_that_cannot_tell_which_the_others_use_asks() {
    let network = Network::new(1);
    let head = &network.hosts[0];
    head.knows(&[("127.0.1.1", "node0")]);
    head.ip(&["address", "add", "10.78.0.5/24", "dev", "eth0"]);
    let job = Job::at("node0:29400", "2");
    let said = launch(head, &job, &[]).ends_with(1).stderr;
    for words in ["local_addr is missing", "node0", "10.77.0.11, 10.78.0.5"] {
        assert!(said.contains(words), "{said}");
    }
    let said = launch(head, &job, &["--local-addr", "10.78.0.5", "--dry-run"]).ends_with(0).stdout;
    assert!(said.contains("10.78.0.5"), "{said}");
}
