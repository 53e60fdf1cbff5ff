//! The Maintenance service: the status of the server, and the upkeep that etcd needs and this server does by itself.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::header::{MEMBER_ID, ResponseHeaders, TERM};
use crate::convert;
use crate::proto::etcd as pb;
use crate::server::engine::Engine;
use crate::server::hash::store_hash;

/// The version of etcd that the responses conform to, as the conformance tests show on a real one. Clients choose by it
/// which requests they send.
pub(in crate::server) const ETCD_VERSION: &str = "3.6.14";

/// The version of the data's format, as an etcd of that version reports it.
const STORAGE_VERSION: &str = "3.6.0";

pub(super) struct MaintenanceService {
    pub(super) engine: Arc<Engine>,
    pub(super) headers: ResponseHeaders,
}

#[tonic::async_trait]
impl pb::maintenance_server::Maintenance for MaintenanceService {
    async fn status(
        &self,
        _: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let (revision, in_use, quota) =
            self.engine.read(|store| (store.revision(), store.bytes(), store.options().max_bytes));
        let index = u64::try_from(revision).unwrap_or_default();
        Ok(Response::new(pb::StatusResponse {
            header: self.headers.header(revision),
            version: ETCD_VERSION.to_owned(),
            // Clients take a size of 0 for a server that is not up.
            db_size: self.engine.bytes().max(1) as i64,
            db_size_in_use: in_use.max(1) as i64,
            leader: MEMBER_ID,
            raft_index: index,
            raft_applied_index: index,
            raft_term: TERM,
            errors: Vec::new(),
            is_learner: false,
            storage_version: STORAGE_VERSION.to_owned(),
            db_size_quota: i64::try_from(quota).unwrap_or(i64::MAX),
        }))
    }

    /// There are no alarms: none is reported, and none has to be deactivated.
    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        use pb::alarm_request::AlarmAction;
        if request.get_ref().action() == AlarmAction::Activate {
            return Err(Status::unimplemented(
                "rallypoint: Alarm with action ACTIVATE is not served; there are no alarms here",
            ));
        }
        Ok(Response::new(pb::AlarmResponse { header: self.now(), alarms: Vec::new() }))
    }

    /// Done already: memory and log are compacted as the server goes.
    async fn defragment(
        &self,
        _: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        Ok(Response::new(pb::DefragmentResponse { header: self.now() }))
    }

    async fn hash(
        &self,
        _: Request<pb::HashRequest>,
    ) -> Result<Response<pb::HashResponse>, Status> {
        let found = store_hash(&self.engine, 0).await.map_err(convert::status)?;
        let (header, hash) = (self.headers.header(found.revision), found.hash);
        Ok(Response::new(pb::HashResponse { header, hash }))
    }

    async fn hash_kv(
        &self,
        request: Request<pb::HashKvRequest>,
    ) -> Result<Response<pb::HashKvResponse>, Status> {
        let found = store_hash(&self.engine, request.into_inner().revision).await;
        let found = found.map_err(convert::status)?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.headers.header(found.revision),
            hash: found.hash,
            compact_revision: found.compacted,
            hash_revision: found.of,
        }))
    }
}

impl MaintenanceService {
    fn now(&self) -> Option<pb::ResponseHeader> {
        self.headers.header(self.engine.read(|store| store.revision()))
    }
}
