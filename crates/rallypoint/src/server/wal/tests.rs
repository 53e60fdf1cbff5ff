//! Files as crashes and accidents leave them, and directories that are not ours.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rallypoint_core::kv::{Event, EventKind, KeyValue};
use rallypoint_core::mvcc::Record;
use tempfile::TempDir;

use super::{CHUNK, HEADER, Wal, WalError};

/// Bytes with long runs of zeros and of anything else among them: what a sector that was never
/// written looks like must not be confused with another program's content.
fn value() -> impl Strategy<Value = Bytes> {
    let run = (any::<u8>(), 0..1500_usize).prop_map(|(byte, length)| vec![byte; length]);
    let zeros = (0..1500_usize).prop_map(|length| vec![0; length]);
    let speck = (0..900_usize, 0..900_usize)
        .prop_map(|(before, after)| [vec![0; before], vec![1], vec![0; after]].concat());
    prop_oneof![vec(any::<u8>(), 0..900), run, zeros, speck].prop_map(Bytes::from)
}

fn record() -> impl Strategy<Value = Record> {
    let event = (any::<bool>(), value(), value(), any::<[i64; 4]>()).prop_map(
        |(put, key, value, [create_revision, mod_revision, version, lease])| Event {
            kind: if put { EventKind::Put } else { EventKind::Delete },
            kv: KeyValue { key, value, create_revision, mod_revision, version, lease },
            prev_kv: None,
        },
    );
    prop_oneof![
        4 => (any::<i64>(), vec(event, 0..3))
            .prop_map(|(revision, events)| Record::Write { revision, events }),
        1 => any::<(i64, i64)>().prop_map(|(id, ttl)| Record::LeaseGranted { id, ttl }),
        1 => any::<i64>().prop_map(|id| Record::LeaseRevoked { id }),
        1 => any::<i64>().prop_map(|revision| Record::Compacted { revision }),
    ]
}

/// What was appended, call by call.
fn batches() -> impl Strategy<Value = Vec<Vec<Record>>> {
    vec(vec(record(), 1..4), 1..5)
}

/// A data directory after a kill, and where each batch lies in its log.
struct Written {
    dir: TempDir,
    batches: Vec<Vec<Record>>,
    frames: Vec<Range<usize>>,
}

impl Written {
    fn new(batches: Vec<Vec<Record>>) -> Self {
        let dir = TempDir::new().unwrap();
        let (mut log, nothing) = Wal::open(dir.path()).unwrap();
        assert_eq!(nothing, []);
        let mut frames = Vec::new();
        for batch in &batches {
            let start = log.len() as usize;
            log.append(batch.clone()).unwrap();
            frames.push(start..log.len() as usize);
        }
        Self { dir, batches, frames }
    }

    fn log(&self) -> std::path::PathBuf {
        self.dir.path().join("log")
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.log()).unwrap()
    }

    fn last_frame(&self) -> Range<usize> {
        self.frames.last().unwrap().clone()
    }

    fn records(&self, batches: usize) -> Vec<Record> {
        self.batches[..batches].concat()
    }

    /// Puts these bytes in the log's place and expects them to be refused and left alone.
    fn assert_refused(&self, bytes: &[u8]) -> String {
        fs::write(self.log(), bytes).unwrap();
        let before = listing(self.dir.path());
        let error = Wal::open(self.dir.path()).expect_err("a damaged log was opened");
        assert!(matches!(error, WalError::Damaged { .. } | WalError::Format { .. }), "{error:?}");
        assert_eq!(listing(self.dir.path()), before, "a refused directory was changed");
        let sentence = error.to_string();
        assert!(sentence.contains(self.log().to_str().unwrap()), "no path in {sentence:?}");
        sentence
    }

    /// Puts these bytes in the log's place and expects the first `batches` to be there, and the log
    /// to be of use.
    fn assert_holds(&self, bytes: &[u8], batches: usize) {
        fs::write(self.log(), bytes).unwrap();
        let more = Record::LeaseGranted { id: 7, ttl: 60 };
        let (mut log, records) = Wal::open(self.dir.path()).unwrap();
        assert_eq!(records, self.records(batches));
        log.append(vec![more.clone()]).unwrap();
        drop(log);
        let (_, records) = Wal::open(self.dir.path()).unwrap();
        assert_eq!(records, [self.records(batches), vec![more]].concat());
    }
}

/// Everything in a directory, with what it holds; a subdirectory holds nothing. The lock is not
/// counted.
fn listing(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named
        .filter(|(name, _)| name != "lock")
        .map(|(name, path)| {
            (name, if path.is_dir() { Vec::new() } else { fs::read(path).unwrap() })
        })
        .collect()
}

fn put(revision: i64, value: impl Into<Bytes>) -> Record {
    let kv = KeyValue {
        key: "key".into(),
        value: value.into(),
        create_revision: revision,
        mod_revision: revision,
        version: 1,
        lease: 0,
    };
    Record::Write { revision, events: vec![Event { kind: EventKind::Put, kv, prev_kv: None }] }
}

/// Each case writes and reads megabytes; PROPTEST_CASES asks for more of them.
fn config() -> ProptestConfig {
    let default = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if asked { default.cases } else { 40 }, ..default }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_was_appended_is_read_back(batches in batches()) {
        let written = Written::new(batches);
        let bytes = written.bytes();
        prop_assert_eq!(bytes.len() as u64 % CHUNK, 0);
        written.assert_holds(&bytes, written.batches.len());
    }

    #[test]
    fn a_log_that_is_cut_off_is_refused(batches in batches(), place in any::<prop::sample::Index>()) {
        let written = Written::new(batches);
        let bytes = written.bytes();
        written.assert_refused(&bytes[..place.index(bytes.len())]);
    }

    /// Twice over: anywhere in the file, and in the last frame, where a torn write could be claimed.
    #[test]
    fn a_flipped_bit_is_never_taken_for_anything_else(
        batches in batches(),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let written = Written::new(batches);
        let bytes = written.bytes();
        let last = written.last_frame();
        let used = last.end + 600;
        for at in [place.index(bytes.len()), place.index(used), last.start + place.index(last.len())] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1_u8 << bit;
            written.assert_refused(&flipped);
        }
    }

    /// A write that stopped half-way: a prefix of the frame, as a kill leaves it, at any byte for
    /// which a sector is whole.
    #[test]
    fn a_torn_last_frame_is_dropped_and_what_came_before_is_kept(
        batches in batches(),
        place in any::<prop::sample::Index>(),
    ) {
        let written = Written::new(batches);
        let last = written.last_frame();
        let boundaries: Vec<usize> =
            last.clone().filter(|at| at % 512 == 0 || *at == last.start).collect();
        let from = boundaries[place.index(boundaries.len())];
        let mut torn = written.bytes();
        torn[from..last.end].fill(0);
        written.assert_holds(&torn, written.batches.len() - 1);
    }

    /// Sectors may reach the disk in any order, the one with the frame's header last of all.
    #[test]
    fn a_last_frame_with_holes_is_dropped(batches in batches(), holes in vec(any::<bool>(), 64)) {
        let written = Written::new(batches);
        let last = written.last_frame();
        let mut torn = written.bytes();
        let (mut from, mut some) = (last.start, false);
        for hole in holes {
            let to = (from + 1).next_multiple_of(512).min(last.end);
            if hole && from < to {
                torn[from..to].fill(0);
                some = true;
            }
            from = to;
        }
        written.assert_holds(&torn, written.batches.len() - usize::from(some));
    }
}

#[test]
fn a_log_cut_off_at_an_interesting_length_is_refused() {
    let big = |revision| vec![put(revision, vec![7; 300_000])];
    let written = Written::new((2..12).map(big).collect());
    let bytes = written.bytes();
    assert_eq!(bytes.len() as u64, 3 * CHUNK);
    let edges = written.frames.iter().flat_map(|frame| [frame.start, frame.end]);
    let sectors = [0, HEADER.len(), 512, 4096, CHUNK as usize, 2 * CHUNK as usize];
    for edge in edges.chain(sectors) {
        for length in edge.saturating_sub(1)..=edge + 1 {
            written.assert_refused(&bytes[..length]);
        }
    }
}

#[test]
fn every_bit_of_the_last_frames_beginning_counts() {
    let written = Written::new(vec![vec![put(2, "first")], vec![put(3, vec![0; 5000])]]);
    let bytes = written.bytes();
    let start = written.last_frame().start;
    for at in start..start + 64 {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1_u8 << bit;
            written.assert_refused(&flipped);
        }
    }
}

/// A lost sector is no torn write if something was acknowledged after it.
#[test]
fn a_lost_sector_before_a_whole_frame_is_refused() {
    let written = Written::new((2..9).map(|revision| vec![put(revision, vec![7; 700])]).collect());
    let last = written.last_frame();
    for sector in (0..last.start / 512).map(|sector| sector * 512) {
        let mut bytes = written.bytes();
        bytes[sector..sector + 512].fill(0);
        written.assert_refused(&bytes);
    }
}

#[test]
fn the_sentence_for_damage_says_where_and_what_to_do() {
    let written = Written::new(vec![vec![put(2, "first")], vec![put(3, "second")]]);
    let mut bytes = written.bytes();
    let at = written.frames[0].end - 1;
    bytes[at] ^= 1;
    let sentence = written.assert_refused(&bytes);
    let offset = written.frames[0].start;
    assert!(sentence.contains(&format!("is damaged at byte {offset}")), "{sentence}");
    assert!(sentence.contains("Restore the file, or move the directory away"), "{sentence}");
}

#[test]
fn another_format_is_refused_by_name() {
    let written = Written::new(vec![vec![put(2, "first")]]);
    let mut other_version = written.bytes();
    other_version[HEADER.len() - 1] = b'2';
    let sentence = written.assert_refused(&other_version);
    assert!(sentence.contains("RALLYPOINT LOG 2"), "{sentence}");
    assert!(sentence.contains("use the version that wrote it"), "{sentence}");
    written.assert_refused(b"");
    written.assert_refused(b"\x7fELF and so on, for longer than a header");
    written.assert_refused(&HEADER[..7]);
    written.assert_refused(&vec![0; CHUNK as usize]);
}

/// Opens a directory that must be refused, and checks that nothing in it changed, down to the lock.
fn refused(dir: &Path) -> WalError {
    let names = |dir: &Path| -> Vec<_> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let before = (listing(dir), names(dir));
    let error = Wal::open(dir).expect_err("a directory that is not ours was opened");
    assert_eq!((listing(dir), names(dir)), before);
    assert!(error.to_string().contains(dir.to_str().unwrap()), "no path in {error}");
    error
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("member/wal")).unwrap();
    let error = refused(dir.path());
    assert!(matches!(&error, WalError::Foreign { found, .. } if found == "member"), "{error:?}");
    assert!(error.to_string().contains("give an empty directory"), "{error}");

    // A file of the name that we use for a moment, where we never were.
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("log.new"), "precious").unwrap();
    assert!(matches!(refused(dir.path()), WalError::Foreign { .. }));
}

#[test]
fn what_cannot_be_anybodys_data_is_no_obstacle() {
    // The root of a new volume.
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("lost+found")).unwrap();
    drop(Wal::open(dir.path()).unwrap());
    // The log's path may hold a file of another program.
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    drop(Wal::open(dir.path()).unwrap());
    assert_eq!(fs::read(dir.path().join("notes.txt")).unwrap(), b"mine");
}

#[test]
fn a_directory_with_somebody_elses_log_gets_no_lock() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("log"), "12:00 started\n12:01 stopped\n").unwrap();
    let error = refused(dir.path());
    assert!(matches!(&error, WalError::Format { .. }), "{error:?}");
    assert!(error.to_string().contains("12:00 started"), "{error}");
}

#[test]
fn a_log_that_is_a_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("log")).unwrap();
    assert!(matches!(refused(dir.path()), WalError::Io { .. }));
}

#[test]
fn a_path_that_is_a_file_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("data");
    fs::write(&path, "precious").unwrap();
    let error = Wal::open(&path).unwrap_err();
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_directory_in_use_is_refused_until_it_is_not() {
    let dir = TempDir::new().unwrap();
    let (mut log, _) = Wal::open(dir.path()).unwrap();
    log.append(vec![put(2, "first")]).unwrap();
    let error = refused(dir.path());
    assert!(matches!(error, WalError::Locked { .. }), "{error:?}");
    assert!(error.to_string().contains("stop it, or give another directory"), "{error}");
    drop(log);
    assert_eq!(Wal::open(dir.path()).unwrap().1, [put(2, "first")]);
}

#[test]
fn a_rewrite_that_was_interrupted_is_forgotten() {
    let dir = TempDir::new().unwrap();
    let (mut log, _) = Wal::open(dir.path()).unwrap();
    log.append(vec![put(2, "first")]).unwrap();
    drop(log);
    fs::write(dir.path().join("log.new"), "half of something").unwrap();
    let (mut log, records) = Wal::open(dir.path()).unwrap();
    assert!(!dir.path().join("log.new").exists(), "it fills the disk until the next rewrite");
    assert_eq!(records, [put(2, "first")]);
    assert!(log.rewrite(vec![put(3, "second")]).unwrap());
    log.append(vec![put(4, "third")]).unwrap();
    drop(log);
    assert!(!dir.path().join("log.new").exists());
    assert_eq!(Wal::open(dir.path()).unwrap().1, [put(3, "second"), put(4, "third")]);

    // Before there ever was a log, it is all that there is.
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("lock"), "").unwrap();
    fs::write(dir.path().join("log.new"), "half of something").unwrap();
    assert_eq!(Wal::open(dir.path()).unwrap().1, []);
}

#[test]
fn a_log_that_was_long_before_a_restart_is_compacted_after_it() {
    let dir = TempDir::new().unwrap();
    let (mut log, _) = Wal::open(dir.path()).unwrap();
    let value = Bytes::from(vec![7; 1 << 20]);
    while !log.is_long() {
        log.append(vec![put(2, value.clone())]).unwrap();
    }
    drop(log);
    let (mut log, _) = Wal::open(dir.path()).unwrap();
    assert!(log.is_long(), "every restart would double what a log may grow to");
    log.rewrite(vec![put(3, value)]).unwrap();
    assert!(!log.is_long());
}

#[test]
fn a_log_that_cannot_be_compacted_is_kept_and_compacted_later() {
    let dir = TempDir::new().unwrap();
    let (mut log, _) = Wal::open(dir.path()).unwrap();
    let value = Bytes::from(vec![7; 1 << 20]);
    while !log.is_due() {
        log.append(vec![put(2, value.clone())]).unwrap();
    }
    let obstacle = dir.path().join("log.new");
    fs::create_dir(&obstacle).unwrap();
    let length = log.len();
    assert!(!log.rewrite(vec![put(3, "dump")]).unwrap());
    assert!(log.is_long() && !log.is_due(), "it would be tried with every batch");
    log.append(vec![put(4, "after")]).unwrap();
    assert!(log.len() > length);
    fs::remove_dir(&obstacle).unwrap();
    let started = Instant::now();
    while !log.is_due() {
        assert!(started.elapsed() < Duration::from_secs(10), "it is not tried again");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(log.rewrite(vec![put(5, "dump")]).unwrap());
    assert!(!log.is_long());
    drop(log);
    assert_eq!(Wal::open(dir.path()).unwrap().1, [put(5, "dump")]);
}

#[test]
fn a_batch_of_many_records_is_read_back_in_order() {
    let dir = TempDir::new().unwrap();
    let (mut log, _) = Wal::open(dir.path()).unwrap();
    let records: Vec<Record> = (1..=2500).map(|id| Record::LeaseGranted { id, ttl: 60 }).collect();
    log.append(records.clone()).unwrap();
    drop(log);
    assert_eq!(Wal::open(dir.path()).unwrap().1, records);
    let path = dir.path().join("log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(Wal::open(dir.path()), Err(WalError::Damaged { .. })));
}
