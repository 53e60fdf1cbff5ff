//! Watching: many watches on one stream, their ids, cancelling, progress, fragments.

use bytes::Bytes;
use pb::watch_request::RequestUnion;
use rallypoint::proto::etcd as pb;

use crate::ask::{put, revision};
use crate::cases;
use crate::context::{Context, WatchStream, put_event};
use crate::differences;
use crate::harness::Case;

pub fn cases() -> Vec<Case> {
    cases![
        Shared: ids_count_from_zero, an_id_of_our_own, an_id_that_is_taken, taken_ids_are_skipped,
            each_stream_has_its_own_ids, an_empty_range, an_inverted_range, cancelled,
            cancelled_twice, an_unknown_one_cannot_be_cancelled, a_cancelled_id_is_free,
            nothing_after_cancelling, many_watches_on_one_stream, two_watches_of_one_key,
            events_say_whose_they_are, many_streams_on_one_connection, it_goes_on_when_we_have_no_more_requests,
            progress_of_many_watches, progress_of_no_watches, fragments, without_fragments, a_large_past_without_fragments,
            a_small_response_is_no_fragment, with_a_leader_wanted, an_empty_request_is_ignored;
        Quiet: progress, the_creation_has_the_current_revision;
    ]
}

async fn ids_count_from_zero(t: Context) {
    let mut stream = t.watch_stream();
    for expected in 0..3 {
        let created = stream.create(t.watch_of("a")).await;
        assert_eq!((created.watch_id, created.canceled), (expected, false));
        assert_eq!((created.events.len(), created.compact_revision), (0, 0));
        assert_eq!(created.cancel_reason, "");
    }
}

async fn an_id_of_our_own(t: Context) {
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { watch_id: 42, ..t.watch_of("a") };
    assert_eq!(stream.create(request).await.watch_id, 42);
    t.set("a", "1").await;
    assert_eq!(stream.next().await.watch_id, 42);
    let request = pb::WatchCreateRequest { watch_id: -7, ..t.watch_of("b") };
    assert_eq!(stream.create(request).await.watch_id, -7);
}

async fn an_id_that_is_taken(t: Context) {
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { watch_id: 42, ..t.watch_of("a") };
    stream.create(request.clone()).await;
    let refused = stream.create(pb::WatchCreateRequest { key: t.key("b"), ..request }).await;
    assert!(refused.canceled);
    assert_eq!(refused.watch_id, -1);
    assert_eq!(refused.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
    // The first one is not hurt.
    t.set("b", "1").await;
    t.set("a", "1").await;
    let response = stream.next().await;
    assert_eq!((response.watch_id, response.canceled), (42, false));
    assert_eq!(response.events[0].kv.as_ref().unwrap().key, t.key("a"));
}

async fn taken_ids_are_skipped(t: Context) {
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { watch_id: 1, ..t.watch_of("a") };
    stream.create(request).await;
    assert_eq!(stream.create(t.watch_of("a")).await.watch_id, 0);
    assert_eq!(stream.create(t.watch_of("a")).await.watch_id, 2);
}

async fn each_stream_has_its_own_ids(t: Context) {
    let (mut first, mut second) = (t.watch_stream(), t.watch_stream());
    assert_eq!(first.create(t.watch_of("a")).await.watch_id, 0);
    assert_eq!(second.create(t.watch_of("b")).await.watch_id, 0);
    let made = t.set("b", "1").await;
    assert_eq!(second.next().await.events, [put_event(t.new_pair("b", "1", made))]);
    let made = t.set("a", "1").await;
    assert_eq!(first.next().await.events, [put_event(t.new_pair("a", "1", made))]);
}

async fn refused_as_empty(t: &Context, end: Bytes) {
    let mut stream = t.watch_stream();
    let refused = stream.create(pb::WatchCreateRequest { range_end: end, ..t.watch_of("b") }).await;
    assert!(refused.canceled);
    assert_eq!(refused.watch_id, -1);
    assert_eq!(refused.cancel_reason, "mvcc: watcher range is empty");
    // The stream goes on.
    assert!(!stream.create(t.watch_of("b")).await.canceled);
}

async fn an_empty_range(t: Context) {
    refused_as_empty(&t, t.key("b")).await;
}

async fn an_inverted_range(t: Context) {
    refused_as_empty(&t, t.key("a")).await;
}

async fn cancelled(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.create(t.watch_of("b")).await;
    stream.cancel(1).await;
    let response = stream.next().await;
    assert!(response.canceled && !response.created);
    assert_eq!((response.watch_id, response.compact_revision), (1, 0));
    assert_eq!((response.events.len(), response.cancel_reason.as_str()), (0, ""));
    assert!(revision(&response.header) >= 1);
}

async fn cancelled_twice(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.cancel(0).await;
    stream.cancel(0).await;
    assert!(stream.next().await.canceled);
    // No second answer: the next thing that is said is this.
    assert_eq!(stream.create(t.watch_of("b")).await.watch_id, 1);
}

async fn an_unknown_one_cannot_be_cancelled(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.cancel(99).await;
    assert_eq!(stream.create(t.watch_of("b")).await.watch_id, 1);
}

async fn a_cancelled_id_is_free(t: Context) {
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { watch_id: 5, ..t.watch_of("a") };
    stream.create(request.clone()).await;
    stream.cancel(5).await;
    assert!(stream.next().await.canceled);
    let created = stream.create(pb::WatchCreateRequest { key: t.key("b"), ..request }).await;
    assert_eq!((created.watch_id, created.canceled), (5, false));
    t.set("a", "1").await;
    t.set("b", "1").await;
    assert_eq!(stream.next().await.events[0].kv.as_ref().unwrap().key, t.key("b"));
}

async fn nothing_after_cancelling(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of_all()).await;
    stream.create(t.watch_of_all()).await;
    stream.cancel(0).await;
    assert!(stream.next().await.canceled);
    for number in 0..10 {
        t.set("a", &format!("{number}")).await;
        assert_eq!(stream.next().await.watch_id, 1);
    }
}

async fn many_watches_on_one_stream(t: Context) {
    let mut stream = t.watch_stream();
    for number in 0..150 {
        stream.send(RequestUnion::CreateRequest(t.watch_of(&format!("{number}")))).await;
        assert_eq!(stream.next().await.watch_id, number);
    }
    for number in (0..150).rev() {
        let name = format!("{number}");
        let made = t.set(&name, "1").await;
        let response = stream.next().await;
        assert_eq!(response.watch_id, number);
        assert_eq!(response.events, [put_event(t.new_pair(&name, "1", made))]);
    }
}

async fn two_watches_of_one_key(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.create(t.watch_of("a")).await;
    let made = t.set("a", "1").await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let response = stream.next().await;
        assert_eq!(response.events, [put_event(t.new_pair("a", "1", made))]);
        told.push(response.watch_id);
    }
    told.sort_unstable();
    assert_eq!(told, [0, 1]);
}

async fn events_say_whose_they_are(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of_all()).await;
    stream.create(t.watch_of("b")).await;
    for name in ["a", "b"] {
        t.set(name, "1").await;
    }
    // A server may put the changes of two revisions into one response, and sometimes does.
    let mut told = Vec::new();
    while told.len() < 3 {
        let response = stream.next().await;
        let pairs: Vec<_> = response.events.iter().map(|event| event.kv.clone().unwrap()).collect();
        told.extend(t.names(&pairs).into_iter().map(|name| (response.watch_id, name)));
    }
    told.sort();
    assert_eq!(told, [(0, "a".into()), (0, "b".into()), (1, "b".to_owned())]);
}

async fn many_streams_on_one_connection(t: Context) {
    // More than an HTTP/2 server commonly allows: etcd allows any number.
    let mut streams: Vec<WatchStream> = Vec::new();
    for _ in 0..300 {
        let mut stream = t.watch_stream();
        stream.create(t.watch_of("a")).await;
        streams.push(stream);
    }
    let made = t.set("a", "1").await;
    for stream in &mut streams {
        assert_eq!(stream.next().await.events, [put_event(t.new_pair("a", "1", made))]);
    }
}

async fn it_goes_on_when_we_have_no_more_requests(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.end_requests();
    for number in 0..3 {
        t.set("a", &format!("{number}")).await;
        assert_eq!(stream.next().await.events.len(), 1);
    }
}

async fn progress_of_many_watches(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.create(t.watch_of("b")).await;
    let now = t.now().await;
    stream.ask_progress().await;
    // One answer for the stream, not one for each watch.
    let response = stream.next().await;
    assert_eq!((response.watch_id, response.events.len()), (-1, 0));
    assert!(!response.created && !response.canceled);
    assert!(revision(&response.header) >= now);
    assert_eq!(stream.create(t.watch_of("c")).await.watch_id, 2);
}

async fn progress_of_no_watches(t: Context) {
    let mut stream = t.watch_stream();
    stream.ask_progress().await;
    if differences::of(t.arm).progress_without_watches {
        assert_eq!(stream.next().await.watch_id, -1);
    }
    assert_eq!(stream.create(t.watch_of("a")).await.watch_id, 0);
}

/// Five values of half a mebibyte, deleted in one revision, and a watch that wants them back.
async fn two_and_a_half_mebibytes(t: &Context, fragment: bool) -> WatchStream {
    for number in 0..5u8 {
        let value = vec![number; 512 << 10];
        t.put(put(t.key(&format!("{number}")), value)).await.unwrap();
    }
    let mut stream = t.watch_stream();
    let request = pb::WatchCreateRequest { fragment, prev_kv: true, ..t.watch_of_all() };
    stream.create(request).await;
    let (key, range_end) = (t.all().key, t.all().range_end);
    t.delete(pb::DeleteRangeRequest { key, range_end, prev_kv: false }).await.unwrap();
    stream
}

async fn fragments(t: Context) {
    let mut stream = two_and_a_half_mebibytes(&t, true).await;
    let (mut names, mut responses) = (Vec::new(), 0);
    loop {
        let response = stream.next().await;
        responses += 1;
        names.extend(t.names(response.events.iter().map(|event| event.kv.as_ref().unwrap())));
        let size: usize =
            response.events.iter().map(|e| e.prev_kv.as_ref().unwrap().value.len()).sum();
        assert!(size < 2 << 20, "a fragment of {size} bytes");
        if !response.fragment {
            break;
        }
    }
    assert_eq!(names, ["0", "1", "2", "3", "4"]);
    assert!(responses > 1);
}

async fn without_fragments(t: Context) {
    // One revision is one response, however large.
    let mut stream = two_and_a_half_mebibytes(&t, false).await;
    let response = stream.next().await;
    assert!(!response.fragment);
    assert_eq!(response.events.len(), 5);
    assert_eq!(response.events[4].prev_kv.as_ref().unwrap().value.len(), 512 << 10);
}

async fn a_large_past_without_fragments(t: Context) {
    let mut first = 0;
    for number in 0..5u8 {
        let answer = t.put(put(t.key(&format!("{number}")), vec![number; 1 << 20])).await.unwrap();
        first = if number == 0 { revision(&answer.header) } else { first };
    }
    // In how many responses is the server's affair, as long as none is called a fragment.
    let mut watch = t.watch_all(first).await;
    let mut names = Vec::new();
    while names.len() < 5 {
        let response = watch.next().await;
        assert!(!response.fragment);
        names.extend(t.names(response.events.iter().map(|event| event.kv.as_ref().unwrap())));
    }
    assert_eq!(names, ["0", "1", "2", "3", "4"]);
}

async fn a_small_response_is_no_fragment(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(pb::WatchCreateRequest { fragment: true, ..t.watch_of_all() }).await;
    t.set("a", "1").await;
    let response = stream.next().await;
    assert!(!response.fragment);
    assert_eq!(response.events.len(), 1);
}

async fn with_a_leader_wanted(t: Context) {
    // etcdctl asks for this on every watch.
    let request =
        pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(t.watch_of("a"))) };
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    sender.send(request).await.unwrap();
    let outgoing = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
    let mut request = tonic::Request::new(outgoing);
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    let mut client = pb::watch_client::WatchClient::new(t.channel.clone());
    let mut stream = client.watch(request).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().unwrap().created);
    t.set("a", "1").await;
    assert_eq!(stream.message().await.unwrap().unwrap().events.len(), 1);
}

async fn an_empty_request_is_ignored(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    stream.send_raw(pb::WatchRequest { request_union: None }).await;
    assert_eq!(stream.create(t.watch_of("b")).await.watch_id, 1);
}

async fn progress(t: Context) {
    let mut stream = t.watch_stream();
    stream.create(t.watch_of("a")).await;
    let now = t.set("elsewhere", "1").await;
    stream.ask_progress().await;
    let response = stream.next().await;
    assert_eq!((response.watch_id, revision(&response.header)), (-1, now));
    assert_eq!(response.events.len(), 0);
}

async fn the_creation_has_the_current_revision(t: Context) {
    let now = t.set("a", "1").await;
    let mut stream = t.watch_stream();
    for start_revision in [0, now, now + 5] {
        let request = pb::WatchCreateRequest { start_revision, ..t.watch_of("b") };
        let header = stream.create(request).await.header.unwrap();
        assert_eq!(header.revision, now);
        assert!(header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0);
    }
}
