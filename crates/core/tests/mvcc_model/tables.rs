//! Corners of the store that are easier to read as lists than as properties.

use bytes::Bytes;
use rallypoint_core::kv::{
    Delete, Event, EventKind, KeyRange, KvError, Op, Put, Range, Revision, Time, Txn, Watch,
};
use rallypoint_core::mvcc::{Mvcc, MvccOptions, Record, WatchMessage};

fn bytes(text: &'static [u8]) -> Bytes {
    Bytes::from_static(text)
}

fn put(store: &mut Mvcc, key: &'static [u8], value: &'static str) {
    store.put(Put::new(key, value)).expect("there is room");
}

fn delete(store: &mut Mvcc, key: &'static [u8]) {
    store.delete(KeyRange::key(key).into()).expect("it has a key");
}

/// Everything that a watch hears at once, or `None` if it is told that it was compacted.
fn replay(store: &mut Mvcc, watch: Watch) -> Option<Vec<Event>> {
    let stream = store.open_stream();
    store.watch(stream, None, watch).expect("the range is not empty");
    let heard = match store.next_message(stream) {
        None => Some(Vec::new()),
        Some(WatchMessage::Events { events, .. }) => Some(events),
        Some(WatchMessage::Compacted { .. }) => None,
    };
    store.close_stream(stream);
    heard
}

#[test]
fn prefixes_become_ranges() {
    let span = |from, to| KeyRange::Span(bytes(from), bytes(to));
    let table: [(&'static [u8], KeyRange); 7] = [
        (b"", KeyRange::all()),
        (b"\0", span(b"\0", b"\x01")),
        (b"a", span(b"a", b"b")),
        (b"a\xff", span(b"a\xff", b"b")),
        (b"a\xfe\xff\xff", span(b"a\xfe\xff\xff", b"a\xff")),
        (b"\xff", KeyRange::From(bytes(b"\xff"))),
        (b"\xff\xff", KeyRange::From(bytes(b"\xff\xff"))),
    ];
    for (prefix, range) in table {
        assert_eq!(KeyRange::prefix(prefix), range, "{:?}", bytes(prefix));
    }
}

#[test]
fn ranges_end_where_they_say() {
    const KEYS: [&[u8]; 7] = [b"\0", b"\0\0", b"a", b"a\0", b"a\xff", b"b", b"\xff\xff"];
    let key = |key| KeyRange::Key(bytes(key));
    let span = |from, to| KeyRange::Span(bytes(from), bytes(to));
    let from = |from| KeyRange::From(bytes(from));
    let table: [(KeyRange, &[usize]); 13] = [
        (key(b"a"), &[2]),
        (key(b"c"), &[]),
        (span(b"a", b"b"), &[2, 3, 4]),
        (span(b"a", b"a\0"), &[2]),
        (span(b"a", b"a"), &[]),
        (span(b"b", b"a"), &[]),
        (span(b"\0", b"\0\0"), &[0]),
        (KeyRange::all(), &[0, 1, 2, 3, 4, 5, 6]),
        (from(b"a\0"), &[3, 4, 5, 6]),
        (from(b"\xff\xff\xff"), &[]),
        (KeyRange::prefix(&b"a\xff"[..]), &[4]),
        (KeyRange::prefix(&b"\xff"[..]), &[6]),
        (KeyRange::prefix(&b"\0"[..]), &[0, 1]),
    ];
    for (range, places) in table {
        let mut store = Mvcc::default();
        KEYS.iter().for_each(|key| put(&mut store, key, ""));
        store.publish_all();
        let wanted: Vec<Bytes> = places.iter().map(|place| bytes(KEYS[*place])).collect();
        let keys = |events: Vec<Event>| events.into_iter().map(|event| event.kv.key).collect();

        let found = store.range(&Range::new(range.clone())).unwrap();
        let found: Vec<Bytes> = found.kvs.into_iter().map(|kv| kv.key).collect();
        assert_eq!(found, wanted, "read {range:?}");
        if !range.is_empty() {
            let watch = Watch::new(range.clone()).from_revision(1);
            let heard: Vec<Bytes> = keys(replay(&mut store, watch).expect("nothing is compacted"));
            assert_eq!(heard, wanted, "watched {range:?}");
        }
        let gone = store.delete(Delete { range: range.clone(), prev_kv: true }).unwrap();
        let gone: Vec<Bytes> = gone.prev_kvs.into_iter().map(|kv| kv.key).collect();
        assert_eq!(gone, wanted, "deleted {range:?}");
    }
}

/// 2 puts `a`, 3 deletes it, 4 puts it again and deletes `b`, which was put at 2 too.
fn short_life() -> Mvcc {
    let mut store = Mvcc::default();
    let both = [Op::Put(Put::new("a", "1")), Op::Put(Put::new("b", "1"))];
    store.txn(Txn::default().then(both)).expect("two keys");
    delete(&mut store, b"a");
    let swap = [Op::Put(Put::new("a", "2")), Op::Delete(KeyRange::key("b").into())];
    store.txn(Txn::default().then(swap)).expect("two keys");
    store.publish_all();
    store
}

#[test]
fn compaction_keeps_what_can_still_be_asked() {
    use EventKind::{Delete as D, Put as P};
    type Heard = (Revision, EventKind, &'static str, bool);
    const AT_2: [Heard; 2] = [(2, P, "a", false), (2, P, "b", false)];
    const AT_3: Heard = (3, D, "a", true);
    const AT_4: [Heard; 2] = [(4, P, "a", false), (4, D, "b", true)];
    // Compact at, watch from, what is heard (revision, kind, key, whether with the pair before).
    let table: [(Revision, Revision, Option<Vec<Heard>>); 9] = [
        (1, 1, Some(vec![AT_2[0], AT_2[1], AT_3, AT_4[0], AT_4[1]])),
        (2, 1, None),
        (2, 2, Some(vec![AT_2[0], AT_2[1], AT_3, AT_4[0], AT_4[1]])),
        (3, 2, None),
        // The deletion at the compacted revision is heard; the pair before it is gone.
        (3, 3, Some(vec![(3, D, "a", false), AT_4[0], AT_4[1]])),
        (3, 4, Some(AT_4.to_vec())),
        (4, 3, None),
        (4, 4, Some(vec![(4, P, "a", false), (4, D, "b", false)])),
        (4, 5, Some(vec![])),
    ];
    for (compact, from, wanted) in table {
        let mut store = short_life();
        store.compact(compact).unwrap();
        let watch = Watch { prev_kv: true, ..Watch::new(KeyRange::all()) }.from_revision(from);
        let heard = replay(&mut store, watch).map(|events| {
            let brief = |event: &Event| {
                let key = String::from_utf8(event.kv.key.to_vec()).unwrap();
                (event.kv.mod_revision, event.kind, key, event.prev_kv.is_some())
            };
            events.iter().map(brief).collect::<Vec<_>>()
        });
        let wanted: Option<Vec<_>> = wanted.map(|events| {
            events.into_iter().map(|(at, kind, key, prev)| (at, kind, key.into(), prev)).collect()
        });
        assert_eq!(heard, wanted, "compacted at {compact}, watched from {from}");
    }
}

#[test]
fn a_tombstone_outlives_its_compaction_by_one() {
    let mut store = Mvcc::default();
    put(&mut store, b"a", "1");
    delete(&mut store, b"a");
    put(&mut store, b"b", "1");
    store.publish_all();
    let whole = store.bytes();
    store.compact(3).unwrap();
    let with_tombstone = store.bytes();
    store.compact(4).unwrap();
    let mut only_b = Mvcc::default();
    put(&mut only_b, b"b", "1");
    assert!(whole > with_tombstone && with_tombstone > store.bytes());
    assert_eq!(store.bytes(), only_b.bytes(), "nothing is left of a");
}

#[test]
fn compacting_is_refused_outside_of_what_is_seen() {
    let mut store = short_life();
    put(&mut store, b"c", "staged");
    let table = [
        (-1, Err(KvError::Compacted)),
        (5, Err(KvError::FutureRevision)),
        (0, Ok(())),
        (0, Err(KvError::Compacted)),
        (3, Ok(())),
        (3, Err(KvError::Compacted)),
        (2, Err(KvError::Compacted)),
        (4, Ok(())),
    ];
    for (step, (revision, answer)) in table.into_iter().enumerate() {
        assert_eq!(store.compact(revision), answer, "step {step}");
    }
}

/// Reads a stream to its end, one list of revisions per message.
fn pieces(store: &mut Mvcc, range: KeyRange) -> Vec<Vec<Revision>> {
    let stream = store.open_stream();
    let watch = Watch::new(range).from_revision(1);
    store.watch(stream, None, watch).expect("the range is not empty");
    let mut pieces = Vec::new();
    while let Some(message) = store.next_message(stream) {
        let WatchMessage::Events { events, .. } = message else { panic!("{message:?}") };
        pieces.push(events.iter().map(|event| event.kv.mod_revision).collect());
    }
    pieces
}

#[test]
fn a_long_replay_comes_in_pieces_that_tear_no_revision() {
    let mut store = Mvcc::default();
    for _ in 0..2500 {
        let both = [Op::Put(Put::new("a", "")), Op::Put(Put::new("b", ""))];
        store.txn(Txn::default().then(both)).unwrap();
    }
    store.publish_all();
    for (range, each) in [(KeyRange::all(), 2), (KeyRange::key("b"), 1)] {
        let pieces = pieces(&mut store, range);
        let sizes: Vec<usize> = pieces.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1000 * each, 1000 * each, 500 * each]);
        let wanted = (2..=2501).flat_map(|revision| vec![revision; each]);
        assert!(pieces.concat().into_iter().eq(wanted));
    }
}

#[test]
fn a_large_revision_is_a_message_by_itself() {
    let mut store = Mvcc::default();
    let large = "x".repeat(700 << 10);
    let two = ["a", "b"].map(|key| Op::Put(Put::new(key, large.clone())));
    store.txn(Txn::default().then(two)).unwrap();
    for key in ["a", "b", "c"] {
        store.put(Put::new(key, large.clone())).unwrap();
    }
    store.publish_all();
    assert_eq!(pieces(&mut store, KeyRange::all()), [vec![2, 2], vec![3, 4], vec![5]]);
}

#[test]
fn a_full_store_takes_no_more_but_gives_up_what_it_has() {
    let mut options = MvccOptions::default();
    options.max_bytes = 2000;
    options.keep_revisions = 0;
    let mut store = Mvcc::new(options);
    let full = loop {
        let answer = store.put(Put::new("a", "0123456789"));
        if answer.is_err() {
            break answer;
        }
    };
    assert_eq!(full, Err(KvError::NoSpace));
    let in_txn = Txn::default().then([Op::Put(Put::new("b", ""))]);
    let head = store.head();
    while store.txn(in_txn.clone()).is_ok() {}
    assert_eq!(store.txn(in_txn.clone()), Err(KvError::NoSpace));
    assert!(store.head() <= head + 1, "room for one small pair at most");
    store.delete(KeyRange::all().into()).unwrap();
    store.publish_all();
    store.compact(store.head()).unwrap();
    assert!(store.txn(in_txn).is_ok(), "{} bytes", store.bytes());
}

#[test]
fn records_out_of_order_are_refused() {
    let write = |revision, events| Record::Write { revision, events };
    let mut source = Mvcc::default();
    source.start_journal();
    put(&mut source, b"a", "1");
    let Some(Record::Write { events, .. }) = source.take_journal().pop() else { panic!() };
    let table = [
        (write(5, events.clone()), true),
        (write(5, events.clone()), false),
        (write(4, Vec::new()), false),
        (write(5, Vec::new()), true),
        (write(6, events), true),
    ];
    let mut store = Mvcc::default();
    for (step, (record, accepted)) in table.into_iter().enumerate() {
        assert_eq!(store.restore(Time::ZERO, &record).is_ok(), accepted, "step {step}");
    }
    assert_eq!(store.head(), 6);
}
