//! The Lease service.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};

use super::calls::CallPermit;
use super::header::ResponseHeaders;
use crate::convert;
use crate::proto::etcd as pb;
use crate::server::engine::{Engine, Renewal, stopped};
use crate::server::metrics::ActiveCall;

pub(super) struct LeaseService {
    pub(super) engine: Arc<Engine>,
    pub(super) headers: ResponseHeaders,
    pub(super) stopping: CancellationToken,
}

#[tonic::async_trait]
impl pb::lease_server::Lease for LeaseService {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let pb::LeaseGrantRequest { ttl, id } = request.into_inner();
        let wanted = Some(id).filter(|id| *id != 0);
        let (id, ttl) = self.engine.grant(wanted, ttl).await?.map_err(convert::status)?;
        let header = self.headers.header(self.engine.read(|store| store.revision()));
        Ok(Response::new(pb::LeaseGrantResponse { header, id, ttl, error: String::new() }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let id = request.into_inner().id;
        let revision = self.engine.revoke(id).await?.map_err(convert::status)?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: self.headers.header(revision) }))
    }

    type LeaseKeepAliveStream = BoxStream<'static, Result<pb::LeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        mut request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let headers = self.headers;
        let permit = request.extensions_mut().remove::<CallPermit>();
        let call = request.extensions_mut().remove::<Arc<ActiveCall>>();
        let end = move |code| {
            if let Some(call) = &call {
                call.ends_with(code);
            }
        };
        let (engine, stopping) = (self.engine.clone(), self.stopping.clone());
        // A client sends one renewal at a time, so each request confirms the response before it.
        let before: Option<(i64, Duration)> = None;
        let state = (request.into_inner(), engine, stopping, permit, end, before);
        let answers = stream::unfold(Some(state), move |state| async move {
            let (mut renewals, engine, stopping, permit, end, before) = state?;
            let renewal = tokio::select! {
                renewal = renewals.message() => renewal,
                () = stopping.cancelled() => Err(stopped()),
            };
            match renewal {
                Ok(Some(pb::LeaseKeepAliveRequest { id })) => {
                    let confirms = before.filter(|(lease, _)| *lease == id).map(|(_, at)| at);
                    let Renewal { revision, ttl, withheld, at } = engine.keep_alive(id, confirms);
                    let header = headers.header(revision);
                    let answer = pb::LeaseKeepAliveResponse { header, id, ttl, withheld };
                    let state = (renewals, engine, stopping, permit, end, Some((id, at)));
                    Some((Ok(answer), Some(state)))
                }
                Ok(None) => {
                    end(Code::Ok);
                    None
                }
                Err(status) => {
                    end(status.code());
                    Some((Err(status), None))
                }
            }
        });
        Ok(Response::new(answers.boxed()))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        // Leases have no history to read an older state from, so this waits like a write: no client may
        // see a lease, or a key on it, that a crash could undo.
        let (revision, status) =
            self.engine.write(|store, now| (store.head(), store.lease_status(now, id))).await?;
        let mut response = convert::time_to_live(revision, id, status, keys);
        response.header = self.headers.stamp(response.header);
        Ok(Response::new(response))
    }

    async fn lease_leases(
        &self,
        _: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let (revision, ids) = self
            .engine
            .write(|store, _| (store.head(), store.leases().collect::<Vec<_>>()))
            .await?;
        let leases = ids.into_iter().map(|id| pb::LeaseStatus { id }).collect();
        let header = self.headers.header(revision);
        Ok(Response::new(pb::LeaseLeasesResponse { header, leases }))
    }
}
