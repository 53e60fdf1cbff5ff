//! Requests that decode, with anything in them.

use bytes::Bytes;
use prost::Message;
use rallypoint::proto::etcd as pb;

/// Makes messages by chance.
pub(super) struct Messages<'a>(pub(super) &'a mut fastrand::Rng);

impl Messages<'_> {
    /// A request of the type that `path` takes, if it takes any.
    pub(super) fn encoded(&mut self, path: &str) -> Vec<u8> {
        match path.rsplit('/').next().unwrap() {
            "Range" => self.range().encode_to_vec(),
            "Put" => self.put().encode_to_vec(),
            "DeleteRange" => self.delete().encode_to_vec(),
            "Txn" => self.txn(4).encode_to_vec(),
            "Compact" => pb::CompactionRequest { revision: self.number(), physical: self.0.bool() }
                .encode_to_vec(),
            "Watch" if path.starts_with("/etcd") => self.watch().encode_to_vec(),
            "LeaseGrant" => {
                pb::LeaseGrantRequest { ttl: self.number(), id: self.number() }.encode_to_vec()
            }
            "LeaseRevoke" => pb::LeaseRevokeRequest { id: self.number() }.encode_to_vec(),
            "LeaseKeepAlive" => pb::LeaseKeepAliveRequest { id: self.number() }.encode_to_vec(),
            "LeaseTimeToLive" => {
                pb::LeaseTimeToLiveRequest { id: self.number(), keys: self.0.bool() }
                    .encode_to_vec()
            }
            "Alarm" => {
                pb::AlarmRequest { action: self.0.i32(-1..4), ..Default::default() }.encode_to_vec()
            }
            "Authenticate" => {
                let text = "x".repeat(self.0.usize(..2000));
                pb::AuthenticateRequest { name: text.clone(), password: text }.encode_to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Few numbers often, so that leases and revisions exist, and the far ends of the scale.
    fn number(&mut self) -> i64 {
        match self.0.u8(..8) {
            0 => i64::MIN,
            1 => i64::MAX,
            2 => self.0.i64(..),
            3 => -1,
            _ => self.0.i64(0..12),
        }
    }

    fn key(&mut self) -> Bytes {
        match self.0.u8(..8) {
            0 => Bytes::new(),
            1 => Bytes::from_static(b"\0"),
            2 => vec![0xff; self.0.usize(1..4)].into(),
            3 => vec![self.0.u8(..); self.0.usize(1..500)].into(),
            _ => vec![self.0.u8(b'a'..b'f')].into(),
        }
    }

    fn range(&mut self) -> pb::RangeRequest {
        pb::RangeRequest {
            key: self.key(),
            range_end: self.key(),
            limit: self.number(),
            revision: if self.0.bool() { 0 } else { self.number() },
            sort_order: self.0.i32(-1..5),
            sort_target: self.0.i32(-1..7),
            serializable: self.0.bool(),
            keys_only: self.0.bool(),
            count_only: self.0.bool(),
            min_mod_revision: self.number(),
            max_mod_revision: self.number(),
            min_create_revision: self.number(),
            max_create_revision: self.number(),
        }
    }

    fn put(&mut self) -> pb::PutRequest {
        let value = if self.0.bool() { Bytes::new() } else { vec![7; self.0.usize(..3000)].into() };
        pb::PutRequest {
            key: self.key(),
            value,
            lease: if self.0.bool() { 0 } else { self.number() },
            prev_kv: self.0.bool(),
            ignore_value: self.0.u8(..6) == 0,
            ignore_lease: self.0.u8(..6) == 0,
        }
    }

    fn delete(&mut self) -> pb::DeleteRangeRequest {
        pb::DeleteRangeRequest { key: self.key(), range_end: self.key(), prev_kv: self.0.bool() }
    }

    fn compare(&mut self) -> pb::Compare {
        use pb::compare::TargetUnion;
        let union = match self.0.u8(..7) {
            0 => None,
            1 => Some(TargetUnion::Version(self.number())),
            2 => Some(TargetUnion::CreateRevision(self.number())),
            3 => Some(TargetUnion::ModRevision(self.number())),
            4 => Some(TargetUnion::Value(self.key())),
            _ => Some(TargetUnion::Lease(self.number())),
        };
        pb::Compare {
            result: self.0.i32(0..5),
            target: self.0.i32(0..6),
            key: self.key(),
            range_end: if self.0.bool() { Bytes::new() } else { self.key() },
            target_union: union,
        }
    }

    fn op(&mut self, depth: usize) -> pb::RequestOp {
        use pb::request_op::Request;
        let request = match self.0.u8(..9) {
            0 => None,
            1..3 => Some(Request::RequestRange(self.range())),
            3..5 => Some(Request::RequestPut(self.put())),
            5 => Some(Request::RequestDeleteRange(self.delete())),
            _ if depth == 0 => None,
            _ => Some(Request::RequestTxn(self.txn(depth - 1))),
        };
        pb::RequestOp { request }
    }

    fn txn(&mut self, depth: usize) -> pb::TxnRequest {
        // Seldom so many that it is refused for that alone.
        let most = if self.0.u8(..10) == 0 { 140 } else { 4 };
        let count = self.0.usize(..most);
        pb::TxnRequest {
            compare: (0..self.0.usize(..3)).map(|_| self.compare()).collect(),
            success: (0..count).map(|_| self.op(depth)).collect(),
            failure: (0..self.0.usize(..3)).map(|_| self.op(depth)).collect(),
        }
    }

    fn watch(&mut self) -> pb::WatchRequest {
        use pb::watch_request::RequestUnion;
        let union = match self.0.u8(..6) {
            0 => None,
            1 => Some(RequestUnion::CancelRequest(pb::WatchCancelRequest {
                watch_id: self.number(),
            })),
            2 => Some(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})),
            _ => Some(RequestUnion::CreateRequest(pb::WatchCreateRequest {
                key: self.key(),
                range_end: self.key(),
                start_revision: self.number(),
                progress_notify: self.0.bool(),
                filters: (0..self.0.usize(..3)).map(|_| self.0.i32(-1..4)).collect(),
                prev_kv: self.0.bool(),
                watch_id: self.number(),
                fragment: self.0.bool(),
            })),
        };
        pb::WatchRequest { request_union: union }
    }
}
