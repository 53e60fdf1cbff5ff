//! Random requests, decided by a seed and by what was answered before.

use bytes::Bytes;
use fastrand::Rng;
use pb::compare::TargetUnion;
use pb::request_op::Request;
use rallypoint::proto::etcd as pb;

use super::normal::Answer;

/// One thing to send to both servers.
#[derive(Debug, Clone)]
pub enum Step {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    Delete(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(i64),
    KeepAlive(i64),
    TimeToLive(i64),
    Leases,
    /// Starts a watch whose events are collected to the end. If it has a past to tell, waits until
    /// it told the event of this revision: how quickly etcd tells the past is its own affair, and a
    /// compaction in between would show it.
    Watch(pb::WatchCreateRequest, Option<i64>),
}

/// Makes the steps.
pub struct Generator {
    random: Rng,
    revision: i64,
    compacted: i64,
    watches: usize,
    /// Whether the transaction at hand may delete to the end of all keys. A put that keeps the value
    /// of a key so deleted passes etcd's checks and then takes the whole server down, so there is
    /// none in such a transaction.
    to_the_end: bool,
}

const KEYS: [&[u8]; 9] = [b"a", b"a\0", b"ab", b"b", b"c", b"c/1", b"c/2", b"d", b"\xff"];
const ENDS: [&[u8]; 8] = [b"\0", b"a\0", b"b", b"c", b"c0", b"e", b"\xff\xff", b"a"];
const VALUES: [&[u8]; 5] = [b"", b"x", b"y", b"z", b"\0\xff"];

/// The last lease id that is ever used; not all of them are granted at any time.
const LEASES: i64 = 5;

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
            revision: 1,
            compacted: 0,
            watches: 0,
            to_the_end: false,
        }
    }

    /// Takes note of the revision that both servers are at.
    pub fn learn(&mut self, step: &Step, answer: &Answer) {
        let Answer::Done { revision, .. } = answer else { return };
        self.revision = self.revision.max(*revision);
        if let Step::Compact(request) = step {
            self.compacted = request.revision;
        }
    }

    /// The next step, or steps that belong together.
    pub fn next(&mut self) -> Vec<Step> {
        let step = match self.random.u8(..100) {
            0..22 => Step::Put(self.put()),
            22..44 => Step::Range(self.range()),
            44..54 => Step::Delete(self.delete()),
            54..78 => {
                self.to_the_end = self.chance(50);
                Step::Txn(self.txn(0))
            }
            78..83 => Step::Grant(pb::LeaseGrantRequest {
                id: self.random.i64(1..=LEASES),
                ttl: self.pick(&[600, 700, 9_000_000_001]),
            }),
            83..86 => Step::Revoke(self.lease()),
            86..89 => Step::TimeToLive(self.lease()),
            89..90 => Step::Leases,
            90..92 => Step::KeepAlive(self.lease()),
            92..95 => Step::Compact(pb::CompactionRequest {
                revision: self.some_revision(),
                physical: self.random.bool(),
            }),
            _ => return self.watch(),
        };
        vec![step]
    }

    /// The whole state, now and as far back as it goes.
    pub fn last(&self) -> Vec<Step> {
        let zero = Bytes::from_static(b"\0");
        let at = |revision| {
            let (key, range_end) = (zero.clone(), zero.clone());
            Step::Range(pb::RangeRequest { key, range_end, revision, ..Default::default() })
        };
        let since = self.compacted.max(self.revision - 60).max(1);
        let mut steps = vec![at(0), Step::Leases];
        steps.extend((since..=self.revision).map(at));
        steps.extend((1..=LEASES).map(Step::TimeToLive));
        steps
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.random.usize(..items.len())]
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    fn key(&mut self) -> Bytes {
        if self.chance(1) {
            return Bytes::new();
        }
        Bytes::from_static(self.pick(&KEYS))
    }

    fn end(&mut self) -> Bytes {
        if self.chance(45) { Bytes::new() } else { Bytes::from_static(self.pick(&ENDS)) }
    }

    fn value(&mut self) -> Bytes {
        Bytes::from_static(self.pick(&VALUES))
    }

    fn lease(&mut self) -> i64 {
        if self.chance(3) { -1 } else { self.random.i64(0..=LEASES) }
    }

    /// Mostly one that can be read, sometimes just outside.
    fn some_revision(&mut self) -> i64 {
        match self.random.u8(..10) {
            0 => self.pick(&[-1, 0, 1, i64::MAX]),
            1 => self.revision + self.random.i64(0..3),
            2 => self.compacted + self.random.i64(-1..=1),
            _ => self.random.i64(self.compacted.max(1).min(self.revision)..=self.revision),
        }
    }

    fn range(&mut self) -> pb::RangeRequest {
        let mut request =
            pb::RangeRequest { key: self.key(), range_end: self.end(), ..Default::default() };
        if self.chance(35) {
            request.revision = self.some_revision();
        }
        if self.chance(40) {
            request.limit = self.random.i64(-1..5);
        }
        if self.chance(40) {
            request.sort_order = self.random.i32(0..3);
            request.sort_target = self.random.i32(0..5);
        }
        request.serializable = self.chance(20);
        request.keys_only = self.chance(15);
        request.count_only = self.chance(10);
        for bound in [
            &mut request.min_mod_revision,
            &mut request.max_mod_revision,
            &mut request.min_create_revision,
            &mut request.max_create_revision,
        ] {
            if self.random.u8(..100) < 10 {
                *bound = self.random.i64(-1..=self.revision + 1);
            }
        }
        request
    }

    fn put(&mut self) -> pb::PutRequest {
        let mut request =
            pb::PutRequest { key: self.key(), value: self.value(), ..Default::default() };
        if self.chance(35) {
            request.lease = self.lease();
        }
        request.prev_kv = self.chance(30);
        if self.chance(10) {
            request.ignore_value = true;
            if self.chance(80) {
                request.value = Bytes::new();
            }
        }
        if self.chance(10) {
            request.ignore_lease = true;
            if self.chance(80) {
                request.lease = 0;
            }
        }
        request
    }

    fn delete(&mut self) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest { key: self.key(), range_end: self.end(), prev_kv: self.chance(40) }
    }

    fn txn(&mut self, depth: usize) -> pb::TxnRequest {
        let compares = self.random.usize(..3);
        pb::TxnRequest {
            compare: (0..compares).map(|_| self.compare()).collect(),
            success: self.ops(depth),
            failure: self.ops(depth),
        }
    }

    fn ops(&mut self, depth: usize) -> Vec<pb::RequestOp> {
        if self.chance(1) {
            // Around the limit, with what else could be wrong left out.
            let read = pb::RangeRequest { key: "a".into(), ..Default::default() };
            let read = pb::RequestOp { request: Some(Request::RequestRange(read)) };
            return vec![read; 127 + self.random.usize(..3)];
        }
        let count = self.random.usize(..4);
        (0..count).map(|_| self.op(depth)).collect()
    }

    fn op(&mut self, depth: usize) -> pb::RequestOp {
        let request = match self.random.u8(..100) {
            0..35 => {
                let mut put = self.put();
                if self.to_the_end {
                    (put.ignore_value, put.ignore_lease) = (false, false);
                }
                Request::RequestPut(put)
            }
            35..65 => Request::RequestRange(self.range()),
            65..85 => {
                let mut delete = self.delete();
                if !self.to_the_end && delete.range_end == "\0" {
                    delete.range_end = Bytes::new();
                }
                Request::RequestDeleteRange(delete)
            }
            85..99 if depth < 3 => Request::RequestTxn(self.txn(depth + 1)),
            85..99 => Request::RequestRange(self.range()),
            _ => return pb::RequestOp { request: None },
        };
        pb::RequestOp { request: Some(request) }
    }

    fn compare(&mut self) -> pb::Compare {
        let revision = self.random.i64(0..=self.revision + 1);
        let union = match self.random.u8(..11) {
            0 | 1 => Some(TargetUnion::Version(self.random.i64(0..4))),
            2 | 3 => Some(TargetUnion::CreateRevision(revision)),
            4 | 5 => Some(TargetUnion::ModRevision(revision)),
            6 | 7 => Some(TargetUnion::Value(self.value())),
            8 | 9 => Some(TargetUnion::Lease(self.lease())),
            _ => None,
        };
        let kind = match union {
            None => self.random.i32(0..5),
            Some(TargetUnion::Version(_)) => 0,
            Some(TargetUnion::CreateRevision(_)) => 1,
            Some(TargetUnion::ModRevision(_)) => 2,
            Some(TargetUnion::Value(_)) => 3,
            Some(TargetUnion::Lease(_)) => 4,
        };
        // Now and then a value of another kind than the target says.
        let target = if self.chance(3) { self.random.i32(0..5) } else { kind };
        let range_end = if self.chance(30) { self.end() } else { Bytes::new() };
        let result = self.random.i32(0..4);
        pb::Compare { result, target, key: self.key(), target_union: union, range_end }
    }

    fn watch(&mut self) -> Vec<Step> {
        if self.watches == 8 {
            return Vec::new();
        }
        self.watches += 1;
        let mut request = pb::WatchCreateRequest {
            key: Bytes::from_static(self.pick(&KEYS)),
            range_end: self.end(),
            prev_kv: self.chance(50),
            ..Default::default()
        };
        // A filter for one kind only: with both there is nothing to compare.
        let filter = self.random.i32(0..5);
        if filter < 2 {
            request.filters = vec![filter];
        }
        if self.chance(30) {
            request.start_revision =
                if self.chance(50) { 0 } else { self.revision + self.random.i64(1..10) };
            return vec![Step::Watch(request, None)];
        }
        // The past. What is at the compacted revision itself differs between versions.
        let mut start = self.random.i64(1..=self.revision);
        if start == self.compacted {
            start += 1;
        }
        request.start_revision = start;
        // Its last event is one that we make, of the kind that the watch lets through.
        let key = request.key.clone();
        let put = pb::PutRequest { key: key.clone(), value: "mark".into(), ..Default::default() };
        let mut steps = vec![Step::Put(put)];
        if filter == 0 {
            steps.push(Step::Delete(pb::DeleteRangeRequest { key, ..Default::default() }));
        }
        let mark = self.revision + steps.len() as i64;
        steps.push(Step::Watch(request, Some(mark)));
        steps
    }
}
