//! The messages of the model, as they are on the wire, without the core's types (invariant A2).

use prost::{DecodeError, Message};

use crate::proto::etcd as pb;

pub(super) fn length(message: &impl Message) -> usize {
    message.encoded_len()
}

pub(super) fn encode_txn(txn: impl Into<pb::TxnRequest>) -> Vec<u8> {
    txn.into().encode_to_vec()
}

pub(super) fn decode_txn(bytes: &[u8]) -> Result<pb::TxnRequest, DecodeError> {
    pb::TxnRequest::decode(bytes)
}

pub(super) fn encode_answer(result: impl Into<pb::TxnResponse>) -> Vec<u8> {
    result.into().encode_to_vec()
}

pub(super) fn decode_answer(bytes: &[u8]) -> Result<pb::TxnResponse, DecodeError> {
    pb::TxnResponse::decode(bytes)
}

pub(super) fn encode_events(message: impl Into<pb::WatchResponse>) -> Vec<u8> {
    message.into().encode_to_vec()
}

pub(super) fn decode_events(bytes: &[u8]) -> Result<pb::WatchResponse, DecodeError> {
    pb::WatchResponse::decode(bytes)
}

/// A node asks for a lease.
pub(super) fn grant(ttl: i64) -> pb::LeaseGrantRequest {
    pb::LeaseGrantRequest { ttl, id: i64::MAX }
}

pub(super) fn granted(ttl: i64) -> pb::LeaseGrantResponse {
    pb::LeaseGrantResponse { id: i64::MAX, ttl, ..Default::default() }
}

pub(super) fn encode_renewal(id: i64) -> Vec<u8> {
    pb::LeaseKeepAliveRequest { id }.encode_to_vec()
}

pub(super) fn decode_renewal(bytes: &[u8]) -> Result<i64, DecodeError> {
    Ok(pb::LeaseKeepAliveRequest::decode(bytes)?.id)
}

pub(super) fn encode_renewed(id: i64, ttl: i64) -> Vec<u8> {
    pb::LeaseKeepAliveResponse { id, ttl, ..Default::default() }.encode_to_vec()
}
