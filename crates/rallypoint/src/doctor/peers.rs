//! The other nodes of the run, as its server lists them: ranks that two of them want, and addresses that this host does
//! not reach.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use rallypoint_core::kv::KeyRange;
use rallypoint_core::rendezvous::documents::{LivenessAddress, NodeDocument, decode};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::finding::Finding;
use super::obstacle::Obstacle;
use crate::client::{Client, ClientError};

const CHECK: &str = "peers";

/// How long a node may take to accept a connection.
const CONNECTION: Duration = Duration::from_millis(700);

/// The most nodes that are connected to, and the most that a sentence names.
const MOST_TRIED: usize = 128;
const MOST_NAMED: usize = 5;

/// A node of the run, and whether this host reaches it; nothing if that was not tried.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) node: NodeDocument,
    pub(super) reached: Option<io::Result<()>>,
}

/// Reads the nodes of the run, and connects to the liveness socket of each, which all of its processes hold.
///
/// # Errors
/// [`ClientError`] of the server.
pub(super) async fn measure(client: &Client, nodes: KeyRange) -> Result<Vec<Peer>, ClientError> {
    let found = client.range(nodes).await?;
    let nodes = found.kvs.iter().filter_map(|kv| decode::<NodeDocument>(&kv.key, &kv.value).ok());
    let peer = |(number, node): (usize, NodeDocument)| async move {
        let reached = match &node.liveness {
            Some(liveness) if number < MOST_TRIED => Some(connect(liveness).await),
            _ => None,
        };
        Peer { node, reached }
    };
    Ok(join_all(nodes.enumerate().map(peer)).await)
}

async fn connect(LivenessAddress { host, port, .. }: &LivenessAddress) -> io::Result<()> {
    let host = host.trim_matches(['[', ']']);
    match timeout(CONNECTION, TcpStream::connect((host, *port))).await {
        Ok(connected) => connected.map(drop),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Whether the nodes of the run can form a group with this one, whose rank is `own`.
pub(super) fn judge(peers: &[Peer], run_id: &str, own: Option<u32>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut by_rank: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    if let Some(rank) = own {
        by_rank.entry(rank).or_default().push("this node".to_owned());
    }
    for Peer { node, .. } in peers {
        if let Some(rank) = node.rank_hints.hint {
            by_rank.entry(rank).or_default().push(node.name().to_string());
        }
    }
    for (rank, nodes) in by_rank.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
        let names = nodes.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(" and ");
        found.push(Finding::fail(
            CHECK,
            format!("{names} say --node-rank {rank}."),
            "Give each node a rank of its own, or none. If the launcher of this host is among them, leave --node-rank out \
             here",
        ));
    }
    let unreached =
        peers.iter().filter_map(|Peer { node, reached }| match (reached, &node.liveness) {
            (Some(Err(error)), Some(liveness)) => Some((node, liveness, error)),
            _ => None,
        });
    for (node, LivenessAddress { host, port, .. }, error) in unreached.take(MOST_NAMED) {
        let why = match Obstacle::of_connection(error) {
            Obstacle::Silent => "no answer, so a firewall rather than a dead process, or an address of another network".to_owned(),
            Obstacle::Refused => "refused, so another host has that address, or a firewall rejects".to_owned(),
            _ => error.to_string(),
        };
        found.push(Finding::fail(
            CHECK,
            format!("{} says that it is at {host}, and this host does not reach {host}:{port}: {why}.", node.host),
            format!("Give --local-addr on {} with an address that this host reaches, or let its ports pass", node.host),
        ));
    }
    if found.is_empty() {
        let reached = peers.iter().filter(|peer| matches!(peer.reached, Some(Ok(())))).count();
        found.push(Finding::ok(
            CHECK,
            match peers.len() {
                0 => format!("No node of run {run_id:?} is there yet."),
                nodes => format!("Run {run_id:?} has {nodes} nodes, of which {reached} accept connections of this host."),
            },
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    fn peer(host: &str, rank: Option<u32>, reached: Option<io::ErrorKind>) -> Peer {
        let mut node = NodeDocument {
            id: format!("{host}-1"),
            host: host.to_owned(),
            address: "10.28.1.16".to_owned(),
            ..NodeDocument::default()
        };
        node.rank_hints.hint = rank;
        node.liveness =
            Some(LivenessAddress { host: node.address.clone(), port: 7, token: String::new() });
        Peer { node, reached: Some(reached.map_or(Ok(()), |kind| Err(kind.into()))) }
    }

    #[test]
    fn ranks_of_two_and_addresses_out_of_reach_are_named() {
        for (peers, own, verdict, words) in [
            (vec![], None, Verdict::Ok, "No node of run \"job\" is there yet."),
            (vec![peer("h1", None, None)], None, Verdict::Ok, "has 1 nodes, of which 1 accept"),
            (
                vec![peer("h1", Some(0), None), peer("h2", Some(1), None)],
                None,
                Verdict::Ok,
                "2 nodes",
            ),
            (
                vec![peer("h1", Some(0), None), peer("h2", Some(0), None)],
                None,
                Verdict::Fail,
                "say --node-rank 0.",
            ),
            (
                vec![peer("h1", Some(0), None)],
                Some(0),
                Verdict::Fail,
                "this node and node h1-1 (10.28.1.16) say --node-rank 0.",
            ),
            (
                vec![peer("h1", None, Some(io::ErrorKind::TimedOut))],
                None,
                Verdict::Fail,
                "h1 says that it is at 10.28.1.16, and this host does not reach 10.28.1.16:7: no answer",
            ),
            (
                vec![peer("h1", None, Some(io::ErrorKind::ConnectionRefused))],
                None,
                Verdict::Fail,
                "refused, so another host",
            ),
        ] {
            let found = judge(&peers, "job", own);
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].verdict, verdict, "{found:?}");
            assert!(found[0].message.contains(words), "{found:?}");
        }
        let many: Vec<Peer> =
            (0..20).map(|_| peer("h", None, Some(io::ErrorKind::TimedOut))).collect();
        assert_eq!(judge(&many, "job", None).len(), MOST_NAMED);
    }
}
