//! Who has which rank, and under which address rank 0 is found.

use std::net::IpAddr;

use rallypoint::core::rendezvous::documents::{Active, NodeDocument, decode};
use rallypoint::core::rendezvous::ranks::RankPolicy;
use rallypoint::rendezvous::RendezvousHandler;

use super::{
    Node, Run, documents, enter, group, kill, meet, on_both, until_called, until_listed,
    until_spare, until_waits_for,
};
use crate::support::Embedded;

/// Stock 2.9 fails an assertion when another node becomes rank 0.
#[tokio::test]
async fn pytorch_182221_another_node_may_become_rank_0() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "182221", 2, 2);
        let addressed = async |last: u8| {
            run.node_with(|options| options.local_addr = Some(format!("127.0.0.{last}"))).await
        };
        let mut nodes: Vec<(u8, Node)> = vec![(1, addressed(1).await), (2, addressed(2).await)];
        meet(nodes.iter().map(|(_, node)| node)).await;
        for last in 3..6 {
            let spare = addressed(last).await;
            let waiting = enter(&spare);
            until_spare(&spare).await;
            // Rank 0 dies, and the spare takes its place.
            let leader = {
                let active = documents(&nodes[0].1).await;
                let key = nodes[0].1.keys().active();
                let active = active.iter().find(|kv| kv.key == key).unwrap();
                let active: Active = decode(&active.key, &active.value).unwrap();
                nodes.iter().position(|(_, node)| node.node_id() == active.rank0).unwrap()
            };
            kill(nodes.remove(leader).1);
            until_called(&nodes[0].1).await;
            let met = group([enter(&nodes[0].1), waiting]).await;
            nodes.push((last, spare));
            assert_eq!((met[0].rank, met[1].rank), (1, 0), "a spare takes the rank that is free");
            let expected = format!("127.0.0.{last}");
            assert_eq!(met[0].bootstrap_store_info.master_addr, expected);
        }
    })
    .await;
}

/// Stock publishes names, which must resolve everywhere, and replaces addresses that were given by names
/// (pytorch 85300).
#[tokio::test]
async fn pytorch_150532_85300_addresses_are_ip_addresses_unless_a_name_is_given() {
    let server = Embedded::memory().await;
    let run = Run::new(server.endpoint(), "150532", 1, 1);
    let node = run.node().await;
    let met = meet([&node]).await;
    let address: IpAddr = met[0].bootstrap_store_info.master_addr.parse().unwrap();
    assert!(address.is_loopback(), "the way to the server: {address}");
    let key = node.keys().node(node.node_id());
    let found = documents(&node).await.into_iter().find(|kv| kv.key == key).unwrap();
    let document: NodeDocument = decode(&found.key, &found.value).unwrap();
    assert_eq!(document.address.parse::<IpAddr>().unwrap(), address);
    node.leave().await;
    for given in ["127.0.0.77", "::1", "localhost", "behind-a-translated-address.example"] {
        let node = run.node_with(|options| options.local_addr = Some(given.to_owned())).await;
        let met = meet([&node]).await;
        assert_eq!(met[0].bootstrap_store_info.master_addr, given, "as it was given");
        node.leave().await;
    }
}

/// Stock sorts by host name or by arrival; `--node-rank` is ignored and rank 0 cannot be pinned.
#[tokio::test]
async fn pytorch_67615_99684_150660_182223_a_hint_gives_the_rank_and_keeps_it() {
    for policy in [RankPolicy::Hint, RankPolicy::Stable] {
        on_both(async |endpoint| {
            let mut run = Run::new(endpoint, "182223", 3, 4);
            run.options.rank_policy = policy;
            let hinted =
                async |rank: u32| run.node_with(|options| options.node_rank = Some(rank)).await;
            // The last rank comes first.
            let mut nodes = Vec::new();
            let mut meetings = Vec::new();
            for rank in (0..4).rev() {
                let node = hinted(rank).await;
                meetings.push(enter(&node));
                if rank == 3 {
                    until_waits_for(&node, "1 of 3 nodes").await;
                }
                nodes.push(node);
            }
            let met = group(meetings).await;
            assert!(met.iter().map(|info| info.rank).eq((0..4).rev()), "{met:?}");
            // Rank 2 is lost, and another node with its hint takes its place, whichever node opens the round.
            for opener in [0, 2] {
                kill(nodes.remove(1));
                for node in &nodes {
                    until_called(node).await;
                }
                let newcomer = hinted(2).await;
                let late = enter(&newcomer);
                until_listed(&newcomer).await;
                let first = enter(&nodes[opener]);
                let others = (0..3).filter(|index| *index != opener).map(|index| &nodes[index]);
                let mut meetings = vec![first];
                meetings.extend(others.map(enter));
                meetings.push(late);
                let met = group(meetings).await;
                assert_eq!(met.len(), 4);
                assert_eq!(met[0].rank, [3, 1, 0][opener]);
                assert_eq!(met[3].rank, 2, "{met:?}");
                nodes.insert(1, newcomer);
            }
        })
        .await;
    }
}

/// Without any hint, too, who has rank 0 keeps it as long as it lives.
#[tokio::test]
async fn pytorch_67615_rank_0_stays_where_it_is() {
    on_both(async |endpoint| {
        let run = Run::new(endpoint, "67615", 1, 4);
        let mut nodes = run.nodes(4).await;
        let met = meet(&nodes).await;
        let leader = met.iter().position(|info| info.rank == 0).unwrap();
        nodes.swap(0, leader);
        while nodes.len() > 1 {
            nodes.pop().unwrap().leave().await;
            for node in &nodes {
                until_called(node).await;
            }
            assert_eq!(meet(&nodes).await[0].rank, 0);
        }
        assert!(!nodes[0].is_closed().await.unwrap());
    })
    .await;
}
