//! The header that every response carries.

use crate::proto::etcd as pb;

/// The id of this server among the members. There is one member, so any number but 0 will do.
pub(super) const MEMBER_ID: u64 = 0x7261_6c6c_7970_7431;

/// The term of a leader that has never changed.
pub(super) const TERM: u64 = 1;

/// Builds response headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseHeaders {
    /// The id of the history that the revisions belong to. A store that starts empty has another id, so
    /// that a client can tell that its revisions mean nothing there.
    pub(super) cluster_id: u64,
}

impl ResponseHeaders {
    /// A whole header.
    pub(super) fn header(self, revision: i64) -> Option<pb::ResponseHeader> {
        self.stamp(Some(pb::ResponseHeader { revision, ..Default::default() }))
    }

    /// Adds the identity of this server to a header that has only its revision.
    pub(super) fn stamp(self, header: Option<pb::ResponseHeader>) -> Option<pb::ResponseHeader> {
        let revision = header?.revision;
        Some(pb::ResponseHeader {
            cluster_id: self.cluster_id,
            member_id: MEMBER_ID,
            raft_term: TERM,
            revision,
        })
    }
}
