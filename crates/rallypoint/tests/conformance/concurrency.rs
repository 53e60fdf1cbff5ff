//! Locks and elections, as the services of that name do them.

use std::time::Duration;

use bytes::Bytes;
use rallypoint::proto::election::election_client::ElectionClient;
use rallypoint::proto::lock::lock_client::LockClient;
use rallypoint::proto::{election, lock};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::ask::{get, revision};
use crate::cases;
use crate::context::Context;
use crate::differences;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: a_free_lock, a_lock_waits_for_the_one_before, a_lock_of_the_same_lease_is_the_same,
            a_lock_ends_with_its_lease, a_lock_without_a_lease, a_lock_on_no_lease,
            who_goes_away_leaves_the_queue, who_loses_its_lease_in_the_queue, unlocking_what_is_free,
            an_election, a_leader_waits_for_the_one_before, a_campaign_again, no_leader,
            proclaiming, proclaiming_what_is_lost, resigning, resigning_what_is_lost,
            requests_without_a_leader, observing, observing_before_there_is_a_leader;
    ]
}

/// Long enough that a call that does not wait has been answered.
const MOMENT: Duration = Duration::from_millis(300);

fn locks(t: &Context) -> LockClient<Channel> {
    LockClient::new(t.channel.clone())
}

fn elections(t: &Context) -> ElectionClient<Channel> {
    ElectionClient::new(t.channel.clone())
}

async fn lease(t: &Context) -> i64 {
    let id = t.lease_id();
    t.grant(id, 60).await.unwrap();
    id
}

async fn take(t: &Context, name: &str, lease: i64) -> Result<lock::LockResponse, Status> {
    let request = lock::LockRequest { name: t.key(name), lease };
    locks(t).lock(request).await.map(tonic::Response::into_inner)
}

async fn release(t: &Context, key: Bytes) -> lock::UnlockResponse {
    locks(t).unlock(lock::UnlockRequest { key }).await.unwrap().into_inner()
}

async fn campaign(
    t: &Context,
    lease: i64,
    value: &str,
) -> Result<election::CampaignResponse, Status> {
    let request =
        election::CampaignRequest { name: t.key("seat"), lease, value: value.to_owned().into() };
    elections(t).campaign(request).await.map(tonic::Response::into_inner)
}

async fn leader(t: &Context) -> Result<election::LeaderResponse, Status> {
    let request = election::LeaderRequest { name: t.key("seat") };
    elections(t).leader(request).await.map(tonic::Response::into_inner)
}

/// The number of a case's keys.
async fn keys(t: &Context) -> i64 {
    t.range(t.all()).await.unwrap().count
}

/// Fails with these words. The code is the one of etcd's services, which pass on what their own client says.
#[track_caller]
fn said<T: std::fmt::Debug>(answer: Result<T, Status>, message: &str) {
    let status = answer.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unknown, message));
}

async fn a_free_lock(t: Context) {
    let lease = lease(&t).await;
    let taken = take(&t, "door", lease).await.unwrap();
    assert_eq!(taken.key, t.key(&format!("door/{lease:x}")));
    let found = t.range(get(taken.key.clone())).await.unwrap();
    let pair = &found.kvs[0];
    assert_eq!((&pair.value[..], pair.lease), (&b""[..], lease));
    assert_eq!(pair.create_revision, revision(&taken.header));
    let released = release(&t, taken.key).await;
    assert!(revision(&released.header) > pair.create_revision);
    assert_eq!(keys(&t).await, 0);
}

async fn a_lock_waits_for_the_one_before(t: Context) {
    let (one, two, three) = (lease(&t).await, lease(&t).await, lease(&t).await);
    let first = take(&t, "door", one).await.unwrap();
    let mut second = Box::pin(take(&t, "door", two));
    assert!(timeout(MOMENT, &mut second).await.is_err());
    let mut third = Box::pin(take(&t, "door", three));
    assert!(timeout(MOMENT, &mut third).await.is_err());
    // Another door is free.
    let other = take(&t, "window", two).await.unwrap();
    release(&t, other.key).await;
    release(&t, first.key).await;
    let second = second.await.unwrap();
    assert!(timeout(MOMENT, &mut third).await.is_err());
    release(&t, second.key).await;
    third.await.unwrap();
}

async fn a_lock_of_the_same_lease_is_the_same(t: Context) {
    let lease = lease(&t).await;
    let first = take(&t, "door", lease).await.unwrap();
    assert_eq!(take(&t, "door", lease).await.unwrap().key, first.key);
    assert_eq!(keys(&t).await, 1);
}

async fn a_lock_ends_with_its_lease(t: Context) {
    let (one, two) = (lease(&t).await, lease(&t).await);
    take(&t, "door", one).await.unwrap();
    let mut second = Box::pin(take(&t, "door", two));
    assert!(timeout(MOMENT, &mut second).await.is_err());
    t.revoke(one).await.unwrap();
    second.await.unwrap();
}

async fn a_lock_without_a_lease(t: Context) {
    // The server grants one, of a minute.
    let taken = take(&t, "door", 0).await.unwrap();
    let pair = t.range(get(taken.key)).await.unwrap().kvs.remove(0);
    assert_ne!(pair.lease, 0);
    assert_eq!(pair.key, t.key(&format!("door/{:x}", pair.lease)));
}

async fn a_lock_on_no_lease(t: Context) {
    let status = take(&t, "door", t.lease_id()).await.unwrap_err();
    assert_eq!(status.message(), "etcdserver: requested lease not found");
    assert_eq!(keys(&t).await, 0);
}

async fn who_goes_away_leaves_the_queue(t: Context) {
    let (one, two, three) = (lease(&t).await, lease(&t).await, lease(&t).await);
    let first = take(&t, "door", one).await.unwrap();
    assert!(timeout(MOMENT, take(&t, "door", two)).await.is_err());
    // Its key goes with it, though its lease lives.
    while keys(&t).await != 1 {
        sleep(Duration::from_millis(20)).await;
    }
    release(&t, first.key).await;
    take(&t, "door", three).await.unwrap();
}

async fn who_loses_its_lease_in_the_queue(t: Context) {
    let (one, two) = (lease(&t).await, lease(&t).await);
    let first = take(&t, "door", one).await.unwrap();
    let mut second = Box::pin(take(&t, "door", two));
    assert!(timeout(MOMENT, &mut second).await.is_err());
    t.revoke(two).await.unwrap();
    release(&t, first.key).await;
    match differences::of(t.arm).lock_needs_its_lease {
        true => said(second.await, "mutex: session is expired"),
        false => drop(second.await.unwrap()),
    }
}

async fn unlocking_what_is_free(t: Context) {
    let now = t.set("a", "1").await;
    assert!(revision(&release(&t, t.key("door/1")).await.header) >= now);
}

async fn an_election(t: Context) {
    let lease = lease(&t).await;
    let won = campaign(&t, lease, "me").await.unwrap();
    let key = won.leader.clone().unwrap();
    assert_eq!(key.name, t.key("seat"));
    assert_eq!(key.key, t.key(&format!("seat/{lease:x}")));
    assert_eq!((key.rev, key.lease), (revision(&won.header), lease));
    let found = leader(&t).await.unwrap();
    let pair = found.kv.unwrap();
    assert_eq!((&pair.key, &pair.value[..], pair.lease), (&key.key, &b"me"[..], lease));
    assert_eq!(pair.create_revision, key.rev);
}

async fn a_leader_waits_for_the_one_before(t: Context) {
    let (one, two) = (lease(&t).await, lease(&t).await);
    campaign(&t, one, "first").await.unwrap();
    let mut second = Box::pin(campaign(&t, two, "second"));
    assert!(timeout(MOMENT, &mut second).await.is_err());
    assert_eq!(leader(&t).await.unwrap().kv.unwrap().value, "first");
    t.revoke(one).await.unwrap();
    second.await.unwrap();
    assert_eq!(leader(&t).await.unwrap().kv.unwrap().value, "second");
}

async fn a_campaign_again(t: Context) {
    let lease = lease(&t).await;
    let first = campaign(&t, lease, "me").await.unwrap();
    for value in ["me", "still me"] {
        assert_eq!(campaign(&t, lease, value).await.unwrap().leader, first.leader);
        assert_eq!(leader(&t).await.unwrap().kv.unwrap().value, value);
    }
}

async fn no_leader(t: Context) {
    said(leader(&t).await, "election: no leader");
}

async fn proclaim(t: &Context, leader: Option<election::LeaderKey>) -> Result<i64, Status> {
    let request = election::ProclaimRequest { leader, value: "new".into() };
    let answer = elections(t).proclaim(request).await?;
    Ok(revision(&answer.into_inner().header))
}

async fn resign(t: &Context, leader: Option<election::LeaderKey>) -> Result<i64, Status> {
    let answer = elections(t).resign(election::ResignRequest { leader }).await?;
    Ok(revision(&answer.into_inner().header))
}

async fn proclaiming(t: Context) {
    let lease = lease(&t).await;
    let won = campaign(&t, lease, "me").await.unwrap();
    let now = proclaim(&t, won.leader).await.unwrap();
    let pair = leader(&t).await.unwrap().kv.unwrap();
    assert_eq!((&pair.value[..], pair.mod_revision), (&b"new"[..], now));
    assert_eq!((pair.version, pair.lease), (2, lease));
}

async fn proclaiming_what_is_lost(t: Context) {
    let lease = lease(&t).await;
    let won = campaign(&t, lease, "me").await.unwrap();
    t.delete(crate::ask::del(won.leader.clone().unwrap().key)).await.unwrap();
    said(proclaim(&t, won.leader).await, "election: not leader");
    assert_eq!(keys(&t).await, 0);
}

async fn resigning(t: Context) {
    let lease = lease(&t).await;
    let won = campaign(&t, lease, "me").await.unwrap();
    assert!(resign(&t, won.leader.clone()).await.unwrap() > won.leader.unwrap().rev);
    said(leader(&t).await, "election: no leader");
}

async fn resigning_what_is_lost(t: Context) {
    let (one, two) = (lease(&t).await, lease(&t).await);
    let won = campaign(&t, one, "me").await.unwrap();
    t.revoke(one).await.unwrap();
    campaign(&t, two, "other").await.unwrap();
    resign(&t, won.leader).await.unwrap();
    assert_eq!(leader(&t).await.unwrap().kv.unwrap().value, "other");
}

async fn requests_without_a_leader(t: Context) {
    let words = "\"leader\" field must be provided";
    said(proclaim(&t, None).await, words);
    said(resign(&t, None).await, words);
}

async fn observing(t: Context) {
    let (one, two) = (lease(&t).await, lease(&t).await);
    let won = campaign(&t, one, "first").await.unwrap();
    let request = election::LeaderRequest { name: t.key("seat") };
    let mut seen = elections(&t).observe(request).await.unwrap().into_inner();
    assert_eq!(seen.message().await.unwrap().unwrap().kv.unwrap().value, "first");
    let now = proclaim(&t, won.leader.clone()).await.unwrap();
    let next = seen.message().await.unwrap().unwrap();
    assert_eq!(next.kv.unwrap().value, "new");
    assert!(revision(&next.header) >= now);
    let second = campaign(&t, two, "second");
    let (second, ()) = tokio::join!(second, async {
        sleep(MOMENT).await;
        resign(&t, won.leader).await.unwrap();
    });
    second.unwrap();
    assert_eq!(seen.message().await.unwrap().unwrap().kv.unwrap().value, "second");
}

async fn observing_before_there_is_a_leader(t: Context) {
    let lease = lease(&t).await;
    let request = election::LeaderRequest { name: t.key("seat") };
    let mut client = elections(&t);
    // etcd answers with the first leader, and not before.
    let mut stream = Box::pin(async move {
        let mut seen = client.observe(request).await.unwrap().into_inner();
        seen.message().await.unwrap().unwrap()
    });
    assert!(timeout(MOMENT, &mut stream).await.is_err());
    let won = campaign(&t, lease, "me").await.unwrap();
    let first = stream.await;
    assert_eq!(first.kv.unwrap().value, "me");
    assert_eq!(revision(&first.header), revision(&won.header));
}
