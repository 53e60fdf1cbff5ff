//! Calls whose bodies are bytes.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use futures_util::stream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// Everything that is served, and some that is not.
pub(super) const PATHS: &[&str] = &[
    "/etcdserverpb.KV/Range",
    "/etcdserverpb.KV/Put",
    "/etcdserverpb.KV/DeleteRange",
    "/etcdserverpb.KV/Txn",
    "/etcdserverpb.KV/Compact",
    "/etcdserverpb.Watch/Watch",
    "/etcdserverpb.Lease/LeaseGrant",
    "/etcdserverpb.Lease/LeaseRevoke",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    "/etcdserverpb.Lease/LeaseLeases",
    "/etcdserverpb.Cluster/MemberList",
    "/etcdserverpb.Maintenance/Status",
    "/etcdserverpb.Maintenance/Alarm",
    "/etcdserverpb.Auth/Authenticate",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/etcdserverpb.KV/Nonsense",
    "/etcdserverpb.KV/RangeStream",
    "/etcdserverpb.Maintenance/HashKV",
    "/etcdserverpb.Auth/AuthStatus",
    "/v3lockpb.Lock/Lock",
    "/v3lockpb.Lock/Unlock",
    "/v3electionpb.Election/Campaign",
    "/v3electionpb.Election/Observe",
    "/",
    "/x",
];

/// Whether both sides of the call may go on.
pub(super) fn is_stream(path: &str) -> bool {
    ["/Watch", "/LeaseKeepAlive", "/Observe"].iter().any(|method| path.ends_with(method))
}

/// Whether the call waits for its turn, which may never come.
fn waits(path: &str) -> bool {
    [".Lock/Lock", "/Campaign", "/Observe"].iter().any(|method| path.ends_with(method))
}

/// Some bytes, fewer more often than many.
pub(super) fn noise(random: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let length = random.usize(..=most).min(random.usize(..=most));
    (0..length).map(|_| random.u8(..)).collect()
}

/// Bytes that are nearly right.
pub(super) fn mutate(random: &mut fastrand::Rng, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..random.usize(1..4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u8(..)),
            2 => bytes.extend_from_within(at..),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.u8(..8);
                }
            }
        }
    }
    bytes
}

/// Calls `path` with one message, or as a stream that says it twice and is left after a few answers.
/// The first answer; a stream need not have one.
pub(super) async fn call(
    channel: &Channel,
    path: &'static str,
    body: Bytes,
    as_stream: bool,
) -> Result<Option<Bytes>, Status> {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let waits = waits(path);
    let path = path.parse().unwrap();
    let patience = Duration::from_secs(5);
    if waits {
        let call = client.unary(Request::new(body), path, Raw);
        let answer = tokio::time::timeout(Duration::from_millis(2), call).await;
        return answer.map_or(Ok(None), |answer| answer.map(|answer| Some(answer.into_inner())));
    }
    if !as_stream {
        let call = client.unary(Request::new(body), path, Raw);
        let answer = tokio::time::timeout(patience, call).await.expect("no answer in 5 s");
        return answer.map(|answer| Some(answer.into_inner()));
    }
    let said = stream::iter([body.clone(), body]);
    let call = client.streaming(Request::new(said), path, Raw);
    let answer = tokio::time::timeout(patience, call).await.expect("no answer in 5 s")?;
    let mut answers = answer.into_inner();
    for _ in 0..3 {
        let next = tokio::time::timeout(Duration::from_millis(2), answers.message()).await;
        match next {
            Ok(Ok(Some(_))) => {}
            Ok(Err(status)) => return Err(status),
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    Ok(None)
}

/// A message is its bytes.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
