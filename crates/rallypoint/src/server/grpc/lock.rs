//! The Lock service: a lock belongs to the oldest key of its queue.

use tonic::{Request, Response, Status};

use super::header::ResponseHeaders;
use super::queue::{Queues, prefix};
use crate::proto::lock as pb;
use crate::proto::lock::lock_server::Lock;

pub(super) struct LockService {
    pub(super) queues: Queues,
    pub(super) headers: ResponseHeaders,
}

#[tonic::async_trait]
impl Lock for LockService {
    /// Waits until the lock is free. A client that goes away meanwhile leaves the queue.
    async fn lock(
        &self,
        request: Request<pb::LockRequest>,
    ) -> Result<Response<pb::LockResponse>, Status> {
        let pb::LockRequest { name, lease } = request.into_inner();
        let (lease, prefix) = (self.queues.lease(lease).await?, prefix(&name));
        let place = self.queues.enqueue(&prefix, lease, bytes::Bytes::new()).await?;
        let mut revision = place.revision;
        if self.queues.turn(&prefix, &place).await? {
            let (now, has_it) = self.queues.look(&place.key)?;
            if !has_it {
                return Err(Status::unknown("mutex: session is expired"));
            }
            revision = now;
        }
        let header = self.headers.header(revision);
        Ok(Response::new(pb::LockResponse { header, key: place.keep() }))
    }

    async fn unlock(
        &self,
        request: Request<pb::UnlockRequest>,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        let revision = self.queues.delete(request.into_inner().key).await?;
        let header = self.headers.header(revision);
        Ok(Response::new(pb::UnlockResponse { header }))
    }
}
