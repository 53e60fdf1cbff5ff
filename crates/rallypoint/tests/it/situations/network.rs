//! Names, addresses and ports between hosts.

use super::{assert_words, said};
use crate::doctor::{Diagnosis, Doctor};
use crate::launch::hosts::{Host, Network, address};
use crate::launch::{Job, Launcher, until};

fn doctor(host: &Host, endpoint: &str) -> Diagnosis {
    let options = ["--nnodes", "2", "--rdzv-endpoint", endpoint, "--rdzv-id", "job"];
    Doctor::new(&options).by(&host.enter()).finds()
}

fn launch(host: &Host, job: &Job, options: &[&str]) -> Launcher {
    let enter = host.enter();
    let enter: Vec<&str> = enter.iter().map(String::as_str).collect();
    job.launcher().with(options).by(&enter).start()
}

/// What a check of the doctor found that is not well.
fn finding(diagnosis: &Diagnosis, check: &str) -> String {
    let found = diagnosis.of(check).into_iter().filter(|(result, _)| result != "ok");
    found.map(|(result, words)| format!("{result}: {words}")).collect::<Vec<_>>().join("\n")
}

/// mlc-ai/pith-train#91
#[test]
fn each_node_meets_only_itself_by_localhost() {
    let network = Network::new(2);
    let job = Job::at("localhost:29400", "2");
    let nodes = [0, 1].map(|number| launch(&network.hosts[number], &job, &[]));
    for (number, node) in nodes.iter().enumerate() {
        assert_words(
            &said(node, "waiting: 1 of 2 nodes"),
            &format!(
                "waiting: 1 of 2 nodes, waiting for 1 more (N s, N s left); each host means itself by localhost, so \
                 name one in --rdzv-endpoint that all nodes reach, unless all of them are on this host; \
                 here: node{number}-…"
            ),
        );
    }
    assert_words(
        &finding(&doctor(&network.hosts[0], "localhost:29400"), "endpoint"),
        "fail: The endpoint is localhost and --nnodes is 2: every host would meet only itself. \
         Name a host that all nodes can reach in --rdzv-endpoint; 127.0.0.1, if all of them are on this host",
    );
}

/// pytorch#69197
#[test]
fn a_refused_endpoint_that_is_not_this_host() {
    let network = Network::new(2);
    let host = &network.hosts[1];
    host.knows(&[(&address(0), "head"), (&address(1), "node1")]);
    let job = Job::at("head:29400", "2");
    let node = launch(host, &job, &[]);
    assert_words(
        &said(&node, "no server answers"),
        "no server answers at head:29400: nothing listens there. The node that the endpoint (--rdzv-endpoint) names \
         has not started, or the port is another: tcp connect error: Connection refused (os error 111). \
         head is 10.77.0.11. This host is not it: its addresses are 10.77.0.12",
    );
    assert_words(
        &finding(&doctor(host, "head:29400"), "server"),
        "warn: head:29400 is 10.77.0.11. Refused: nothing listens there. This host is not it: its addresses are \
         10.77.0.12. Start the launcher on that host, for which a launcher here would wait; or correct --rdzv-endpoint",
    );
}

/// pytorch#64926
#[test]
fn the_wrong_interface() {
    let network = Network::new(2);
    let [head, other] = &network.hosts[..] else { unreachable!() };
    let endpoint = format!("{}:29400", address(0));
    // An interface to which no other host has a route.
    other.ip(&["address", "add", "10.99.0.5/32", "dev", "lo"]);
    let job = Job::at(&endpoint, "3");
    let _nodes = [launch(head, &job, &[]), launch(other, &job, &["--local-addr", "10.99.0.5"])];
    let found = until("both nodes are there", || {
        Some(finding(&doctor(head, &endpoint), "peers")).filter(|words| words.contains("node1"))
    });
    assert_words(
        &found,
        "fail: node1 says that it is at 10.99.0.5, and this host does not reach 10.99.0.5:PORT: no answer, so a \
         firewall rather than a dead process, or an address of another network. \
         Give --local-addr on node1 with an address that this host reaches, or let its ports pass",
    );
}

/// jax#35905
#[test]
fn a_dropped_port() {
    let network = Network::new(2);
    let host = &network.hosts[1];
    // Packets to that host go nowhere, without an answer.
    let nobody = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"];
    host.ip(&[&["neigh", "add", &address(0)], &nobody[..]].concat());
    let endpoint = format!("{}:29400", address(0));
    let job = Job::at(&endpoint, "2");
    let node = launch(host, &job, &[]);
    assert_words(
        &said(&node, "no server answers"),
        "no server answers at 10.77.0.11:29400: nothing comes back. The host that the endpoint (--rdzv-endpoint) \
         names is down, a firewall drops what is sent there, or another program has the port: no answer within N s. \
         No answer, so a firewall rather than a dead process. This host is not it: its addresses are 10.77.0.12",
    );
    assert_words(
        &finding(&doctor(host, &endpoint), "server"),
        "fail: 10.77.0.11:29400: No answer, so a firewall rather than a dead process: a host that is up refuses a \
         port on which nothing listens. This host is not it: its addresses are 10.77.0.12. \
         Let connections to that port pass; or correct --rdzv-endpoint, if that host is down",
    );
}
