//! Several members.

use rallypoint::core::kv::{KeyRange, Put};
use rallypoint::etcd_server::{EtcdCluster, EtcdServerError};

use super::{PATIENCE, lives, nothing_is_left, options, real};
use crate::support::Version;
use crate::support::process::Directory;

#[tokio::test]
async fn three_survive_the_death_of_each() {
    for version in Version::all() {
        let directory = Directory::new();
        let etcd = real(&directory, version);
        let mut cluster = EtcdCluster::start(3, options(&etcd)).await.unwrap();
        assert!(cluster.version().starts_with(version.name()));
        let client = cluster.client().await.unwrap().with_timeout(PATIENCE);
        assert_eq!(client.members().await.unwrap().len(), 3);
        for index in 0..3 {
            let pid = cluster.pids()[index].unwrap();
            cluster.kill(index).await.unwrap();
            assert!(!lives(pid));
            assert_eq!(cluster.pids()[index], None);
            // The outcome of the first may be unknown: it may have gone to the one that died.
            let mut put = client.put(Put::new("k", index.to_string())).await;
            while let Err(rallypoint::client::ClientError::OutcomeUnknown { .. }) = put {
                put = client.put(Put::new("k", index.to_string())).await;
            }
            put.unwrap();
            cluster.restart(index).await.unwrap();
            let found = client.range(KeyRange::key("k")).await.unwrap();
            assert_eq!(found.kvs[0].value, index.to_string());
        }
        cluster.stop().await.unwrap();
        assert_eq!(cluster.pids(), [None; 3]);
        nothing_is_left(&etcd).await;
    }
}

#[tokio::test]
async fn a_given_directory_is_kept_and_the_cluster_goes_on_in_it() {
    let directory = Directory::new();
    let data = directory.path().join("data");
    let options =
        options(&Version::V3_5.etcd()).with(|options| options.data_dir = Some(data.clone()));
    let mut cluster = EtcdCluster::start(3, options.clone()).await.unwrap();
    cluster.client().await.unwrap().put(Put::new("k", "v")).await.unwrap();
    cluster.stop().await.unwrap();
    for members in [1, 5] {
        let error = EtcdCluster::start(members, options.clone()).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, EtcdServerError::Config(_)), "{text}");
        assert!(text.contains(data.to_str().unwrap()), "{text}");
    }
    let mut cluster = EtcdCluster::start(3, options).await.unwrap();
    let found = cluster.client().await.unwrap().range(KeyRange::key("k")).await.unwrap();
    assert_eq!(found.kvs[0].value, "v");
    cluster.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_that_never_came_to_be_leaves_a_given_directory_as_it_was() {
    let directory = Directory::new();
    let etcd = super::fake(&directory, "mkdir -p \"$4/member\"; exit 1");
    let data = directory.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("mine"), "").unwrap();
    let options = options(&etcd).with(|options| options.data_dir = Some(data.clone()));
    EtcdCluster::start(3, options.clone()).await.unwrap_err();
    assert!(!super::starts(&etcd).is_empty());
    let left: Vec<_> =
        std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["mine"]);
    // What somebody else has put there is not taken for a cluster, nor removed.
    std::fs::create_dir(data.join("member-1")).unwrap();
    let text = EtcdCluster::start(3, options).await.unwrap_err().to_string();
    assert!(text.contains("member-1"), "{text}");
    assert!(data.join("member-1").is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_at_once_in_one_directory_the_loser_harms_nothing() {
    for members in [1, 2] {
        let directory = Directory::new();
        let data = directory.path().join("data");
        let options =
            options(&Version::V3_5.etcd()).with(|options| options.data_dir = Some(data.clone()));
        let start = || EtcdCluster::start(members, options.clone());
        let (mut cluster, error) = match tokio::join!(start(), start()) {
            (Ok(cluster), Err(error)) | (Err(error), Ok(cluster)) => (cluster, error),
            both => panic!("{members}: {both:?}"),
        };
        assert!(matches!(error, EtcdServerError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(data.to_str().unwrap()), "{error}");
        // Another number of members is no way in either.
        let error = EtcdCluster::start(3 - members, options.clone()).await.unwrap_err();
        assert!(matches!(error, EtcdServerError::InUse { .. }), "{error}");
        cluster.client().await.unwrap().put(Put::new("k", "v")).await.unwrap();
        cluster.stop().await.unwrap();
        // It is free again at once, and all is there.
        let mut cluster = start().await.unwrap();
        let found = cluster.client().await.unwrap().range(KeyRange::key("k")).await.unwrap();
        assert_eq!(found.kvs[0].value, "v");
        cluster.stop().await.unwrap();
    }
}

#[tokio::test]
async fn numbers_that_make_no_sense() {
    for members in [0, 10] {
        let error = EtcdCluster::start(members, options(&Version::V3_5.etcd())).await.unwrap_err();
        assert!(error.to_string().contains("members"), "{error}");
    }
    let mut cluster = EtcdCluster::start(1, options(&Version::V3_5.etcd())).await.unwrap();
    let error = cluster.kill(1).await.unwrap_err().to_string();
    assert!(error.contains("member \"1\""), "{error}");
    cluster.stop().await.unwrap();
}
