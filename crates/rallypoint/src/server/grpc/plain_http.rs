//! What a client sees that does not speak gRPC: metrics and health at etcd's paths, and otherwise what this server is.
//!
//! Tools find etcd's metrics at the address of its clients, such as `etcdctl check datascale`.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tokio::sync::Semaphore;
use tonic::body::Body;

use crate::credentials::{CHALLENGE, Credentials};
use crate::metrics::TEXT;
use crate::server::engine::Engine;
use crate::server::metrics::metrics_page;

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

const WHAT_THIS_IS: &str = "This is a Rallypoint server. It speaks etcd's v3 API over gRPC; \
                            try etcdctl, or rallypoint itself.\n";

pub(super) struct PlainHttp {
    pub(super) engine: Arc<Engine>,
    /// Required for the metrics, as for everything else that the server tells.
    pub(super) credentials: Option<Credentials>,
    /// One page of metrics is made at a time, however many are asked for.
    pub(super) page: Arc<Semaphore>,
}

impl PlainHttp {
    pub(super) async fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/health") => {
                let open = self.engine.is_open();
                let code = if open { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                response(code, JSON, format!("{{\"health\":\"{open}\"}}\n"))
            }
            (&Method::GET, "/metrics") if self.admits(request) => {
                let permit = self.page.clone().acquire_owned().await.expect("it is never closed");
                response(StatusCode::OK, TEXT, metrics_page(self.engine.clone(), permit).await)
            }
            (&Method::GET, "/metrics") => {
                let text = "This server wants its user and password.\n".to_owned();
                let mut refused = response(StatusCode::UNAUTHORIZED, PLAIN, text);
                let challenge = HeaderValue::from_static(CHALLENGE);
                refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
                refused
            }
            _ => response(StatusCode::UNSUPPORTED_MEDIA_TYPE, PLAIN, WHAT_THIS_IS.to_owned()),
        }
    }

    fn admits<B>(&self, request: &Request<B>) -> bool {
        self.credentials.as_ref().is_none_or(|required| required.admit(request.headers()))
    }
}

fn response(code: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::new(text));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
