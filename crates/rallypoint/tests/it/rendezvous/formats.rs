//! Versions beside each other: documents with fields that this version does not know, and documents of other formats.

use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::rendezvous::RendezvousHandler;
use serde_json::{Value, json};

use super::handlers::{handler, meet, met, options};
use super::{Observer, on_each_server};
use crate::support::hostile::eventually;

on_each_server!(
    a_field_that_another_version_added_is_kept,
    another_format_is_refused_by_naming_both,
    a_run_from_before_the_formats_is_named,
);

impl Observer {
    async fn raw(&self, key: String) -> (Value, i64) {
        let found = self.client.range(KeyRange::key(key)).await.unwrap();
        (serde_json::from_slice(&found.kvs[0].value).unwrap(), found.kvs[0].lease)
    }

    /// What a version that knows one more field writes.
    async fn add_field(&self, key: String) {
        let (mut document, lease) = self.raw(key.clone()).await;
        document["mood"] = json!({ "is": [1, "good"] });
        let put = Put::new(key, document.to_string()).on_lease(lease);
        self.client.put(put).await.unwrap();
    }
}

/// Seen: `rdzv/round` was guarded by the bytes that this version would write, so one more field made every node ask
/// again and again until its time was over.
async fn a_field_that_another_version_added_is_kept(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let first = handler(&endpoint, options(1, 2)).await;
    met(meet(&first)).await;
    let (active, round) = (observer.keys.active(), observer.keys.round());
    observer.add_field(active.clone()).await;
    observer.add_field(round.clone()).await;
    // A late node makes the coordinator write the document again, and then they meet.
    let second = handler(&endpoint, options(1, 2)).await;
    let late = meet(&second);
    eventually("the group is told", crate::rendezvous::node::PATIENCE, async || {
        first.num_nodes_waiting().await.unwrap() > 0
    })
    .await;
    let told = observer.raw(active).await.0;
    assert_eq!(told["mood"]["is"][1], "good", "{told}");
    let (again, late) = (met(meet(&first)).await, met(late).await);
    assert_eq!((again.round, late.round, late.world_size), (2, 2, 2));
    assert_eq!(observer.raw(round).await.0["mood"]["is"][1], "good");
}

async fn is_refused(endpoint: &str, document: &str, words: [&str; 2]) {
    let observer = Observer::new(endpoint).await;
    observer.client.put(Put::new(observer.keys.active(), document.to_owned())).await.unwrap();
    let node = handler(endpoint, options(1, 2)).await;
    let error = meet(&node).await.unwrap().unwrap_err().to_string();
    for word in words {
        assert!(error.contains(word), "{error}");
    }
}

async fn another_format_is_refused_by_naming_both(endpoint: String) {
    let later = r#"{"format":2,"round":{"number":7}}"#;
    is_refused(&endpoint, later, ["format 2", "format 1"]).await;
}

async fn a_run_from_before_the_formats_is_named(endpoint: String) {
    let old = r#"{"round":1,"status":"joinable","limits":{"min":1,"max":2},"rank_policy":"stable",
        "author":{"id":"a","address":"h"},"reason":"","frozen_because":"","began":0,"previous":0,"world":0,
        "leader":"","store":null,"waiting":0,"lost":0,"lost_names":[]}"#;
    is_refused(&endpoint, old, ["format 0", "another id"]).await;
}
