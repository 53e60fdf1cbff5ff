use super::*;

#[test]
fn an_empty_span_never_widens_on_the_wire() {
    for (start, end) in [("k", ""), ("k", "\0"), ("k", "a"), ("k", "k"), ("\0", ""), ("\0", "\0")] {
        let span = kv::KeyRange::Span(start.into(), end.into());
        assert!(span.is_empty());
        let (key, range_end) = wire_range(span);
        assert!(key_range(key, range_end).is_empty(), "{start:?} to {end:?}");
    }
}

#[test]
fn ranges_survive_the_wire() {
    for range in [
        kv::KeyRange::key("k"),
        kv::KeyRange::prefix("k"),
        kv::KeyRange::all(),
        kv::KeyRange::prefix(&b"\xff\xff"[..]),
    ] {
        let (key, end) = wire_range(range.clone());
        assert_eq!(key_range(key, end), range);
    }
}

#[test]
fn refusals_are_recognised_by_their_text() {
    let sent = status(StoreError::Compacted);
    assert_eq!(sent.code(), Code::OutOfRange);
    assert_eq!(store_error(&sent), Some(StoreError::Compacted));
    assert_eq!(store_error(&Status::internal("etcdserver: no idea")), None);
}
