//! Short ways to write requests and to look at answers.

use std::panic::Location;

use bytes::Bytes;
use pb::compare::{CompareResult, CompareTarget, TargetUnion};
use pb::request_op::Request;
use rallypoint::proto::etcd as pb;
use tonic::{Code, Status};

/// The end of the range of keys that begin with `prefix`.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(b"\0")
}

/// Reads one key.
pub fn get(key: Bytes) -> pb::RangeRequest {
    pb::RangeRequest { key, ..Default::default() }
}

/// Writes one key.
pub fn put(key: Bytes, value: impl Into<Bytes>) -> pb::PutRequest {
    pb::PutRequest { key, value: value.into(), ..Default::default() }
}

/// Deletes one key.
pub fn del(key: Bytes) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key, ..Default::default() }
}

/// A read inside a transaction.
pub fn op_get(request: pb::RangeRequest) -> pb::RequestOp {
    pb::RequestOp { request: Some(Request::RequestRange(request)) }
}

/// A write inside a transaction.
pub fn op_put(request: pb::PutRequest) -> pb::RequestOp {
    pb::RequestOp { request: Some(Request::RequestPut(request)) }
}

/// A deletion inside a transaction.
pub fn op_del(request: pb::DeleteRangeRequest) -> pb::RequestOp {
    pb::RequestOp { request: Some(Request::RequestDeleteRange(request)) }
}

/// A transaction inside a transaction.
pub fn op_txn(request: pb::TxnRequest) -> pb::RequestOp {
    pb::RequestOp { request: Some(Request::RequestTxn(request)) }
}

/// A transaction that does these things, whatever is.
pub fn always(success: Vec<pb::RequestOp>) -> pb::TxnRequest {
    pb::TxnRequest { success, ..Default::default() }
}

/// A condition on one key.
pub fn compare(key: Bytes, result: CompareResult, with: TargetUnion) -> pb::Compare {
    let target = match with {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    pb::Compare {
        result: result.into(),
        target: target.into(),
        key,
        target_union: Some(with),
        range_end: Bytes::new(),
    }
}

/// Holds if the key does not exist.
pub fn absent(key: Bytes) -> pb::Compare {
    compare(key, CompareResult::Equal, TargetUnion::Version(0))
}

/// Holds if the key exists.
pub fn exists(key: Bytes) -> pb::Compare {
    compare(key, CompareResult::Greater, TargetUnion::Version(0))
}

/// The revision of an answer.
pub fn revision(header: &Option<pb::ResponseHeader>) -> i64 {
    header.as_ref().expect("an answer has a header").revision
}

/// The answer to a read inside a transaction.
pub fn as_range(op: &pb::ResponseOp) -> &pb::RangeResponse {
    match op.response.as_ref().unwrap() {
        pb::response_op::Response::ResponseRange(range) => range,
        other => panic!("expected the answer to a read, not {other:?}"),
    }
}

/// The answer to a write inside a transaction.
pub fn as_put(op: &pb::ResponseOp) -> &pb::PutResponse {
    match op.response.as_ref().unwrap() {
        pb::response_op::Response::ResponsePut(put) => put,
        other => panic!("expected the answer to a write, not {other:?}"),
    }
}

/// The answer to a deletion inside a transaction.
pub fn as_delete(op: &pb::ResponseOp) -> &pb::DeleteRangeResponse {
    match op.response.as_ref().unwrap() {
        pb::response_op::Response::ResponseDeleteRange(delete) => delete,
        other => panic!("expected the answer to a deletion, not {other:?}"),
    }
}

/// The answer to a transaction inside a transaction.
pub fn as_txn(op: &pb::ResponseOp) -> &pb::TxnResponse {
    match op.response.as_ref().unwrap() {
        pb::response_op::Response::ResponseTxn(txn) => txn,
        other => panic!("expected the answer to a transaction, not {other:?}"),
    }
}

/// Checks that a request was refused with exactly this code and sentence.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, message: &str) {
    let caller = Location::caller();
    match answer {
        Ok(answer) => panic!("{caller}: expected {code:?} {message:?}, got {answer:?}"),
        Err(status) => {
            assert_eq!((status.code(), status.message()), (code, message), "at {caller}");
        }
    }
}

/// etcd's refusals, as its clients know them.
pub mod refusal {
    use tonic::Code;

    /// A code and the sentence that comes with it.
    pub type Refusal = (Code, &'static str);

    pub const EMPTY_KEY: Refusal = (Code::InvalidArgument, "etcdserver: key is not provided");
    pub const KEY_NOT_FOUND: Refusal = (Code::InvalidArgument, "etcdserver: key not found");
    pub const VALUE_PROVIDED: Refusal = (Code::InvalidArgument, "etcdserver: value is provided");
    pub const LEASE_PROVIDED: Refusal = (Code::InvalidArgument, "etcdserver: lease is provided");
    pub const TOO_MANY_OPS: Refusal =
        (Code::InvalidArgument, "etcdserver: too many operations in txn request");
    pub const DUPLICATE_KEY: Refusal =
        (Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
    pub const TOO_LARGE: Refusal = (Code::InvalidArgument, "etcdserver: request is too large");
    pub const NO_SPACE: Refusal =
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
    pub const COMPACTED: Refusal =
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
    pub const FUTURE: Refusal =
        (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision");
    pub const LEASE_NOT_FOUND: Refusal = (Code::NotFound, "etcdserver: requested lease not found");
    pub const LEASE_EXISTS: Refusal =
        (Code::FailedPrecondition, "etcdserver: lease already exists");
    pub const TTL_TOO_LARGE: Refusal = (Code::OutOfRange, "etcdserver: too large lease TTL");
}

/// [`refused`] with one of the known refusals.
#[track_caller]
pub fn refused_as<T: std::fmt::Debug>(answer: Result<T, Status>, refusal: refusal::Refusal) {
    refused(answer, refusal.0, refusal.1);
}
