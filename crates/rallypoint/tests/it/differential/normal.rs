//! Answers without what etcd leaves open.

use bytes::Bytes;
use pb::request_op::Request;
use pb::response_op::Response;
use rallypoint::proto::etcd as pb;
use tonic::Status;

/// What a server said to a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It did it, at this revision.
    Done {
        /// The header's revision, 0 where there is none.
        revision: i64,
        /// The rest.
        body: Body,
    },
    /// It refused.
    Refused(tonic::Code, String),
}

/// The rest of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Range(pb::RangeResponse),
    Put(pb::PutResponse),
    Delete(pb::DeleteRangeResponse),
    Txn(pb::TxnResponse),
    Compact,
    Grant { id: i64, ttl: i64 },
    Revoke,
    KeepAlive { ttl: i64 },
    TimeToLive { alive: bool, granted: i64, keys: Vec<Bytes> },
    Leases(Vec<i64>),
    Watch { id: i64, canceled: bool, reason: String },
}

/// An answer or a refusal, with the header reduced to its revision.
pub fn done(answer: Result<(Option<pb::ResponseHeader>, Body), Status>) -> Answer {
    match answer {
        Ok((header, body)) => {
            let header = header.expect("an answer has a header");
            let named = header.cluster_id != 0 && header.member_id != 0 && header.raft_term != 0;
            assert!(named, "an answer that says nothing of who gave it: {header:?}");
            Answer::Done { revision: header.revision, body }
        }
        Err(status) => Answer::Refused(status.code(), status.message().to_owned()),
    }
}

/// One refusal for all that the state of the store may be the reason of: which operation of a transaction is found to
/// fail first differs between versions, and the conformance tests say how.
pub fn txn_refusal(status: Status) -> Status {
    const BY_STATE: [&str; 4] = [
        "etcdserver: requested lease not found",
        "etcdserver: key not found",
        "etcdserver: mvcc: required revision is a future revision",
        "etcdserver: mvcc: required revision has been compacted",
    ];
    match BY_STATE.contains(&status.message()) {
        true => Status::failed_precondition("one of the operations would fail"),
        false => status,
    }
}

/// Makes the order of equals the order of their keys.
///
/// If a limit cut the list within a run of equals, which of them are there is open too; then only
/// what they were sorted by is kept.
pub fn range(request: &pb::RangeRequest, mut response: pb::RangeResponse) -> pb::RangeResponse {
    let target = request.sort_target();
    if target == pb::range_request::SortTarget::Key {
        return response;
    }
    let descending = request.sort_order() == pb::range_request::SortOrder::Descend;
    let measure = |kv: &pb::KeyValue| -> (i64, Bytes) {
        use pb::range_request::SortTarget::{Create, Key, Mod, Value, Version};
        match target {
            Key => (0, kv.key.clone()),
            Version => (kv.version, Bytes::new()),
            Create => (kv.create_revision, Bytes::new()),
            Mod => (kv.mod_revision, Bytes::new()),
            Value => (0, kv.value.clone()),
        }
    };
    // Values that were left out cannot be checked, or be told apart.
    let blind = request.keys_only && target == pb::range_request::SortTarget::Value;
    if !blind {
        let ordered = response.kvs.windows(2).all(|pair| {
            let (first, second) = (measure(&pair[0]), measure(&pair[1]));
            if descending { first >= second } else { first <= second }
        });
        assert!(ordered, "not in the order asked for: {request:?}\n{response:?}");
    }
    if response.more {
        for kv in &mut response.kvs {
            let (number, value) = if blind { (0, Bytes::new()) } else { measure(kv) };
            *kv = pb::KeyValue { version: number, value, ..Default::default() };
        }
    } else {
        response.kvs.sort_by(|one, other| one.key.cmp(&other.key));
    }
    response
}

/// The same for every read of the branch that ran.
pub fn txn(request: &pb::TxnRequest, mut response: pb::TxnResponse) -> pb::TxnResponse {
    let branch = if response.succeeded { &request.success } else { &request.failure };
    assert_eq!(branch.len(), response.responses.len(), "one answer for each operation");
    for (op, answer) in branch.iter().zip(&mut response.responses) {
        let normal = match (op.request.as_ref(), answer.response.take()) {
            (Some(Request::RequestRange(asked)), Some(Response::ResponseRange(answer))) => {
                Response::ResponseRange(range(asked, answer))
            }
            (Some(Request::RequestTxn(asked)), Some(Response::ResponseTxn(answer))) => {
                Response::ResponseTxn(txn(asked, answer))
            }
            (Some(Request::RequestPut(_)), Some(answer @ Response::ResponsePut(_)))
            | (
                Some(Request::RequestDeleteRange(_)),
                Some(answer @ Response::ResponseDeleteRange(_)),
            ) => answer,
            (asked, answer) => panic!("{answer:?} is no answer to {asked:?}"),
        };
        answer.response = Some(normal);
    }
    response
}
