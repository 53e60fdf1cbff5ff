//! What the clients were told, and whether the server still says so.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use rallypoint::proto::etcd as pb;
use tonic::{Status, Streaming};

use super::revision;
use super::writer::TTL;
use crate::support::wire;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    pub(super) key: String,
    /// `None` for a deletion.
    pub(super) value: Option<String>,
    pub(super) lease: i64,
}

#[derive(Debug, Default)]
pub(super) struct Truth {
    /// What clients were told that they did, by revision.
    acknowledged: BTreeMap<i64, Vec<Change>>,
    /// What a watch told before a kill.
    seen: BTreeMap<i64, Vec<Change>>,
    /// What the server said after the last restart that had ever happened.
    history: BTreeMap<i64, Vec<Change>>,
    /// The newest revision that anyone heard of.
    newest: i64,
    /// Every value that anyone tried to write.
    pub(super) attempted: HashSet<String>,
    pub(super) leases: BTreeSet<i64>,
    pub(super) revoked: BTreeSet<i64>,
}

impl Truth {
    pub(super) fn acknowledge(&mut self, revision: i64, changes: Vec<Change>) {
        self.newest = self.newest.max(revision);
        if !changes.is_empty() {
            let before = self.acknowledged.insert(revision, changes);
            assert_eq!(before, None, "revision {revision} was given out twice");
        }
    }

    pub(super) fn saw(&mut self, response: &pb::WatchResponse) {
        for event in &response.events {
            let (revision, change) = change(event);
            self.newest = self.newest.max(revision);
            self.seen.entry(revision).or_default().push(change);
        }
    }

    /// The last revision that was checked.
    pub(super) fn end(&self) -> i64 {
        self.history.last_key_value().map_or(1, |(revision, _)| *revision)
    }

    /// The pairs that the history leads to, with the revision of each.
    fn state(&self) -> BTreeMap<String, (i64, Change)> {
        let mut state = BTreeMap::new();
        for (revision, changes) in &self.history {
            for change in changes {
                match change.value {
                    Some(_) => state.insert(change.key.clone(), (*revision, change.clone())),
                    None => state.remove(&change.key),
                };
            }
        }
        state
    }

    /// Takes what a watch from `from` replayed as what happened.
    fn compare(&mut self, from: i64, replayed: BTreeMap<i64, Vec<Change>>) {
        for (revision, changes) in self.history.range(from..) {
            assert_eq!(
                replayed.get(revision),
                Some(changes),
                "revision {revision} is not the same"
            );
        }
        self.history.extend(replayed);
        let expected: Vec<i64> = (2..=self.end()).collect();
        assert!(self.history.keys().eq(&expected), "there is a gap in the revisions");
        for (revision, changes) in self.acknowledged.iter().chain(&self.seen) {
            let happened = self.history.get(revision);
            assert_eq!(happened, Some(changes), "what was told of revision {revision} is not so");
        }
        for value in self.history.values().flatten().filter_map(|change| change.value.as_ref()) {
            assert!(self.attempted.contains(value), "no writer wrote {value}");
        }
    }
}

fn change(event: &pb::Event) -> (i64, Change) {
    let kv = event.kv.as_ref().unwrap();
    let deleted = event.r#type() == pb::event::EventType::Delete;
    let value = (!deleted).then(|| String::from_utf8(kv.value.to_vec()).unwrap());
    let key = String::from_utf8(kv.key.to_vec()).unwrap();
    (kv.mod_revision, Change { key, value, lease: kv.lease })
}

/// Watches every key from a revision on.
pub(super) async fn replay(
    endpoint: &str,
    start_revision: i64,
) -> Result<Streaming<pb::WatchResponse>, Status> {
    let create = pb::WatchCreateRequest {
        key: vec![0].into(),
        range_end: vec![0].into(),
        start_revision,
        ..Default::default()
    };
    let union = Some(pb::watch_request::RequestUnion::CreateRequest(create));
    let request = pb::WatchRequest { request_union: union };
    // The stream goes on for as long as the client does not end it.
    let requests = futures_util::StreamExt::chain(
        futures_util::stream::iter([request]),
        futures_util::stream::pending(),
    );
    let mut client = pb::watch_client::WatchClient::new(wire::channel(endpoint));
    Ok(client.watch(requests).await?.into_inner())
}

/// Asks a server that has just been restarted for everything, a watch from revision `from` included.
pub(super) async fn check(
    endpoint: &str,
    truth: &Mutex<Truth>,
    from: i64,
    random: &mut fastrand::Rng,
) {
    let all =
        pb::RangeRequest { key: vec![0].into(), range_end: vec![0].into(), ..Default::default() };
    let answer = wire::kv(endpoint).range(all).await.unwrap().into_inner();
    let now = revision(answer.header);

    let mut replayed: BTreeMap<i64, Vec<Change>> = BTreeMap::new();
    let mut events = replay(endpoint, from).await.unwrap();
    while replayed.last_key_value().map_or(from - 1, |(revision, _)| *revision) < now.max(2) {
        if now == 1 {
            break;
        }
        let next = tokio::time::timeout(Duration::from_secs(10), events.message()).await;
        let response = next.expect("the replay stopped").unwrap().unwrap();
        assert!(!response.canceled, "{response:?}");
        for (revision, change) in response.events.iter().map(change) {
            replayed.entry(revision).or_default().push(change);
        }
    }

    let (state, leases, revoked) = {
        let mut truth = truth.lock().unwrap();
        assert!(now >= truth.newest, "the revision went back from {} to {now}", truth.newest);
        truth.compare(from, replayed);
        (truth.state(), truth.leases.clone(), truth.revoked.clone())
    };
    let found = answer.kvs.into_iter().map(|kv| {
        let (revision, change) = change(&pb::Event { kv: Some(kv), ..Default::default() });
        (change.key.clone(), (revision, change))
    });
    assert_eq!(found.collect::<BTreeMap<_, _>>(), state, "the pairs are not what the history says");
    check_leases(endpoint, &state, &leases, &revoked, random).await;
}

async fn check_leases(
    endpoint: &str,
    state: &BTreeMap<String, (i64, Change)>,
    granted: &BTreeSet<i64>,
    revoked: &BTreeSet<i64>,
    random: &mut fastrand::Rng,
) {
    let mut client = pb::lease_client::LeaseClient::new(wire::channel(endpoint));
    let answer = client.lease_leases(pb::LeaseLeasesRequest {}).await.unwrap().into_inner();
    let found: BTreeSet<i64> = answer.leases.iter().map(|lease| lease.id).collect();
    assert_eq!(granted.difference(&found).next(), None, "an acknowledged lease is gone");
    assert_eq!(revoked.intersection(&found).next(), None, "a revoked lease is back");
    for id in random.choose_multiple(granted.iter().copied(), 5) {
        let request = pb::LeaseTimeToLiveRequest { id, keys: true };
        let lease = client.lease_time_to_live(request).await.unwrap().into_inner();
        assert_eq!(lease.granted_ttl, TTL);
        assert!(lease.ttl >= TTL - 5, "{} s left of {TTL} right after a restart", lease.ttl);
        let keys: Vec<&str> =
            lease.keys.iter().map(|key| std::str::from_utf8(key).unwrap()).collect();
        let expected: Vec<&String> = state
            .iter()
            .filter(|(_, (_, change))| change.lease == id)
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, expected, "the keys of lease {id}");
    }
}
