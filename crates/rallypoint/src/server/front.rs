//! What is said to a call before and after its service: who is meant, whether it is gRPC at all, and
//! etcd's words where the gRPC library has its own.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use tonic::body::Body;
use tonic::{Code, Status};

pub(super) const KV: &str = "etcdserverpb.KV";
pub(super) const LEASE: &str = "etcdserverpb.Lease";
pub(super) const WATCH: &str = "etcdserverpb.Watch";
pub(super) const CLUSTER: &str = "etcdserverpb.Cluster";
pub(super) const MAINTENANCE: &str = "etcdserverpb.Maintenance";
pub(super) const AUTH: &str = "etcdserverpb.Auth";
pub(super) const HEALTH: &str = "grpc.health.v1.Health";

/// What the gRPC library says of a message that is over the limit.
const TOO_LONG: &str = "Error, decoded message length too large: found ";

/// The two parts of a path.
pub(super) fn service_and_method(path: &str) -> (&str, &str) {
    path.trim_start_matches('/').rsplit_once('/').unwrap_or((path, ""))
}

/// Whether a call goes on for as long as its client likes.
pub(super) fn is_lasting(service: &str, method: &str) -> bool {
    matches!((service, method), (WATCH, "Watch") | (LEASE, "LeaseKeepAlive"))
}

pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// For a browser or a probe that took us for a web server.
pub(super) fn not_grpc() -> Response<Body> {
    let text = "This is a Rallypoint server. It speaks etcd's v3 API over gRPC; \
                try etcdctl, or rallypoint itself.\n";
    let mut response = Response::new(Body::new(text.to_owned()));
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Names a service that is not served, in the words of etcd's gRPC library. Invariant W1.
pub(super) fn unknown_service(service: &str) -> Status {
    Status::unimplemented(format!("unknown service {service}"))
}

/// etcd's status for one that the gRPC library made up by itself.
pub(super) fn reword(
    service: &str,
    method: &str,
    max_message_bytes: usize,
    status: &Status,
) -> Option<Status> {
    match status.code() {
        // The library gives no reason. Invariant W1: what we do not implement is refused by name.
        Code::Unimplemented if status.message().is_empty() => {
            let text = format!("unknown method {method} for service {service}");
            Some(Status::unimplemented(text))
        }
        Code::OutOfRange => {
            let found = status.message().strip_prefix(TOO_LONG)?.split(' ').next()?;
            let limit = max_message_bytes;
            let text = format!("grpc: received message larger than max ({found} vs. {limit})");
            Some(Status::resource_exhausted(text))
        }
        _ => None,
    }
}
