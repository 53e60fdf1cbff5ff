//! The Cluster and Maintenance services, by which clients learn of the server's members and status.

use std::net::SocketAddr;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::header::{MEMBER_ID, ResponseHeaders, TERM};
use crate::proto::etcd as pb;
use crate::server::engine::Engine;

/// The version of etcd that the responses conform to. Clients choose by it which requests they send.
pub(in crate::server) const ETCD_VERSION: &str = "3.5.30";

/// The server's address of the connection that a request arrived on.
#[derive(Clone, Copy)]
pub(super) struct LocalAddress(pub(super) SocketAddr);

pub(super) struct ClusterService {
    pub(super) name: String,
    pub(super) headers: ResponseHeaders,
    pub(super) tls: bool,
}

#[tonic::async_trait]
impl pb::cluster_server::Cluster for ClusterService {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        // The address by which this client has connected is one that it can reach.
        let scheme = if self.tls { "https" } else { "http" };
        let address = request.extensions().get::<LocalAddress>();
        let urls: Vec<String> = address
            .map(|LocalAddress(address)| format!("{scheme}://{address}"))
            .into_iter()
            .collect();
        let member = pb::Member {
            id: MEMBER_ID,
            name: self.name.clone(),
            peer_urls: urls.clone(),
            client_urls: urls,
            is_learner: false,
        };
        let header = self.headers.header(0);
        Ok(Response::new(pb::MemberListResponse { header, members: vec![member] }))
    }

    /// Refused: there is one member. The router adds the name of the method.
    async fn member_add(
        &self,
        _: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    /// Refused in the same way.
    async fn member_remove(
        &self,
        _: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

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
        let (revision, in_use) = self.engine.read(|store| (store.revision(), store.bytes()));
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
        }))
    }

    async fn alarm(
        &self,
        request: Request<pb::AlarmRequest>,
    ) -> Result<Response<pb::AlarmResponse>, Status> {
        use pb::alarm_request::AlarmAction;
        let action = request.get_ref().action();
        if action != AlarmAction::Get {
            return Err(Status::unimplemented(format!(
                "rallypoint: Alarm with action {} is not served; there are no alarms here",
                action.as_str_name()
            )));
        }
        let header = self.headers.header(self.engine.read(|store| store.revision()));
        Ok(Response::new(pb::AlarmResponse { header, alarms: Vec::new() }))
    }
}
