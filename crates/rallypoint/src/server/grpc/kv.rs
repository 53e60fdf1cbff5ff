//! The KV service.

use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message;
use tonic::{Request, Response, Status};

use super::header::ResponseHeaders;
use crate::convert;
use crate::proto::etcd as pb;
use crate::server::engine::Engine;

/// Limit of the size of a response; gRPC's own limit in etcd. Values are shared until they are encoded, so a
/// response that repeats one value often costs no memory before that, and then all of it.
const LARGEST_ANSWER: usize = i32::MAX as usize;

/// The size at which a part of a streamed range is sent.
const PART: usize = 1 << 20;

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

/// Refuses what a streamed range cannot do, in the words of etcd 3.7.
fn check_streamed(request: &pb::RangeRequest) -> Result<(), Status> {
    use pb::range_request::{SortOrder, SortTarget};
    let by_key = request.sort_target() == SortTarget::Key;
    let is_sorted = match request.sort_order() {
        SortOrder::None => false,
        SortOrder::Ascend => !by_key,
        SortOrder::Descend => true,
    };
    let filters = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    if is_sorted {
        return Err(Status::unimplemented("RangeStream does not support custom sort orders"));
    }
    if filters.iter().any(|revision| *revision != 0) {
        return Err(Status::unimplemented("RangeStream does not support revision filters"));
    }
    Ok(())
}

/// Divides pairs into parts of about [`PART`] bytes each.
fn parts(pairs: Vec<pb::KeyValue>) -> impl Iterator<Item = Vec<pb::KeyValue>> {
    let mut pairs = pairs.into_iter();
    std::iter::from_fn(move || {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for pair in pairs.by_ref() {
            bytes += pair.encoded_len();
            part.push(pair);
            if bytes >= PART {
                break;
            }
        }
        (!part.is_empty()).then_some(part)
    })
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

    type RangeStreamStream = BoxStream<'static, Result<pb::RangeStreamResponse, Status>>;

    /// All pairs are of one revision. The last part has the header and the count.
    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        let mut request = request.into_inner();
        check_streamed(&request)?;
        request.set_sort_target(pb::range_request::SortTarget::Key);
        let found = self.engine.read(|store| store.range(&request.into()));
        let mut last = pb::RangeResponse::from(found.map_err(convert::status)?);
        last.header = self.headers.stamp(last.header);
        let pairs = std::mem::take(&mut last.kvs);
        let parts = parts(pairs).map(|kvs| pb::RangeResponse { kvs, ..Default::default() });
        let whole = parts
            .chain([last])
            .map(|part| Ok(pb::RangeStreamResponse { range_response: Some(part) }));
        Ok(Response::new(stream::iter(whole).boxed()))
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
