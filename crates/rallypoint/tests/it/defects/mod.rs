//! What stock PyTorch and its peers got wrong about the rendezvous, one test for each, named after it.
//!
//! `d1` … `d12` are defects of stock PyTorch that were found by running or reading it; the other names are
//! issues: `pytorch_111646` is number 111646 of pytorch/pytorch, and `elastic`, `nvrx`, `dlrover`,
//! `kubeflow` and `awsome` stand for pytorch/elastic, NVIDIA/nvidia-resiliency-ext,
//! intelligent-machine-learning/dlrover, kubeflow/trainer and aws-samples/awsome-distributed-ai.
//!
//! Not here, because they are about the launcher, its workers or its logs: D5, D8, D9, D13,
//! pytorch 69520, 118891, 119856, 133877, 157318, 68258, the exit barrier and the shutdown time-outs; and
//! because they are about the store at MASTER_ADDR: pytorch 59872, 73320, 91940, 121944, 135712, 191989.

mod liveness;
mod membership;
mod ranks;
mod rounds;
mod spares;
mod stock;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rallypoint::client::ClientOptions;
use rallypoint::core::kv::{KeyRange, KeyValue};
use rallypoint::rendezvous::{
    EtcdRendezvousHandler, HandlerOptions, HandlerStatus, RendezvousError, RendezvousHandler,
    RendezvousInfo,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Embedded, Etcd, Version};

/// Longer than anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// The shortest that etcd can do.
pub(crate) const TTL: Duration = Duration::from_secs(2);

pub(crate) type Node = Arc<EtcdRendezvousHandler>;
pub(crate) type Meeting = JoinHandle<Result<RendezvousInfo, RendezvousError>>;

/// Runs `body` on our own server and on a real one.
pub(crate) async fn on_both(body: impl AsyncFn(String)) {
    let embedded = Embedded::memory().await;
    body(embedded.endpoint()).await;
    let etcd = Etcd::start(Version::V3_5).await;
    body(etcd.endpoint()).await;
}

/// What the nodes of one run have in common.
pub(crate) struct Run {
    pub(crate) endpoint: String,
    pub(crate) options: HandlerOptions,
}

impl Run {
    /// Last calls are long: a node that waits for one in vain takes too long.
    pub(crate) fn new(endpoint: impl Into<String>, run_id: &str, min: usize, max: usize) -> Self {
        let options = HandlerOptions::new(run_id, min, max).with(|options| {
            options.timeout = SOON;
            options.last_call = Duration::from_secs(30);
            options.lease_ttl = TTL;
        });
        Self { endpoint: endpoint.into(), options }
    }

    pub(crate) async fn node(&self) -> Node {
        self.node_with(|_| ()).await
    }

    pub(crate) async fn node_with(&self, change: impl FnOnce(&mut HandlerOptions)) -> Node {
        let mut options = self.options.clone();
        change(&mut options);
        let client = ClientOptions::new([self.endpoint.clone()]);
        Arc::new(EtcdRendezvousHandler::open(client, options).await.unwrap())
    }

    pub(crate) async fn nodes(&self, count: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(self.node().await);
        }
        nodes
    }
}

/// Lets a node meet in the background.
pub(crate) fn enter(node: &Node) -> Meeting {
    let node = node.clone();
    tokio::spawn(async move {
        timeout(SOON, node.next_rendezvous()).await.expect("a rendezvous that ends in time")
    })
}

/// Waits for the group that they all are in, and checks that it is one.
pub(crate) async fn group(meetings: impl IntoIterator<Item = Meeting>) -> Vec<RendezvousInfo> {
    let mut met = Vec::new();
    for meeting in meetings {
        met.push(meeting.await.unwrap().unwrap());
    }
    let ranks: BTreeSet<u32> = met.iter().map(|info| info.rank).collect();
    assert!(ranks.into_iter().eq(0..met.len() as u32), "each rank once: {met:?}");
    for info in &met {
        assert_eq!(info.world_size as usize, met.len());
        assert_eq!(info.round, met[0].round);
        assert_eq!(info.bootstrap_store_info, met[0].bootstrap_store_info);
    }
    met
}

/// Lets all of them meet.
pub(crate) async fn meet<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Vec<RendezvousInfo> {
    group(nodes.into_iter().map(enter).collect::<Vec<_>>()).await
}

/// Waits until a node's status is as wanted.
pub(crate) async fn until(
    node: &Node,
    wanted: impl FnMut(&HandlerStatus) -> bool,
) -> HandlerStatus {
    let mut changes = node.changes();
    let met = timeout(SOON, changes.wait_for(wanted)).await.map(|met| met.map(|it| it.clone()));
    match met {
        Ok(status) => status.expect("a handler that runs"),
        Err(_) => panic!("still {:?}", node.status()),
    }
}

/// Waits until a node waits for something that begins like this.
pub(crate) async fn until_waits_for(node: &Node, words: &str) {
    let begins = |text: &String| text.starts_with(words);
    until(node, |status| status.view.waits_for.as_ref().is_some_and(begins)).await;
}

/// Waits until a node is a spare.
pub(crate) async fn until_spare(node: &Node) {
    until_waits_for(node, "a place to become free").await;
}

/// Waits until other nodes can know of a node that has entered: a node that is not known is not waited for.
pub(crate) async fn until_listed(node: &Node) {
    let begun = Instant::now();
    let key = KeyRange::key(node.keys().node(node.node_id()));
    while node.client().range(key.clone()).await.unwrap().count == 0 {
        assert!(begun.elapsed() < SOON, "still unknown: {:?}", node.status());
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a member is told to meet again.
pub(crate) async fn until_called(node: &Node) -> HandlerStatus {
    until(node, |status| status.view.nodes_waiting > 0).await
}

/// The process of a member dies without a goodbye.
pub(crate) fn kill(node: Node) {
    assert_eq!(Arc::strong_count(&node), 1, "somebody still uses this node");
    drop(node);
}

/// All that lies below the run.
pub(crate) async fn documents(node: &Node) -> Vec<KeyValue> {
    node.client().range(KeyRange::prefix(node.keys().root().to_owned())).await.unwrap().kvs
}
