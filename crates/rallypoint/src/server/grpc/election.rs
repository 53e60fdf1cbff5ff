//! The Election service: the leader is the oldest key of its queue, and its value is what the leader proclaims.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use tonic::{Request, Response, Status};

use super::calls::CallPermit;
use super::header::ResponseHeaders;
use super::observer::Observer;
use super::queue::{Queues, prefix};
use crate::proto::election as pb;
use crate::proto::election::election_server::Election;
use crate::server::metrics::ActiveCall;

pub(super) struct ElectionService {
    pub(super) queues: Queues,
    pub(super) headers: ResponseHeaders,
}

impl ElectionService {
    /// Writes the leader's value, unless it is the leader no more. Returns the revision.
    async fn set(&self, leader: &pb::LeaderKey, value: Bytes) -> Result<i64, Status> {
        let lease = self.queues.lease(leader.lease).await?;
        let set = self.queues.replace(&leader.key, leader.rev, (value, lease)).await?;
        set.ok_or_else(|| Status::unknown("election: not leader"))
    }
}

/// The leader that a request must name.
fn given(leader: Option<pb::LeaderKey>) -> Result<pb::LeaderKey, Status> {
    leader.ok_or_else(|| Status::unknown("\"leader\" field must be provided"))
}

#[tonic::async_trait]
impl Election for ElectionService {
    /// Waits until the caller is the leader. A client that goes away meanwhile leaves the queue.
    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        let pb::CampaignRequest { name, lease, value } = request.into_inner();
        let (lease, prefix) = (self.queues.lease(lease).await?, prefix(&name));
        let place = self.queues.enqueue(&prefix, lease, value.clone()).await?;
        let leader = pb::LeaderKey { name, key: place.key.clone(), rev: place.created, lease };
        if place.former.as_ref().is_some_and(|former| *former != value) {
            self.set(&leader, value).await?;
        }
        self.queues.turn(&prefix, &place).await?;
        let header = self.headers.header(place.revision);
        place.keep();
        Ok(Response::new(pb::CampaignResponse { header, leader: Some(leader) }))
    }

    async fn proclaim(
        &self,
        request: Request<pb::ProclaimRequest>,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        let pb::ProclaimRequest { leader, value } = request.into_inner();
        let revision = self.set(&given(leader)?, value).await?;
        Ok(Response::new(pb::ProclaimResponse { header: self.headers.header(revision) }))
    }

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let (revision, first) = self.queues.first(&prefix(&request.into_inner().name))?;
        let pair = first.ok_or_else(|| Status::unknown("election: no leader"))?;
        let (header, kv) = (self.headers.header(revision), Some(pair.into()));
        Ok(Response::new(pb::LeaderResponse { header, kv }))
    }

    type ObserveStream = BoxStream<'static, Result<pb::LeaderResponse, Status>>;

    async fn observe(
        &self,
        mut request: Request<pb::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        // Held for as long as the stream lasts.
        let permit = request.extensions_mut().remove::<CallPermit>();
        let call = request.extensions_mut().remove::<Arc<ActiveCall>>();
        let prefix = prefix(&request.into_inner().name);
        let observer = Observer::new(self.queues.clone(), prefix);
        let headers = self.headers;
        let responses = stream::unfold(Some((observer, permit, call)), move |state| async move {
            let (mut observer, permit, call) = state?;
            match observer.next().await {
                Ok((revision, pair)) => {
                    let (header, kv) = (headers.header(revision), Some(pair.into()));
                    let response = pb::LeaderResponse { header, kv };
                    Some((Ok(response), Some((observer, permit, call))))
                }
                Err(status) => {
                    if let Some(call) = &call {
                        call.ends_with(status.code());
                    }
                    Some((Err(status), None))
                }
            }
        });
        Ok(Response::new(responses.boxed()))
    }

    /// Resigns, unless the caller is the leader no more.
    async fn resign(
        &self,
        request: Request<pb::ResignRequest>,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        let leader = given(request.into_inner().leader)?;
        let revision = self.queues.remove(&leader.key, leader.rev).await?;
        Ok(Response::new(pb::ResignResponse { header: self.headers.header(revision) }))
    }
}
