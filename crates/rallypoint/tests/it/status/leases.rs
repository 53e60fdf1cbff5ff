//! The column LEASE: the margins of all nodes, and as they are now.

use std::process::{Command, Stdio};

use futures_util::{StreamExt, stream};
use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::Put;
use rallypoint::core::rendezvous::documents::{NodeDocument, encode};
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};
use rustix::process::Signal;

use super::Server;
use crate::launch::{Job, until, wait};
use crate::support::process::{Directory, Process};

/// What `status --watch` writes before it draws the run again.
const REDRAW: &str = "\x1b[H\x1b[J";

/// The time to live of the lease of the node that is suspended.
const TTL: u32 = 15;

/// Renewals change no key. A node that is suspended loses its margin before the eyes of an operator, and gets it back.
#[test]
fn a_watch_shows_how_the_margin_of_a_suspended_node_shrinks() {
    let server = Server::ours();
    let conf = format!("is_host=false,lease_ttl={TTL},last_call_timeout=1");
    let job = Job::with_conf(&server.address, "1", &conf);
    let mut node = job.launch();
    job.group(1);
    let directory = Directory::new();
    let path = directory.path().join("terminal");
    let line = server.command(&["status", "job", "--watch"], &[]);
    let line: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--flush", "--command", &format!("exec {}", line.join(" "))]);
    script.arg(&path).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let (_watch, _input) = Process::with_input(&mut script, vec![path.clone()]);
    let margin = || -> Option<u32> {
        let text = String::from_utf8_lossy(&std::fs::read(&path).ok()?).into_owned();
        // The last drawing may be incomplete.
        let drawn = |shown: &'_ str| shown.contains(&format!("/{TTL} s"));
        let shown = text.rsplit(REDRAW).find(|shown| drawn(shown))?;
        let (before, _) = shown.split_once(&format!("/{TTL} s"))?;
        assert!(before.contains("member"), "the lease has not expired: {shown}");
        before.rsplit(' ').next()?.parse().ok()
    };
    until("a whole margin", || margin().filter(|left| *left > TTL / 2));
    node.signal(Signal::STOP);
    until("half of the margin", || margin().filter(|left| *left <= TTL / 2));
    node.signal(Signal::CONT);
    until("a whole margin again", || margin().filter(|left| *left > TTL / 2));
}

/// None is left out in silence.
#[test]
fn each_of_four_thousand_nodes_has_its_margin() {
    const NODES: usize = 4096;
    let server = Server::ours();
    let keys = Keys::new(DEFAULT_PREFIX, "job");
    wait(async {
        let client = Client::connect(ClientOptions::new([&server.address])).await.unwrap();
        let (client, keys) = (&client, &keys);
        let register = |number: usize| async move {
            let lease = client.lease_grant(600, None).await.unwrap().id;
            let node = NodeDocument { id: format!("n{number}"), ..NodeDocument::default() };
            let put = Put::new(keys.node(&node.id), encode(&node)).on_lease(lease);
            client.put(put).await.unwrap();
        };
        stream::iter((0..NODES).map(register)).buffer_unordered(64).collect::<Vec<()>>().await;
    });
    let status = server.status();
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), NODES);
    let unknown: Vec<_> = nodes.iter().filter(|node| node["lease"]["ttl_s"] != 600).collect();
    assert!(unknown.is_empty(), "{} without a lease, such as {}", unknown.len(), unknown[0]);
}
