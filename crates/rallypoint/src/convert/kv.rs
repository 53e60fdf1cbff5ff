//! Key-value requests and their responses: ranges, puts, deletions and transactions.

use bytes::Bytes;
use rallypoint_core::kv;
use tonic::Status;

use super::{all_into, header, revision, status};
use crate::proto::etcd as pb;

// ---- Ranges of keys

/// A lone zero byte as the end of a range means "no end".
const NO_END: &[u8] = b"\0";

pub(super) fn key_range(key: Bytes, range_end: Bytes) -> kv::KeyRange {
    if range_end.is_empty() {
        kv::KeyRange::Key(key)
    } else if range_end == NO_END {
        kv::KeyRange::From(key)
    } else {
        kv::KeyRange::Span(key, range_end)
    }
}

pub(super) fn wire_range(range: kv::KeyRange) -> (Bytes, Bytes) {
    match range {
        kv::KeyRange::Key(key) => (key, Bytes::new()),
        kv::KeyRange::From(key) => (key, Bytes::from_static(NO_END)),
        // An empty span must stay empty on the wire, where an end may read as "one key" or "no end".
        // So it ends where it begins, but for the one beginning that would mean "everything".
        kv::KeyRange::Span(start, end) if end <= start => {
            let end = if start == NO_END { Bytes::from_static(b"\0\0") } else { start };
            (end.clone(), end)
        }
        kv::KeyRange::Span(start, end) => (start, end),
    }
}

// ---- Pairs and events

/// Two types that differ in nothing but where they come from, and the ways between them.
macro_rules! mirror {
    (struct $core:ty, $wire:ty, $($field:ident)*) => {
        impl From<$core> for $wire {
            fn from(it: $core) -> Self {
                Self { $($field: it.$field),* }
            }
        }
        impl From<$wire> for $core {
            fn from(it: $wire) -> Self {
                Self { $($field: it.$field),* }
            }
        }
    };
    (enum $core:ty, $wire:ty, $($name:ident)*) => {
        impl From<$core> for $wire {
            fn from(it: $core) -> Self {
                match it { $(<$core>::$name => Self::$name),* }
            }
        }
        impl From<$wire> for $core {
            fn from(it: $wire) -> Self {
                match it { $(<$wire>::$name => Self::$name),* }
            }
        }
    };
}

mirror!(struct kv::KeyValue, pb::KeyValue,
    key value create_revision mod_revision version lease);
mirror!(struct kv::Put, pb::PutRequest,
    key value lease prev_kv ignore_value ignore_lease);
mirror!(enum kv::EventKind, pb::event::EventType, Put Delete);
mirror!(enum kv::SortOrder, pb::range_request::SortOrder, None Ascend Descend);
mirror!(enum kv::SortTarget, pb::range_request::SortTarget, Key Version Create Mod Value);
mirror!(enum kv::Relation, pb::compare::CompareResult, Equal NotEqual Greater Less);

impl From<kv::Event> for pb::Event {
    fn from(event: kv::Event) -> Self {
        Self {
            r#type: pb::event::EventType::from(event.kind).into(),
            kv: Some(event.kv.into()),
            prev_kv: event.prev_kv.map(Into::into),
        }
    }
}

impl From<pb::Event> for kv::Event {
    fn from(event: pb::Event) -> Self {
        Self {
            kind: event.r#type().into(),
            kv: event.kv.unwrap_or_default().into(),
            prev_kv: event.prev_kv.map(Into::into),
        }
    }
}

// ---- Requests

impl From<kv::Range> for pb::RangeRequest {
    fn from(range: kv::Range) -> Self {
        use pb::range_request::{SortOrder, SortTarget};
        let (key, range_end) = wire_range(range.range);
        Self {
            key,
            range_end,
            limit: range.limit,
            revision: range.revision,
            sort_order: SortOrder::from(range.sort_order).into(),
            sort_target: SortTarget::from(range.sort_target).into(),
            serializable: false,
            keys_only: range.keys_only,
            count_only: range.count_only,
            min_mod_revision: range.min_mod_revision,
            max_mod_revision: range.max_mod_revision,
            min_create_revision: range.min_create_revision,
            max_create_revision: range.max_create_revision,
        }
    }
}

impl From<pb::RangeRequest> for kv::Range {
    fn from(range: pb::RangeRequest) -> Self {
        Self {
            // A sort option that does not exist counts as none, as in etcd 3.4 and 3.5.
            sort_order: range.sort_order().into(),
            sort_target: range.sort_target().into(),
            range: key_range(range.key, range.range_end),
            revision: range.revision,
            limit: range.limit,
            keys_only: range.keys_only,
            count_only: range.count_only,
            min_mod_revision: range.min_mod_revision,
            max_mod_revision: range.max_mod_revision,
            min_create_revision: range.min_create_revision,
            max_create_revision: range.max_create_revision,
        }
    }
}

impl From<kv::Delete> for pb::DeleteRangeRequest {
    fn from(delete: kv::Delete) -> Self {
        let (key, range_end) = wire_range(delete.range);
        Self { key, range_end, prev_kv: delete.prev_kv }
    }
}

impl From<pb::DeleteRangeRequest> for kv::Delete {
    fn from(delete: pb::DeleteRangeRequest) -> Self {
        Self { range: key_range(delete.key, delete.range_end), prev_kv: delete.prev_kv }
    }
}

impl From<kv::Compare> for pb::Compare {
    fn from(compare: kv::Compare) -> Self {
        use pb::compare::{CompareResult, CompareTarget, TargetUnion};
        let (key, range_end) = wire_range(compare.range);
        let (target, union) = match compare.target {
            kv::CompareTarget::Version(v) => (CompareTarget::Version, TargetUnion::Version(v)),
            kv::CompareTarget::Create(v) => (CompareTarget::Create, TargetUnion::CreateRevision(v)),
            kv::CompareTarget::Mod(v) => (CompareTarget::Mod, TargetUnion::ModRevision(v)),
            kv::CompareTarget::Value(v) => (CompareTarget::Value, TargetUnion::Value(v)),
            kv::CompareTarget::Lease(v) => (CompareTarget::Lease, TargetUnion::Lease(v)),
        };
        Self {
            result: CompareResult::from(compare.relation).into(),
            target: target.into(),
            key,
            range_end,
            target_union: Some(union),
        }
    }
}

impl TryFrom<pb::Compare> for kv::Compare {
    type Error = Status;

    fn try_from(compare: pb::Compare) -> Result<Self, Status> {
        use pb::compare::{CompareResult, CompareTarget, TargetUnion};
        let Ok(result) = CompareResult::try_from(compare.result) else {
            return Err(unknown_enum("Compare.result", compare.result));
        };
        let Ok(target) = CompareTarget::try_from(compare.target) else {
            return Err(unknown_enum("Compare.target", compare.target));
        };
        // Without a value, or with one of another kind, etcd compares with nothing: 0 or no bytes.
        let target = match (target, compare.target_union) {
            (CompareTarget::Version, Some(TargetUnion::Version(v))) => {
                kv::CompareTarget::Version(v)
            }
            (CompareTarget::Version, _) => kv::CompareTarget::Version(0),
            (CompareTarget::Create, Some(TargetUnion::CreateRevision(v))) => {
                kv::CompareTarget::Create(v)
            }
            (CompareTarget::Create, _) => kv::CompareTarget::Create(0),
            (CompareTarget::Mod, Some(TargetUnion::ModRevision(v))) => kv::CompareTarget::Mod(v),
            (CompareTarget::Mod, _) => kv::CompareTarget::Mod(0),
            (CompareTarget::Value, Some(TargetUnion::Value(v))) => kv::CompareTarget::Value(v),
            (CompareTarget::Value, _) => kv::CompareTarget::Value(Bytes::new()),
            (CompareTarget::Lease, Some(TargetUnion::Lease(v))) => kv::CompareTarget::Lease(v),
            (CompareTarget::Lease, _) => kv::CompareTarget::Lease(0),
        };
        let relation = result.into();
        Ok(Self { range: key_range(compare.key, compare.range_end), relation, target })
    }
}

fn unknown_enum(field: &str, value: i32) -> Status {
    Status::invalid_argument(format!("rallypoint: {field} has no value {value}"))
}

impl From<kv::Op> for pb::RequestOp {
    fn from(op: kv::Op) -> Self {
        use pb::request_op::Request;
        Self {
            request: Some(match op {
                kv::Op::Range(range) => Request::RequestRange(range.into()),
                kv::Op::Put(put) => Request::RequestPut(put.into()),
                kv::Op::Delete(delete) => Request::RequestDeleteRange(delete.into()),
                kv::Op::Txn(txn) => Request::RequestTxn(txn.into()),
            }),
        }
    }
}

impl TryFrom<pb::RequestOp> for kv::Op {
    type Error = Status;

    fn try_from(op: pb::RequestOp) -> Result<Self, Status> {
        use pb::request_op::Request;
        match op.request {
            Some(Request::RequestRange(range)) => Ok(Self::Range(range.into())),
            Some(Request::RequestPut(put)) => Ok(Self::Put(put.into())),
            Some(Request::RequestDeleteRange(delete)) => Ok(Self::Delete(delete.into())),
            Some(Request::RequestTxn(txn)) => Ok(Self::Txn(txn.try_into()?)),
            // etcd's answer to an operation that is none.
            None => Err(status(kv::KvError::KeyNotFound)),
        }
    }
}

impl From<kv::Txn> for pb::TxnRequest {
    fn from(txn: kv::Txn) -> Self {
        Self {
            compare: all_into(txn.compares),
            success: all_into(txn.success),
            failure: all_into(txn.failure),
        }
    }
}

/// A transaction as it was asked for, unless it makes no sense.
pub(crate) fn txn(request: pb::TxnRequest) -> Result<kv::Txn, Status> {
    request.try_into()
}

impl TryFrom<pb::TxnRequest> for kv::Txn {
    type Error = Status;

    fn try_from(txn: pb::TxnRequest) -> Result<Self, Status> {
        fn all<A: TryInto<B, Error = Status>, B>(items: Vec<A>) -> Result<Vec<B>, Status> {
            items.into_iter().map(TryInto::try_into).collect()
        }
        Ok(Self {
            compares: all(txn.compare)?,
            success: all(txn.success)?,
            failure: all(txn.failure)?,
        })
    }
}

// ---- Responses

impl From<kv::RangeResult> for pb::RangeResponse {
    fn from(result: kv::RangeResult) -> Self {
        Self {
            header: header(result.revision),
            kvs: all_into(result.kvs),
            more: result.more,
            count: result.count,
        }
    }
}

impl From<pb::RangeResponse> for kv::RangeResult {
    fn from(response: pb::RangeResponse) -> Self {
        Self {
            revision: revision(response.header.as_ref()),
            kvs: all_into(response.kvs),
            more: response.more,
            count: response.count,
        }
    }
}

impl From<kv::PutResult> for pb::PutResponse {
    fn from(result: kv::PutResult) -> Self {
        Self { header: header(result.revision), prev_kv: result.prev_kv.map(Into::into) }
    }
}

impl From<pb::PutResponse> for kv::PutResult {
    fn from(response: pb::PutResponse) -> Self {
        Self {
            revision: revision(response.header.as_ref()),
            prev_kv: response.prev_kv.map(Into::into),
        }
    }
}

impl From<kv::DeleteResult> for pb::DeleteRangeResponse {
    fn from(result: kv::DeleteResult) -> Self {
        Self {
            header: header(result.revision),
            deleted: result.deleted,
            prev_kvs: all_into(result.prev_kvs),
        }
    }
}

impl From<pb::DeleteRangeResponse> for kv::DeleteResult {
    fn from(response: pb::DeleteRangeResponse) -> Self {
        Self {
            revision: revision(response.header.as_ref()),
            deleted: response.deleted,
            prev_kvs: all_into(response.prev_kvs),
        }
    }
}

impl From<kv::OpResult> for pb::ResponseOp {
    fn from(result: kv::OpResult) -> Self {
        use pb::response_op::Response;
        Self {
            response: Some(match result {
                kv::OpResult::Range(range) => Response::ResponseRange(range.into()),
                kv::OpResult::Put(put) => Response::ResponsePut(put.into()),
                kv::OpResult::Delete(delete) => Response::ResponseDeleteRange(delete.into()),
                // etcd leaves the header of an inner transaction empty.
                kv::OpResult::Txn(txn) => Response::ResponseTxn(pb::TxnResponse {
                    header: header(0),
                    ..pb::TxnResponse::from(txn)
                }),
            }),
        }
    }
}

impl TryFrom<pb::ResponseOp> for kv::OpResult {
    type Error = Status;

    fn try_from(op: pb::ResponseOp) -> Result<Self, Status> {
        use pb::response_op::Response;
        match op.response {
            Some(Response::ResponseRange(range)) => Ok(Self::Range(range.into())),
            Some(Response::ResponsePut(put)) => Ok(Self::Put(put.into())),
            Some(Response::ResponseDeleteRange(delete)) => Ok(Self::Delete(delete.into())),
            Some(Response::ResponseTxn(txn)) => Ok(Self::Txn(txn.try_into()?)),
            None => Err(Status::internal("an operation in a transaction was not answered")),
        }
    }
}

impl From<kv::TxnResult> for pb::TxnResponse {
    fn from(result: kv::TxnResult) -> Self {
        Self {
            header: header(result.revision),
            succeeded: result.succeeded,
            responses: all_into(result.results),
        }
    }
}

impl TryFrom<pb::TxnResponse> for kv::TxnResult {
    type Error = Status;

    fn try_from(response: pb::TxnResponse) -> Result<Self, Status> {
        Ok(Self {
            revision: revision(response.header.as_ref()),
            succeeded: response.succeeded,
            results: response
                .responses
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_span_never_widens_on_the_wire() {
        for (start, end) in
            [("k", ""), ("k", "\0"), ("k", "a"), ("k", "k"), ("\0", ""), ("\0", "\0")]
        {
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
}
