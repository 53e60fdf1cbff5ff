//! The Succession service: whether this host serves, for nodes that look for their server.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::proto::succession as pb;
use crate::server::engine::Engine;
use crate::succession::HostRole;

pub(super) struct SuccessionService {
    pub(super) role: HostRole,
    pub(super) engine: Arc<Engine>,
}

#[tonic::async_trait]
impl pb::succession_server::Succession for SuccessionService {
    async fn ask(
        &self,
        request: Request<pb::AskRequest>,
    ) -> Result<Response<pb::AskResponse>, Status> {
        let HostRole { host, serves } = &self.role;
        let pb::AskRequest { run_id, remembers } = request.into_inner();
        // A node of another run has nothing to tell.
        let is_of_run = run_id == host.run_id();
        let known = if is_of_run { host.told(remembers) } else { 0 };
        // Its node does not look for a server yet, such as while its preflight command runs. No node is to wait for it.
        if is_of_run && !serves && !host.may_serve() {
            return Err(Status::unavailable("rallypoint: the node of this host has not begun"));
        }
        let round = if *serves { self.engine.formed() } else { known };
        let (run_id, node_id) = (host.run_id().to_owned(), host.node_id().to_owned());
        Ok(Response::new(pb::AskResponse { run_id, serves: *serves, round, node_id }))
    }
}
