//! Bugs that were, each by the name of what is right.

use rallypoint_core::kv::{KeyRange, Put, Watch};
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
