//! The KV service.

use std::sync::Arc;

use prost::Message;
use tonic::{Request, Response, Status};

use super::header::ResponseHeaders;
use crate::convert;
use crate::proto::etcd as pb;
use crate::server::engine::Engine;

/// Limit of the size of a response; gRPC's own limit in etcd. Values are shared until they are encoded, so a
/// response that repeats one value often costs no memory before that, and then all of it.
const LARGEST_ANSWER: usize = i32::MAX as usize;

pub(super) struct KvService {
    pub(super) engine: Arc<Engine>,
    pub(super) headers: ResponseHeaders,
    pub(super) max_request_bytes: usize,
}

impl KvService {
    fn check_size(&self, request: &impl Message) -> Result<(), Status> {
        if request.encoded_len() > self.max_request_bytes {
            return Err(Status::invalid_argument("etcdserver: request is too large"));
        }
        Ok(())
    }
}

fn answer<T: Message>(message: T) -> Result<Response<T>, Status> {
    let size = message.encoded_len();
    if size > LARGEST_ANSWER {
        return Err(Status::resource_exhausted(format!(
            "grpc: trying to send message larger than max ({size} vs. {LARGEST_ANSWER})"
        )));
    }
    Ok(Response::new(message))
}

#[tonic::async_trait]
impl pb::kv_server::Kv for KvService {
    async fn range(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<pb::RangeResponse>, Status> {
        let range = request.into_inner().into();
        let found = self.engine.read(|store| store.range(&range)).map_err(convert::status)?;
        let mut response = pb::RangeResponse::from(found);
        response.header = self.headers.stamp(response.header);
        answer(response)
    }

    async fn put(
        &self,
        request: Request<pb::PutRequest>,
    ) -> Result<Response<pb::PutResponse>, Status> {
        let request = request.into_inner();
        self.check_size(&request)?;
        let done = self
            .engine
            .write(|store, _| store.put(request.into()))
            .await?
            .map_err(convert::status)?;
        let mut response = pb::PutResponse::from(done);
        response.header = self.headers.stamp(response.header);
        Ok(Response::new(response))
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        self.check_size(&request)?;
        let done = self.engine.write(|store, _| store.delete(request.into())).await?;
        let done = done.map_err(convert::status)?;
        let mut response = pb::DeleteRangeResponse::from(done);
        response.header = self.headers.stamp(response.header);
        answer(response)
    }

    async fn txn(
        &self,
        request: Request<pb::TxnRequest>,
    ) -> Result<Response<pb::TxnResponse>, Status> {
        let request = request.into_inner();
        self.check_size(&request)?;
        let txn = convert::txn(request)?;
        let done = if txn.is_read_only() {
            self.engine.read(|store| store.read_txn(&txn))
        } else {
            self.engine.write(|store, _| store.txn(txn)).await?
        };
        let mut response = pb::TxnResponse::from(done.map_err(convert::status)?);
        response.header = self.headers.stamp(response.header);
        answer(response)
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let revision = request.into_inner().revision;
        self.engine.write(|store, _| store.compact(revision)).await?.map_err(convert::status)?;
        let header = self.headers.header(self.engine.read(|store| store.revision()));
        Ok(Response::new(pb::CompactionResponse { header }))
    }
}
