//! Telling many of one change: how long until the last one knows, and what each costs.

use std::sync::Arc;
use std::time::Instant;

use rallypoint::proto::etcd as pb;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::Arm;
use crate::memory::resident;
use crate::report::{Better, Report};
use crate::support::wire;

/// Streams on one connection, so that a stream's cost is not hidden behind a connection's.
const STREAMS: usize = 100;
const ROUNDS: usize = 11;
const KEY: &str = "bench/watched";

pub(super) async fn fan_out(arm: &Arm, report: &mut Report) {
    for watchers in [1000, 10_000] {
        let before = resident(arm.process());
        let mut tasks = JoinSet::new();
        let heard = Arc::new(Semaphore::new(0));
        let (ready, mut is_ready) = mpsc::channel(watchers);
        let mut connections = Vec::new();
        for watcher in 0..watchers {
            if watcher % STREAMS == 0 {
                connections
                    .push(pb::watch_client::WatchClient::new(wire::channel(&arm.endpoint())));
            }
            let client = connections.last().unwrap().clone();
            tasks.spawn(listen(client, ready.clone(), heard.clone()));
        }
        for _ in 0..watchers {
            is_ready.recv().await.unwrap();
        }
        let bytes = resident(arm.process()).saturating_sub(before);
        let mut kv = wire::kv(&arm.endpoint());
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            kv.put(pb::PutRequest { key: KEY.into(), ..Default::default() }).await.unwrap();
            heard.acquire_many(watchers as u32).await.unwrap().forget();
            rounds.push(start.elapsed().as_secs_f64() * 1e3);
        }
        rounds.sort_by(f64::total_cmp);
        let row = format!("one put to {watchers} watchers, ms");
        report.add(&row, Better::Less, arm.name, rounds[ROUNDS / 2]);
        if watchers == 10_000 {
            let each = bytes as f64 / watchers as f64 / 1024.0;
            report.add("memory for a watcher, KiB", Better::Less, arm.name, each);
        }
        tasks.shutdown().await;
    }
}

async fn listen(
    mut client: pb::watch_client::WatchClient<tonic::transport::Channel>,
    ready: mpsc::Sender<()>,
    heard: Arc<Semaphore>,
) {
    let create = pb::WatchCreateRequest { key: KEY.into(), ..Default::default() };
    let request = pb::WatchRequest {
        request_union: Some(pb::watch_request::RequestUnion::CreateRequest(create)),
    };
    let requests = futures_util::StreamExt::chain(
        futures_util::stream::iter([request]),
        futures_util::stream::pending(),
    );
    let mut responses = client.watch(requests).await.unwrap().into_inner();
    while let Some(response) = responses.message().await.unwrap() {
        if response.created {
            ready.send(()).await.unwrap();
        }
        heard.add_permits(response.events.len());
    }
}
