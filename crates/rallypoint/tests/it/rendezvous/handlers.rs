//! Handlers in this process: what becomes of a node whose rendezvous is dropped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rallypoint::client::ClientOptions;
use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::keys::Keys;
use rallypoint::rendezvous::{
    EtcdRendezvousHandler, HandlerOptions, RendezvousError, RendezvousHandler, RendezvousInfo,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::node::PATIENCE;
use super::{Observer, on_each_server};
use crate::support::hostile::eventually;

on_each_server!(
    a_dropped_rendezvous_takes_the_node_out,
    a_dropped_rendezvous_of_the_coordinator_makes_way_for_another,
    who_drops_a_rendezvous_may_begin_another_at_once,
    a_rendezvous_dropped_at_any_moment_leaves_nothing_behind,
    the_store_of_a_round_goes_with_it,
);

/// Long enough for nothing to lapse by itself while a test looks.
pub fn options(min: usize, max: usize) -> HandlerOptions {
    HandlerOptions::new("example", min, max).with(|options| {
        options.timeout = Duration::from_secs(40);
        options.last_call = Duration::from_secs(1);
        options.lease_ttl = Duration::from_secs(60);
    })
}

pub async fn handler(endpoint: &str, options: HandlerOptions) -> Arc<EtcdRendezvousHandler> {
    let client = ClientOptions::new([endpoint]);
    Arc::new(EtcdRendezvousHandler::open(client, options).await.unwrap())
}

pub type Meeting = JoinHandle<Result<RendezvousInfo, RendezvousError>>;

pub fn meet(handler: &Arc<EtcdRendezvousHandler>) -> Meeting {
    let handler = handler.clone();
    tokio::spawn(async move { handler.next_rendezvous().await })
}

pub async fn met(meeting: Meeting) -> RendezvousInfo {
    timeout(PATIENCE, meeting).await.expect("no group").unwrap().unwrap()
}

impl Observer {
    /// The nodes that have announced themselves.
    async fn nodes(&self) -> Vec<String> {
        let found = self.client.range(self.keys.nodes()).await.unwrap();
        found.kvs.iter().map(|kv| Keys::id_of(&kv.key).unwrap().to_owned()).collect()
    }

    /// Waits until a node is not announced any more.
    async fn gone(&self, node: &str) {
        let begun = Instant::now();
        while self.nodes().await.iter().any(|id| id == node) {
            assert!(begun.elapsed() < Duration::from_secs(10), "{node} is still there");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn a_dropped_rendezvous_takes_the_node_out(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let [first, second, third] = [0; 3].map(|_| handler(&endpoint, options(2, 3)));
    let (first, second, third) = (first.await, second.await, third.await);
    let meeting = meet(&first);
    observer.joined(1, 1).await;
    let dropped = meet(&second);
    observer.joined(1, 2).await;
    dropped.abort();
    observer.gone(second.node_id()).await;
    observer.joined(1, 1).await;
    let (one, two) = (met(meeting), met(meet(&third)));
    let (one, two) = tokio::join!(one, two);
    assert_eq!((one.round, one.world_size, two.world_size), (1, 2, 2));
}

async fn a_dropped_rendezvous_of_the_coordinator_makes_way_for_another(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let (first, second) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    let dropped = meet(&first);
    observer.joined(1, 1).await;
    dropped.abort();
    observer.gone(first.node_id()).await;
    assert_eq!(observer.active().await, None, "the round has no nodes");
    let meeting = meet(&second);
    observer.joined(2, 1).await;
    let (one, two) = tokio::join!(met(meet(&first)), met(meeting));
    assert_eq!((one.round, two.round), (2, 2));
}

async fn who_drops_a_rendezvous_may_begin_another_at_once(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let (first, second) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    for _ in 0..10 {
        let little = Duration::from_millis(fastrand::u64(0..20));
        assert!(timeout(little, first.next_rendezvous()).await.is_err());
    }
    let meeting = meet(&first);
    let (one, two) = tokio::join!(met(meeting), met(meet(&second)));
    assert_eq!((one.round, one.world_size), (two.round, 2));
    // Two at a time are one too many, and the first is not the worse for it.
    let meeting = meet(&first);
    observer.until("open again", |active| active.round > one.round).await;
    let refused = first.next_rendezvous().await.unwrap_err();
    assert!(refused.to_string().contains("already in progress"), "{refused}");
    let (one, two) = tokio::join!(met(meeting), met(meet(&second)));
    assert_eq!(one.round, two.round);
}

async fn a_rendezvous_dropped_at_any_moment_leaves_nothing_behind(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let (first, second) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    let mut in_time = 0;
    for _ in 0..60 {
        let meeting = meet(&first);
        let little = Duration::from_micros(fastrand::u64(0..15_000));
        match timeout(little, second.next_rendezvous()).await {
            Ok(formed) => {
                in_time += 1;
                assert_eq!(formed.unwrap().round, met(meeting).await.round);
            }
            Err(_) => {
                observer.gone(second.node_id()).await;
                assert_eq!(second.status().view.member_of, None);
                // If the group had formed nevertheless, the other member hears that it is alone.
                if meeting.is_finished() {
                    let mut changes = first.changes();
                    let told = changes.wait_for(|status| status.view.nodes_waiting > 0);
                    timeout(PATIENCE, told).await.expect("told").unwrap();
                }
                meeting.abort();
            }
        }
        first.leave().await;
        second.leave().await;
    }
    assert!(in_time < 60, "nothing was dropped");
    assert_eq!(observer.nodes().await, [""; 0]);
}

async fn the_store_of_a_round_goes_with_it(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let (first, second) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    let (one, two) = tokio::join!(met(meet(&first)), met(meet(&second)));
    one.store.set(b"a", "1".into()).await.unwrap();
    one.store.add(b"b", 3).await.unwrap();
    one.store.queue_push(b"c", "item".into()).await.unwrap();
    assert_eq!(two.store.multi_get(&[b"a", b"b"]).await.unwrap(), ["1", "3"]);
    let old = KeyRange::prefix(observer.keys.store(one.round));
    assert_eq!(observer.client.range(old.clone()).await.unwrap().count, 5);

    let (next, _) = tokio::join!(met(meet(&first)), met(meet(&second)));
    assert!(!next.store.check(&[b"a"]).await.unwrap());
    eventually("the old store is gone", PATIENCE, async || {
        observer.client.range(old.clone()).await.unwrap().count == 0
    })
    .await;
}
