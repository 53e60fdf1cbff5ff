//! What every call passes on its way in and out: the token check, and etcd's words where the gRPC
//! library has its own.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tonic::{Code, Status};

use super::auth::Gate;

/// What the gRPC library says of a message that is over the limit.
const TOO_LONG: &str = "Error, decoded message length too large: found ";

/// Settings for what every call passes.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) gate: Option<Arc<Gate>>,
    pub(super) max_message_bytes: usize,
}

/// What the token check has to say to a call that refuses each request by itself.
#[derive(Clone)]
pub(super) struct Refusal(pub(super) Status);

/// Watches are refused one by one on a stream that stays open.
const WATCH: &str = "/etcdserverpb.Watch/Watch";

pub(super) async fn pass(State(front): State<Front>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if !is_grpc(request.headers()) {
        return not_grpc();
    }
    if let Some(gate) = &front.gate
        && let Err(status) = gate.check(&path, request.headers())
    {
        if path != WATCH {
            return status.into_http::<Body>();
        }
        request.extensions_mut().insert(Refusal(status));
    }
    let response = next.run(request).await;
    match Status::from_header_map(response.headers()) {
        Some(status) => reword(&front, &path, &status).map_or(response, Status::into_http),
        None => response,
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// For a browser or a probe that took us for a web server.
fn not_grpc() -> Response {
    let text = "This is a Rallypoint server. It speaks etcd's v3 API over gRPC; \
                try etcdctl, or rallypoint itself.\n";
    (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response()
}

/// etcd's status for one that the gRPC library made up by itself.
fn reword(front: &Front, path: &str, status: &Status) -> Option<Status> {
    match status.code() {
        // The library gives no reason. Invariant W1: what we do not implement is refused by name.
        Code::Unimplemented if status.message().is_empty() => {
            Some(Status::unimplemented(unknown(path)))
        }
        Code::OutOfRange => {
            let found = status.message().strip_prefix(TOO_LONG)?.split(' ').next()?;
            let limit = front.max_message_bytes;
            let text = format!("grpc: received message larger than max ({found} vs. {limit})");
            Some(Status::resource_exhausted(text))
        }
        _ => None,
    }
}

/// Names a method that is not served, in the words of etcd's gRPC library.
fn unknown(path: &str) -> String {
    const SERVED: [&str; 7] = [
        "etcdserverpb.KV",
        "etcdserverpb.Watch",
        "etcdserverpb.Lease",
        "etcdserverpb.Cluster",
        "etcdserverpb.Maintenance",
        "etcdserverpb.Auth",
        "grpc.health.v1.Health",
    ];
    match path.trim_start_matches('/').rsplit_once('/') {
        Some((service, method)) if SERVED.contains(&service) => {
            format!("unknown method {method} for service {service}")
        }
        Some((service, _)) => format!("unknown service {service}"),
        None => format!("malformed method name: {path:?}"),
    }
}
