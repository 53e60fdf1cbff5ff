//! Watch requests and the responses on a watch stream.

use bytes::Bytes;
use rallypoint_core::{kv, mvcc};

use super::kv::{key_range, wire_range};
use super::{all_into, header};
use crate::proto::etcd as pb;

impl From<kv::Watch> for pb::WatchCreateRequest {
    fn from(watch: kv::Watch) -> Self {
        use pb::watch_create_request::FilterType;
        let (key, range_end) = wire_range(watch.range);
        let mut filters = Vec::new();
        if watch.no_put {
            filters.push(FilterType::Noput.into());
        }
        if watch.no_delete {
            filters.push(FilterType::Nodelete.into());
        }
        Self {
            key,
            range_end,
            start_revision: watch.start_revision,
            progress_notify: watch.progress_notify,
            filters,
            prev_kv: watch.prev_kv,
            watch_id: 0,
            fragment: false,
        }
    }
}

impl From<pb::WatchCreateRequest> for kv::Watch {
    fn from(create: pb::WatchCreateRequest) -> Self {
        use pb::watch_create_request::FilterType;
        let (no_put, no_delete) = create.filters().fold((false, false), |seen, filter| {
            (seen.0 | (filter == FilterType::Noput), seen.1 | (filter == FilterType::Nodelete))
        });
        // An empty key stands for the first of all keys, here and nowhere else.
        let first = if create.key.is_empty() { Bytes::from_static(b"\0") } else { create.key };
        Self {
            range: key_range(first, create.range_end),
            start_revision: create.start_revision,
            prev_kv: create.prev_kv,
            no_put,
            no_delete,
            progress_notify: create.progress_notify,
        }
    }
}

impl From<mvcc::WatchMessage> for pb::WatchResponse {
    fn from(message: mvcc::WatchMessage) -> Self {
        match message {
            mvcc::WatchMessage::Events { id, revision, events } => Self {
                header: header(revision),
                watch_id: id,
                events: all_into(events),
                ..Self::default()
            },
            mvcc::WatchMessage::Compacted { id, compacted } => Self {
                header: header(0),
                watch_id: id,
                canceled: true,
                compact_revision: compacted,
                ..Self::default()
            },
        }
    }
}

/// Asks for a watch. Progress is always asked for; see [`crate::client::Watcher`].
pub(crate) fn watch_create(watch: kv::Watch) -> pb::WatchRequest {
    use pb::watch_request::RequestUnion;
    let create = pb::WatchCreateRequest { progress_notify: true, ..watch.into() };
    pb::WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) }
}

/// One response on a watch stream, as the client reads it.
#[derive(Debug)]
pub(crate) struct WatchResponse {
    pub(crate) id: i64,
    pub(crate) cluster: u64,
    pub(crate) revision: kv::Revision,
    pub(crate) created: bool,
    pub(crate) canceled: bool,
    pub(crate) compact_revision: kv::Revision,
    pub(crate) reason: String,
    pub(crate) events: Vec<kv::Event>,
}

impl From<pb::WatchResponse> for WatchResponse {
    fn from(response: pb::WatchResponse) -> Self {
        let header = response.header.unwrap_or_default();
        Self {
            id: response.watch_id,
            cluster: header.cluster_id,
            revision: header.revision,
            created: response.created,
            canceled: response.canceled,
            compact_revision: response.compact_revision,
            reason: response.cancel_reason,
            events: all_into(response.events),
        }
    }
}
