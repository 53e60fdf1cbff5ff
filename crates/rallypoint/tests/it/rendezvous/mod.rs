//! Nodes that meet: real processes on real servers, some of which are killed.
//!
//! Every scenario is one function of a server's endpoint, run on our own server and on real etcd.

mod agent_store;
mod closing;
mod coordinator;
mod edges;
mod faults;
mod formats;
mod handlers;
mod node;
mod processes;
mod requests;
mod second_sense;
mod servers;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rallypoint::client::Client;
use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::documents::Active;
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};

use self::node::{Node, PATIENCE, Place};
use crate::client::client;

/// More than any scenario needs on a busy machine; less than anyone would wait for.
const WHOLE: Duration = Duration::from_secs(150);

/// Runs scenarios on one kind of server, as tests of their own.
macro_rules! on_server {
    ($name:ident, $server:expr, $($scenario:ident),+) => {
        mod $name {
            $(#[tokio::test]
            async fn $scenario() {
                let server = $server.await;
                $crate::rendezvous::bounded(super::$scenario(server.endpoint())).await;
            })+
        }
    };
}

/// Runs scenarios on an etcd where a variable names one; elsewhere they do nothing.
macro_rules! on_newer_etcd {
    ($name:ident, $version:ident, $($scenario:ident),+) => {
        mod $name {
            $(#[tokio::test]
            async fn $scenario() {
                let version = $crate::support::Version::$version;
                if version.is_expected() {
                    let server = $crate::support::Etcd::start(version).await;
                    $crate::rendezvous::bounded(super::$scenario(server.endpoint())).await;
                }
            })+
        }
    };
}

/// Runs scenarios on our own server in memory and on real etcd.
macro_rules! on_each_server {
    ($($scenario:ident),+ $(,)?) => {
        $crate::rendezvous::on_server!(
            embedded, $crate::support::Embedded::memory(), $($scenario),+
        );
        $crate::rendezvous::on_server!(
            etcd_3_5, $crate::support::Etcd::start($crate::support::Version::V3_5), $($scenario),+
        );
        $crate::rendezvous::on_newer_etcd!(etcd_3_6, V3_6, $($scenario),+);
        $crate::rendezvous::on_newer_etcd!(etcd_3_7, V3_7, $($scenario),+);
    };
}

/// Runs scenarios on the oldest etcd that we promise to work with.
macro_rules! on_old_etcd {
    ($($scenario:ident),+ $(,)?) => {
        $crate::rendezvous::on_server!(
            etcd_3_4, $crate::support::Etcd::start($crate::support::Version::V3_4), $($scenario),+
        );
    };
}
pub(crate) use {on_each_server, on_newer_etcd, on_old_etcd, on_server};

/// Runs a scenario, but not for ever.
async fn bounded(scenario: impl Future<Output = ()>) {
    tokio::time::timeout(WHOLE, scenario).await.expect("the scenario takes too long");
}

/// Waits until all of these nodes, and no other, are in one group of a round after `after`. Their
/// places are in their own order.
async fn group(nodes: &mut [Node], after: u64) -> Vec<Place> {
    let begun = Instant::now();
    loop {
        let places: Vec<_> = nodes.iter_mut().filter_map(Node::place).collect();
        let round = places.first().map_or(0, |place| place.round);
        let world = nodes.len() as u64;
        let same = |place: &Place| place.round == round && place.world == world;
        if round > after && places.len() == nodes.len() && places.iter().all(same) {
            check(nodes);
            return places;
        }
        if begun.elapsed() > PATIENCE {
            let told: Vec<_> = nodes.iter_mut().map(|node| node.told().to_vec()).collect();
            panic!("no group of these {world} nodes after round {after}: {told:#?}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whatever happened: rounds only grow, and all who were in a round agree on it (invariants R1, R2).
fn check(nodes: &mut [Node]) {
    let mut rounds = BTreeMap::<u64, Vec<Place>>::new();
    for node in nodes {
        let places = node.places();
        assert!(places.is_sorted_by(|a, b| a.round < b.round), "{places:#?}");
        places.into_iter().for_each(|place| rounds.entry(place.round).or_default().push(place));
    }
    for places in rounds.values_mut() {
        places.sort();
        let first = &places[0];
        let agree = |place: &Place| (place.world, &place.master) == (first.world, &first.master);
        assert!(places.iter().all(agree), "{places:#?}");
        assert!(places.is_sorted_by(|a, b| a.rank < b.rank), "{places:#?}");
        assert!(places.iter().all(|place| place.rank < place.world), "{places:#?}");
    }
}

fn ranks(places: &[Place]) -> Vec<u64> {
    places.iter().map(|place| place.rank).collect()
}

/// Somebody who looks at the documents of a run from outside.
struct Observer {
    client: Client,
    keys: Keys,
}

impl Observer {
    /// Of the run that the nodes join unless they are told otherwise.
    async fn new(endpoint: &str) -> Self {
        Self { client: client([endpoint]).await, keys: Keys::new(DEFAULT_PREFIX, "example") }
    }

    async fn active(&self) -> Option<Active> {
        let found = self.client.range(KeyRange::key(self.keys.active())).await.unwrap();
        found.kvs.first().map(|kv| serde_json::from_slice(&kv.value).unwrap())
    }

    /// Waits until the document in force is like this.
    async fn until(&self, what: &str, like: impl Fn(&Active) -> bool) -> Active {
        let begun = Instant::now();
        loop {
            let active = self.active().await;
            if let Some(active) = active.clone().filter(&like) {
                return active;
            }
            assert!(begun.elapsed() < PATIENCE, "not {what}: {active:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until this number of nodes has joined a round.
    async fn joined(&self, round: u64, count: usize) {
        let begun = Instant::now();
        while self.client.range(self.keys.members(round)).await.unwrap().kvs.len() != count {
            assert!(begun.elapsed() < PATIENCE, "not {count} nodes in round {round}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// No node says that it disagrees.
    async fn no_node_objects(&self) {
        let found = self.client.range(self.keys.objectors()).await.unwrap();
        assert!(found.kvs.is_empty(), "{found:?}");
    }

    /// Which of the nodes coordinates the round.
    async fn coordinator(&self, nodes: &mut [Node]) -> usize {
        let author = self.active().await.expect("a round is in progress").coordinator.id;
        nodes.iter_mut().position(|node| node.id() == author).expect("it is one of these")
    }
}
