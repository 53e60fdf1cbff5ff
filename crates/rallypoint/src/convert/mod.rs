//! Conversion between etcd's protobuf messages and the core's types (invariant A2).
//!
//! Client and server share it, each using one direction of every pair. Nothing is decided here
//! beyond the meaning of a message. No file outside this folder names both kinds of types, except
//! `server/wal/record.rs`, which does the same for the records of the write-ahead log.
//!
//! - `kv`: ranges, puts, deletions and transactions.
//! - `watch`: watch requests and the responses on a watch stream.
//! - `lease`: the time to live of a lease.
//! - `succession`: the answer of a host that may serve.
//! - `error`: the store's errors and the gRPC statuses that carry them.

mod error;
mod kv;
mod lease;
mod succession;
mod watch;

use rallypoint_core::kv::Revision;

pub(crate) use self::error::{kv_error, status};
pub(crate) use self::kv::txn;
pub(crate) use self::lease::{lease_status, time_to_live};
pub(crate) use self::succession::host_answer;
pub(crate) use self::watch::{WatchResponse, watch_create};
use crate::proto::etcd as pb;

/// Converts every element of a list.
fn all_into<A, B: From<A>>(items: Vec<A>) -> Vec<B> {
    items.into_iter().map(Into::into).collect()
}

/// A response header with the revision alone.
///
/// A response inside a transaction has no more than that; the server adds its identity to the
/// outermost one.
fn header(revision: Revision) -> Option<pb::ResponseHeader> {
    Some(pb::ResponseHeader { revision, ..Default::default() })
}

/// The revision in a response's header, 0 if the header is missing.
pub(crate) fn revision(header: Option<&pb::ResponseHeader>) -> Revision {
    header.map_or(0, |header| header.revision)
}
