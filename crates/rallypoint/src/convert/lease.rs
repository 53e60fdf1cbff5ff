//! Lease requests and their responses.

use rallypoint_core::kv;

use super::header;
use crate::proto::etcd as pb;

/// The response to a query for a lease's time to live. etcd reports an unknown lease as a time of -1.
pub(crate) fn time_to_live(
    revision: kv::Revision,
    id: kv::LeaseId,
    status: Option<kv::LeaseStatus>,
    with_keys: bool,
) -> pb::LeaseTimeToLiveResponse {
    let header = header(revision);
    let Some(kv::LeaseStatus { granted_ttl, remaining_ttl, keys }) = status else {
        return pb::LeaseTimeToLiveResponse { header, id, ttl: -1, ..Default::default() };
    };
    let keys = if with_keys { keys } else { Vec::new() };
    pb::LeaseTimeToLiveResponse { header, id, ttl: remaining_ttl, granted_ttl, keys }
}

/// The state of a lease; `None` if the response says that the lease does not exist.
pub(crate) fn lease_status(response: pb::LeaseTimeToLiveResponse) -> Option<kv::LeaseStatus> {
    let pb::LeaseTimeToLiveResponse { ttl, granted_ttl, keys, .. } = response;
    (ttl >= 0).then_some(kv::LeaseStatus { granted_ttl, remaining_ttl: ttl, keys })
}
