//! Bugs that were, each by the name of what is right.

use bytes::Bytes;
use rallypoint_core::error::StoreError;
use rallypoint_core::kv::{KeyRange, Op, Put, Range, Time, Txn, Watch};
use rallypoint_core::store::Store;

#[test]
fn publishing_never_goes_back_nor_ahead() {
    let mut store = Store::default();
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
    let mut store = Store::default();
    assert_eq!(store.put(wrong.clone()), Err(StoreError::LeaseNotFound));
    let txn = Txn::default().then([Op::Put(wrong)]);
    assert_eq!(store.txn(txn), Err(StoreError::KeyNotFound));
}

#[test]
fn a_key_written_twice_is_the_last_thing_a_transaction_is_refused_for() {
    let twice = Txn::default().then([Op::Put(Put::new("a", "")), Op::Put(Put::new("a", ""))]);
    let nameless = Op::Range(Range::new(KeyRange::key(Bytes::new())));
    let mut store = Store::default();
    assert_eq!(store.txn(twice.clone()), Err(StoreError::DuplicateKey));
    let both = Txn::default().then([Op::Txn(twice), nameless]);
    assert_eq!(store.txn(both), Err(StoreError::KeyNotProvided));
}

#[test]
fn a_watch_that_wants_none_of_the_changes_hears_of_progress() {
    let mut store = Store::default();
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
    let mut store = Store::default();
    assert_eq!(store.lease_grant(Time::ZERO, 0, 60), Err(StoreError::LeaseNotFound));
    store.put(Put::new("a", "")).unwrap();
    assert_eq!(store.lease_revoke(0), Err(StoreError::LeaseNotFound));
    store.publish_all();
    assert_eq!(store.range(&Range::new(KeyRange::key("a"))).unwrap().count, 1);
}
