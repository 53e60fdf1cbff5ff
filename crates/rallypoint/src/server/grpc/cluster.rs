//! The Cluster service, by which clients learn of the server's members.

use std::net::SocketAddr;

use tonic::{Request, Response, Status};

use super::header::{MEMBER_ID, ResponseHeaders};
use crate::proto::etcd as pb;

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
