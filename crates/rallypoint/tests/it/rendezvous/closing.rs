//! How a run ends, who may be in it, and what it leaves behind.

use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::ranks::RankPolicy;
use rallypoint::rendezvous::{RendezvousError, RendezvousHandler};
use tokio::time::timeout;

use super::handlers::{handler, meet, met, options};
use super::node::{Job, PATIENCE};
use super::{Observer, on_each_server, on_old_etcd};

on_each_server!(
    a_closed_run_says_who_closed_it_and_why,
    nodes_that_disagree_are_told_with_whom,
    a_misconfigured_node_that_comes_first_fails_and_other_nodes_form_a_group,
    a_run_that_is_over_leaves_only_what_the_run_holds,
    a_node_that_is_told_to_end_does_not_affect_other_nodes,
);

on_old_etcd!(a_run_that_is_over_leaves_only_what_the_run_holds);

async fn a_closed_run_says_who_closed_it_and_why(endpoint: String) {
    let (first, second) =
        (handler(&endpoint, options(2, 2)).await, handler(&endpoint, options(2, 2)).await);
    let (one, _) = tokio::join!(met(meet(&first)), met(meet(&second)));
    assert!(!first.is_closed().await.unwrap());
    first.set_closed("out of money").await.unwrap();
    let mut changes = second.changes();
    let closed = changes.wait_for(|status| status.view.closed.is_some());
    let closed = timeout(PATIENCE, closed).await.unwrap().unwrap().clone();
    assert_eq!(closed.view.closed.unwrap().reason, "out of money");
    assert_eq!(first.num_nodes_waiting().await.unwrap(), 0, "it knows by itself");
    assert_eq!(second.num_nodes_waiting().await.unwrap(), 1, "its workers must stop");
    // The first reason counts.
    second.set_closed("something else").await.unwrap();
    let late = handler(&endpoint, options(2, 2)).await;
    for node in [&first, &second, &late] {
        assert!(node.is_closed().await.unwrap());
        let error = node.next_rendezvous().await.unwrap_err();
        let RendezvousError::Closed { run_id, by, reason, .. } = error else { panic!("{error}") };
        assert_eq!((run_id.as_str(), reason.as_str()), ("example", "out of money"));
        assert!(by.contains(first.node_id()), "{by}");
    }

    assert!(late.reopen().await.unwrap());
    for node in [&first, &second] {
        let mut changes = node.changes();
        let open = changes.wait_for(|status| status.view.closed.is_none());
        timeout(PATIENCE, open).await.unwrap().unwrap();
    }
    assert!(!second.reopen().await.unwrap());
    let (again, _) = tokio::join!(met(meet(&first)), met(meet(&second)));
    assert!(again.round > one.round);
}

async fn nodes_that_disagree_are_told_with_whom(endpoint: String) {
    let first = handler(&endpoint, options(2, 3)).await;
    let meeting = meet(&first);
    Observer::new(&endpoint).await.joined(1, 1).await;
    let more = handler(&endpoint, options(2, 4)).await;
    let policy = options(2, 3).with(|options| options.rank_policy = RankPolicy::Arrival);
    let policy = handler(&endpoint, policy).await;
    for (node, words) in
        [(&more, ["min:max nodes 2:4", "2:3"]), (&policy, ["rank_policy arrival", "stable"])]
    {
        let error = timeout(PATIENCE, node.next_rendezvous()).await.unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::State { .. }), "{error}");
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(text.contains(first.node_id()), "{text}");
        // Only what it gave is wrong, so the run goes on without it.
        assert!(!node.is_closed().await.unwrap());
    }
    let second = handler(&endpoint, options(2, 3)).await;
    let (one, two) = tokio::join!(met(meeting), met(meet(&second)));
    assert_eq!((one.round, one.world_size, two.round), (1, 2, 1));
}

async fn a_misconfigured_node_that_comes_first_fails_and_other_nodes_form_a_group(
    endpoint: String,
) {
    let observer = Observer::new(&endpoint).await;
    let wrong = [handler(&endpoint, options(4, 4)).await, handler(&endpoint, options(4, 4)).await];
    let failing = wrong.each_ref().map(meet);
    observer.joined(1, 2).await;
    let mut right = Vec::new();
    for _ in 0..3 {
        right.push(handler(&endpoint, options(3, 3)).await);
    }
    let meetings: Vec<_> = right.iter().map(meet).collect();
    for failed in failing {
        let error = timeout(PATIENCE, failed).await.unwrap().unwrap().unwrap_err();
        assert!(matches!(error, RendezvousError::State { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("min:max nodes 4:4") && text.contains("has 3:3"), "{text}");
        assert!(right.iter().any(|node| text.contains(node.node_id())), "{text}");
    }
    for meeting in meetings {
        assert_eq!(met(meeting).await.world_size, 3);
    }
    // A node that joins from now on agrees with the group or fails at once.
    let late = handler(&endpoint, options(4, 4)).await;
    let begun = std::time::Instant::now();
    let error = timeout(PATIENCE, late.next_rendezvous()).await.unwrap().unwrap_err();
    assert!(matches!(error, RendezvousError::State { .. }), "{error}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(3), "{:?}", begun.elapsed());
    observer.no_node_objects().await;
}

async fn a_run_that_is_over_leaves_only_what_the_run_holds(endpoint: String) {
    let observer = Observer::new(&endpoint).await;
    let (first, second, third) = (
        handler(&endpoint, options(3, 3)).await,
        handler(&endpoint, options(3, 3)).await,
        handler(&endpoint, options(3, 3)).await,
    );
    let spare = handler(&endpoint, options(3, 3)).await;
    let mut round = 0;
    for _ in 0..3 {
        let (one, two, three) =
            tokio::join!(met(meet(&first)), met(meet(&second)), met(meet(&third)));
        one.store.set(b"a", "1".into()).await.unwrap();
        assert_eq!(two.store.get(b"a").await.unwrap(), "1");
        assert!(three.round > round);
        round = three.round;
    }
    first.suspect(second.node_id());
    let spare_meeting = meet(&spare);
    let mut changes = spare.changes();
    let waits = changes.wait_for(|status| status.view.waits_for.is_some());
    timeout(PATIENCE, waits).await.unwrap().unwrap();

    assert!(first.shutdown().await);
    let mut changes = second.changes();
    let closed = changes.wait_for(|status| status.view.closed.is_some());
    timeout(PATIENCE, closed).await.unwrap().unwrap();
    assert!(second.shutdown().await && third.shutdown().await);
    let over = timeout(PATIENCE, spare_meeting).await.unwrap().unwrap().unwrap_err();
    assert!(
        matches!(over, RendezvousError::GracefulExit { .. } | RendezvousError::Closed { .. }),
        "{over}"
    );
    assert!(spare.shutdown().await);

    let left =
        observer.client.range(KeyRange::prefix(observer.keys.root().to_owned())).await.unwrap();
    let earlier = |key: &str| (1..round).any(|old| key.contains(&format!("/v_{old}/")));
    for kv in &left.kvs {
        let key = String::from_utf8_lossy(&kv.key);
        assert_eq!(kv.lease, observer.keys.run_lease(), "{key} is on another lease");
        assert!(!earlier(&key), "{key} is of an earlier round");
    }
    assert!(left.kvs.iter().any(|kv| kv.key == observer.keys.active()), "it is not closed");
    let run = observer.client.lease_time_to_live(observer.keys.run_lease(), true).await.unwrap();
    assert_eq!(run.expect("the run's lease").keys.len(), left.kvs.len());
}

async fn a_node_that_is_told_to_end_does_not_affect_other_nodes(endpoint: String) {
    // Neither while it waits nor as a member does it close the run (torchrun does: D4).
    let job = Job::new(&endpoint, "2:2").with("--lease-ttl", "30");
    let mut first = job.node();
    first.waits_for("1 of 2 nodes").await;
    first.terminate();
    assert!(first.ended().await.success());
    let mut nodes = job.nodes(2);
    let before = super::group(&mut nodes, 0).await;
    nodes[0].terminate();
    assert!(nodes[0].ended().await.success());
    // Long before its lease would have told.
    nodes[1].event("changed").await;
    nodes[0] = job.node();
    super::group(&mut nodes, before[0].round).await;
}
