//! Bugs that were, each by the name of what is right.

use bytes::Bytes;
use rallypoint_core::kv::{KeyRange, KvError, Op, Put, Range, Time, Txn, Watch};
use rallypoint_core::mvcc::{Mvcc, MvccOptions, WatchMessage};

#[test]
fn publishing_never_goes_back_nor_ahead() {
    let mut store = Mvcc::default();
    let stream = store.open_stream();
    store.watch(stream, None, Watch::new(KeyRange::all())).unwrap();
    for value in ["1", "2", "3"] {
        store.put(Put::new("a", value)).unwrap();
    }
    assert_eq!(store.publish(3), [stream]);
    assert!(store.next_message(stream).is_some());
    for older in [2, 1, 0, -1] {
        assert!(store.publish(older).is_empty(), "{older} was seen long ago");
        assert_eq!(store.revision(), 3);
    }
    assert_eq!(store.publish(9), [stream]);
    assert_eq!(store.revision(), 4, "there is no revision 9 to be seen");
    assert!(store.next_message(stream).is_some());
    assert_eq!(store.next_message(stream), None, "each event is heard once");
}

#[test]
fn a_put_by_itself_looks_for_its_lease_first() {
    let wrong = Put { ignore_value: true, ..Put::new("missing", "").on_lease(7) };
    let mut store = Mvcc::default();
    assert_eq!(store.put(wrong.clone()), Err(KvError::LeaseNotFound));
    let txn = Txn::default().then([Op::Put(wrong)]);
    assert_eq!(store.txn(txn), Err(KvError::KeyNotFound));
}

#[test]
fn a_key_written_twice_is_the_last_thing_a_transaction_is_refused_for() {
    let twice = Txn::default().then([Op::Put(Put::new("a", "")), Op::Put(Put::new("a", ""))]);
    let nameless = Op::Range(Range::new(KeyRange::key(Bytes::new())));
    let mut store = Mvcc::default();
    assert_eq!(store.txn(twice.clone()), Err(KvError::DuplicateKey));
    let both = Txn::default().then([Op::Txn(twice), nameless]);
    assert_eq!(store.txn(both), Err(KvError::KeyNotProvided));
}

#[test]
fn a_watch_that_wants_none_of_the_changes_hears_of_progress() {
    let mut store = Mvcc::default();
    let stream = store.open_stream();
    let no_puts = Watch { no_put: true, progress_notify: true, ..Watch::new(KeyRange::all()) };
    let id = store.watch(stream, None, no_puts).unwrap();
    for _ in 0..3 {
        store.put(Put::new("a", "")).unwrap();
        store.publish_all();
        assert_eq!(store.next_message(stream), None);
        assert_eq!(store.quiet_watches(stream), [id]);
    }
}

#[test]
fn no_lease_is_a_lease_that_cannot_be_granted() {
    let mut store = Mvcc::default();
    assert_eq!(store.lease_grant(Time::ZERO, 0, 60), Err(KvError::LeaseNotFound));
    store.put(Put::new("a", "")).unwrap();
    assert_eq!(store.lease_revoke(0), Err(KvError::LeaseNotFound));
    store.publish_all();
    assert_eq!(store.range(&Range::new(KeyRange::key("a"))).unwrap().count, 1);
}

/// A store with so much memory, and the history that is usual.
fn with_bytes(max_bytes: usize) -> Mvcc {
    let mut options = MvccOptions::default();
    options.max_bytes = max_bytes;
    Mvcc::new(options)
}

/// It refused every put for ever: space was counted in bytes, history was trimmed by its length.
#[test]
fn an_empty_store_whose_history_has_filled_its_space_takes_puts() {
    let mut store = with_bytes(16 << 20);
    for round in 0..200 {
        store.put(Put::new("a", vec![7; 1 << 20])).unwrap_or_else(|why| panic!("{round}: {why}"));
        store.delete(KeyRange::key("a").into()).unwrap();
        store.publish_all();
        let history = store.bytes() - store.live_bytes();
        assert!(history <= 4 << 20, "history takes {history} bytes in round {round}");
    }
    assert!(store.bytes() < 4 << 20 && store.live_bytes() == 0);
    assert!(store.compacted() > 300, "{}", store.compacted());
}

/// Only what exists can be too much.
#[test]
fn history_gives_way_before_a_put_is_refused() {
    let mut store = with_bytes(16 << 20);
    let megabyte = Bytes::from(vec![7; 1 << 20]);
    for number in 0..10 {
        store.put(Put::new(number.to_string(), megabyte.clone())).unwrap();
        store.publish_all();
    }
    // 3 of history now, and 4 to come: more than there is room for beside them.
    for number in 0..3 {
        store.put(Put::new(number.to_string(), megabyte.clone())).unwrap();
        store.publish_all();
    }
    assert_eq!(store.compacted(), -1, "nothing was forgotten without need");
    for number in 10..13 {
        store.put(Put::new(number.to_string(), megabyte.clone())).unwrap();
        store.publish_all();
    }
    assert!(store.compacted() > 0);
    let compacted = store.compacted();
    for _ in 0..2 {
        let more = Put::new("more", vec![7; 3 << 20]);
        assert_eq!(store.put(more), Err(KvError::NoSpace));
        assert_eq!(store.compacted(), compacted, "history is not given away for a refusal");
    }
}

/// A client that fills the store with large values must not keep a group from forming in it.
#[test]
fn large_values_leave_room_for_small_writes() {
    let mut store = with_bytes(16 << 20);
    let full = (0..).find_map(|number| {
        store.publish_all();
        store.put(Put::new(format!("large/{number}"), vec![7; 1 << 20])).err()
    });
    assert_eq!(full, Some(KvError::NoSpace));
    store.lease_grant(Time::ZERO, 7, 60).unwrap();
    for number in 0..500 {
        let node = Put::new(format!("node/{number}"), vec![b'x'; 1 << 10]).on_lease(7);
        store.put(node).unwrap();
        let active = Txn::default().then([Op::Put(Put::new("active", number.to_string()))]);
        store.txn(active).unwrap();
        store.publish_all();
    }
    store.lease_revoke(7).unwrap();
    store.delete(KeyRange::key("active").into()).unwrap();
    store.publish_all();
    assert_eq!(store.put(Put::new("large", vec![7; 1 << 20])), Err(KvError::NoSpace));
}

/// A watch that history was taken from learns it: no gap goes unnoticed.
#[test]
fn a_watch_whose_history_gave_way_is_told_so() {
    let mut store = with_bytes(16 << 20);
    let stream = store.open_stream();
    let id = store.watch(stream, None, Watch::new(KeyRange::key("a"))).unwrap();
    for _ in 0..40 {
        store.put(Put::new("a", vec![7; 1 << 20])).unwrap();
        store.publish_all();
    }
    let compacted = store.compacted();
    assert_eq!(store.next_message(stream), Some(WatchMessage::Compacted { id, compacted }));
}
