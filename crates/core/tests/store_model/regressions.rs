//! Bugs that were, each by the name of what is right.

use rallypoint_core::error::StoreError;
use rallypoint_core::kv::{KeyRange, Put, Range, Time, Watch};
use rallypoint_core::store::Store;

#[test]
fn a_watch_that_wants_none_of_the_changes_hears_of_progress() {
    let mut store = Store::default();
    let stream = store.open_stream();
    let no_puts = Watch { no_put: true, progress_notify: true, ..Watch::new(KeyRange::all()) };
    let id = store.watch(stream, None, no_puts).unwrap();
    assert!(store.quiet_watches(stream).is_empty(), "it was created just now");
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
