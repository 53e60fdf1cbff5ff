//! The header that every answer carries.

use crate::proto::etcd as pb;

/// Who we say we are. There is one member, so any number will do as long as it is not 0.
pub(super) const MEMBER_ID: u64 = 0x7261_6c6c_7970_7431;

/// The term of a leader that has never changed.
pub(super) const TERM: u64 = 1;

/// Makes headers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replies {
    /// Whose history the revisions are of. A store that begins anew has another number, so that a
    /// client can tell that its revisions mean nothing there.
    pub(super) cluster_id: u64,
}

impl Replies {
    pub(super) fn header(self, revision: i64) -> Option<pb::ResponseHeader> {
        self.stamp(Some(pb::ResponseHeader { revision, ..Default::default() }))
    }

    /// Adds who we are to a header that has only its revision.
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
