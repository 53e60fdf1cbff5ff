use rallypoint_core::agent::stacks::{Frame, WorkerStack};
use rallypoint_core::rendezvous::documents::Address;

use super::*;
use crate::store::HashStore;

fn stacks(host: &str, rank: u32, line: u32) -> NodeStacks {
    let frames = vec![Frame { function: "f".into(), file: "a.py".into(), line }];
    NodeStacks {
        host: host.into(),
        workers: vec![WorkerStack { rank, step: None, frames, note: None }],
    }
}

/// Of four nodes, one answers, one answers nonsense, and one is silent.
#[tokio::test]
async fn the_report_has_the_answers_and_names_who_is_missing() {
    let store = HashStore::default();
    let key = |rank| stacks_key(2, rank);
    store.set(key(1).as_bytes(), stacks("h1", 1, 7).encode().into()).await.unwrap();
    store.set(key(2).as_bytes(), "nonsense".into()).await.unwrap();
    let group = NodeGroup {
        round: 4,
        rank: 0,
        nodes: 4,
        restarts: 0,
        store: Address { host: "h0".into(), port: 1 },
    };
    let request = HangRequest { round: 4, number: 2, host: "h0".into(), millis: 1000 };
    let deadline = Instant::now() + Duration::from_secs(1);
    let report = gather(stacks("h0", 0, 7), &group, &store, &request, deadline).await.to_string();
    assert!(report.contains("2 ranks are in f (a.py:7)"), "{report}");
    assert!(report.contains("no answer from the nodes with the ranks 2-3"), "{report}");
}
