//! Sessions on real etcd: alive while they can be, lost in time when they cannot.

use std::time::{Duration, Instant};

use rallypoint::client::ClientError;
use rallypoint::core::kv::{KeyRange, KvError, Put, Watch};
use rallypoint::session::{Loss, Session};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::client::client;
use crate::support::process::{Directory, Process, Recipe};
use crate::support::{Embedded, Etcd, Proxy, Version};

#[tokio::test]
async fn a_session_outlives_its_time_to_live_and_ends_when_closed() {
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        let client = client([etcd.endpoint()]).await;
        let session = Session::open(&client, Duration::from_secs(2)).await.unwrap();
        assert_eq!(session.ttl(), Duration::from_secs(2));
        client.put(Put::new("me", "").on_lease(session.lease())).await.unwrap();
        let lost = session.lost();
        assert!(timeout(Duration::from_secs(5), session.lost()).await.is_err());
        assert!(!session.is_lost() && session.remaining() > Duration::ZERO);
        session.close().await.unwrap();
        assert_eq!(client.range(KeyRange::key("me")).await.unwrap().count, 0);
        assert_eq!(lost.await, Loss::Closed);
    }
}

#[tokio::test]
async fn a_revoked_session_is_told_to_everyone_who_waits() {
    let etcd = Etcd::start(Version::V3_4).await;
    let client = client([etcd.endpoint()]).await;
    let session = Session::open(&client, Duration::from_secs(3)).await.unwrap();
    let waiting = [tokio::spawn(session.lost()), tokio::spawn(session.lost())];
    client.lease_revoke(session.lease()).await.unwrap();
    for waiter in waiting {
        let loss = timeout(Duration::from_secs(3), waiter).await.unwrap().unwrap();
        assert!(matches!(loss, Loss::Gone { .. }), "{loss}");
    }
    assert!(session.is_lost());
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_session_that_is_cut_off_knows_before_the_server_does() {
    let etcd = Etcd::start(Version::V3_5).await;
    let direct = client([etcd.endpoint()]).await;
    let proxy = Proxy::start(etcd.endpoint()).await;
    let behind = client([proxy.endpoint()]).await;
    let session = Session::open(&behind, Duration::from_secs(3)).await.unwrap();
    let put = Put::new("me", "").on_lease(session.lease());
    direct.put(put).await.unwrap();
    let mut watcher = direct.watch([Watch::new(KeyRange::key("me"))]).await.unwrap();
    // Past the first renewals.
    assert!(timeout(Duration::from_secs(4), session.lost()).await.is_err());

    proxy.hang();
    let cut = Instant::now();
    let loss = timeout(Duration::from_secs(10), session.lost()).await.unwrap();
    let noticed = cut.elapsed();
    assert!(matches!(&loss, Loss::Expired { last_error: Some(_), .. }), "{loss}");
    assert!(!loss.to_string().contains("did not run"), "{loss}");
    assert!(noticed < Duration::from_millis(3100), "noticed after {noticed:?}");
    let kept = direct.range(KeyRange::key("me")).await.unwrap();
    assert_eq!(kept.count, 1, "the server was quicker");
    let batch = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap();
    assert_eq!(batch.events.len(), 1);
    // What is lost stays lost, and closing it does not wait for a server.
    proxy.heal();
    assert!(session.is_lost());
    timeout(Duration::from_secs(1), session.close()).await.unwrap().unwrap();
}

/// The guard's deadline: after the loss is noticed, before the server lets go.
#[tokio::test]
async fn the_time_to_be_dead_moves_with_each_acknowledged_renewal() {
    const TTL: Duration = Duration::from_secs(4);
    let server = Embedded::memory().await;
    let proxy = Proxy::start(server.endpoint()).await;
    let asked = boot_time();
    let session = Session::open(&client([proxy.endpoint()]).await, TTL).await.unwrap();
    let mut fence_at = session.fence_at();
    let first = *fence_at.borrow_and_update();
    let most = TTL * 15 / 16;
    assert!(asked + most <= first && first <= boot_time() + most, "{first:?}");
    timeout(TTL, fence_at.changed()).await.unwrap().unwrap();
    let second = *fence_at.borrow_and_update();
    assert!(second > first + TTL / 4 && second <= boot_time() + most, "{first:?}, {second:?}");
    proxy.hang();
    session.lost().await;
    let last = *fence_at.borrow_and_update();
    let now = boot_time();
    assert!(now < last && last < now + TTL / 8, "lost at {now:?}, dead at {last:?}");
}

fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

#[tokio::test]
async fn a_session_moves_to_another_endpoint_in_time() {
    let etcd = Etcd::start(Version::V3_5).await;
    let proxies = [Proxy::start(etcd.endpoint()).await, Proxy::start(etcd.endpoint()).await];
    let client = client(proxies.iter().map(Proxy::endpoint)).await;
    let session = Session::open(&client, Duration::from_secs(3)).await.unwrap();
    for proxy in [0, 1, 0] {
        proxies[proxy].hang();
        let lost = timeout(Duration::from_secs(4), session.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        proxies[proxy].heal();
    }
    session.close().await.unwrap();
}

#[tokio::test]
async fn a_dropped_session_lets_its_lease_lapse() {
    let etcd = Etcd::start(Version::V3_4).await;
    let client = client([etcd.endpoint()]).await;
    let session = Session::open(&client, Duration::from_secs(2)).await.unwrap();
    client.put(Put::new("me", "").on_lease(session.lease())).await.unwrap();
    let mut watcher = client.watch([Watch::new(KeyRange::key("me"))]).await.unwrap();
    let lost = session.lost();
    drop(session);
    assert_eq!(lost.await, Loss::Closed);
    let batch = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap();
    assert_eq!(batch.events[0].kv.key, "me");
}

const CHILD: &str = "RALLYPOINT_TEST_SESSION_ENDPOINT";

/// Not a test of its own: what the next one runs as another process.
#[tokio::test]
#[allow(clippy::print_stdout, reason = "the parent reads it")]
async fn child_with_a_session() {
    let Ok(endpoint) = std::env::var(CHILD) else { return };
    let client = client([endpoint]).await;
    let session = Session::open(&client, Duration::from_secs(2)).await.unwrap();
    client.put(Put::new("me", "").on_lease(session.lease())).await.unwrap();
    println!("opened");
    let loss = session.lost().await;
    assert!(session.is_lost());
    println!("lost: {loss}");
    let refused = client.put(Put::new("me", "").on_lease(session.lease())).await.unwrap_err();
    assert!(matches!(refused, ClientError::Kv(KvError::LeaseNotFound)), "{refused}");
    println!("refused");
}

async fn wait_for_line(process: &mut Process, text: &str) -> Duration {
    let begun = Instant::now();
    while !process.log_tail().contains(text) {
        assert!(begun.elapsed() < Duration::from_secs(20), "no {text:?}: {}", process.log_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

#[tokio::test]
async fn a_process_that_was_stopped_too_long_finds_its_session_lost() {
    let etcd = Etcd::start(Version::V3_5).await;
    let client = client([etcd.endpoint()]).await;
    let mut watcher = client.watch([Watch::new(KeyRange::key("me"))]).await.unwrap();
    let directory = Directory::new();
    let mut process = Process::start(&Recipe {
        program: std::env::current_exe().unwrap(),
        args: ["session::child_with_a_session", "--exact", "--nocapture"].map(Into::into).into(),
        env: vec![(CHILD.to_owned(), etcd.endpoint())],
        log: directory.path().join("log"),
    });
    wait_for_line(&mut process, "opened").await;
    let put = timeout(Duration::from_secs(10), watcher.next()).await.unwrap().unwrap();
    assert_eq!(put.events.len(), 1);
    process.signal(Signal::STOP);
    // Until the server has let it go, so that any life left in the child would be a lie.
    let gone = timeout(Duration::from_secs(20), watcher.next()).await.unwrap().unwrap();
    assert_eq!(gone.events.len(), 1);
    assert!(!process.log_tail().contains("lost"));
    process.signal(Signal::CONT);
    let noticed = wait_for_line(&mut process, "lost: lease").await;
    assert!(noticed < Duration::from_millis(500), "noticed after {noticed:?}");
    // It knows that it was not the network.
    wait_for_line(&mut process, "this process did not run for").await;
    wait_for_line(&mut process, "refused").await;
}
