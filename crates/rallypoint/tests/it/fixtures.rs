//! The test ground itself: what the other tests take for granted.

use std::time::Duration;

use rallypoint::proto::etcd as pb;

use crate::support::{Etcd, EtcdCluster, Proxy, Version, wire};

async fn put(endpoint: &str, key: &'static str) -> Result<i64, tonic::Status> {
    let request = pb::PutRequest { key: key.into(), ..Default::default() };
    let answer = wire::kv(endpoint).put(request).await?.into_inner();
    Ok(answer.header.unwrap().revision)
}

#[tokio::test]
async fn an_etcd_keeps_its_data_and_its_address_over_a_restart() {
    for version in Version::all() {
        let mut etcd = Etcd::start(version).await;
        let endpoint = etcd.endpoint();
        assert_eq!(put(&endpoint, "a").await.unwrap(), 2);
        etcd.kill();
        assert!(put(&endpoint, "b").await.is_err());
        etcd.restart().await;
        assert_eq!(put(&endpoint, "c").await.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_cluster_survives_its_leader() {
    let mut cluster = EtcdCluster::start(Version::V3_5, 3).await;
    let leader = cluster.leader_index().await;
    cluster.kill(leader);
    let next = cluster.leader_index().await;
    assert_ne!(next, leader);
    assert_eq!(put(&cluster.endpoints()[next], "a").await.unwrap(), 2);
    cluster.restart(leader).await;
    assert_eq!(put(&cluster.endpoints()[leader], "b").await.unwrap(), 3);
}

#[tokio::test]
async fn a_proxy_hangs_severs_refuses_and_heals() {
    let etcd = Etcd::start(Version::V3_4).await;
    let proxy = Proxy::start(etcd.endpoint()).await;
    assert_eq!(put(&proxy.endpoint(), "a").await.unwrap(), 2);

    let mut old = wire::kv(&proxy.endpoint());
    let read = || pb::RangeRequest { key: "a".into(), ..Default::default() };
    old.range(read()).await.unwrap();
    proxy.hang();
    let late = tokio::time::timeout(Duration::from_millis(200), old.range(read())).await;
    assert!(late.is_err(), "answered through a proxy that hangs: {late:?}");
    proxy.heal();
    let late = tokio::time::timeout(Duration::from_millis(200), old.range(read())).await;
    assert!(late.is_err(), "a connection that lost bytes answered: {late:?}");
    assert_eq!(put(&proxy.endpoint(), "b").await.unwrap(), 3);

    let mut forgotten = wire::kv(&proxy.endpoint());
    forgotten.range(read()).await.unwrap();
    proxy.forget();
    let late = tokio::time::timeout(Duration::from_millis(200), forgotten.range(read())).await;
    assert!(late.is_err(), "a forgotten connection answered: {late:?}");
    wire::kv(&proxy.endpoint()).range(read()).await.unwrap();

    let stuck = tokio::spawn({
        let mut old = old.clone();
        async move { old.range(read()).await }
    });
    proxy.sever();
    assert!(stuck.await.unwrap().is_err());
    assert_eq!(put(&proxy.endpoint(), "c").await.unwrap(), 4);

    proxy.refuse();
    assert!(put(&proxy.endpoint(), "d").await.is_err());
    proxy.heal();
    assert_eq!(put(&proxy.endpoint(), "d").await.unwrap(), 5);
}
