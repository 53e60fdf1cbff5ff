//! The page of runs, and the JSON that it is made from. All of it is for reading.
//!
//! - `assets`: the files of the page, which are in the program.
//! - `feed`: one reader of the server for all viewers, which reads while somebody looks.
//! - `board`: what the viewers see: the runs, or one run, as JSON.
//! - `stream`: server-sent events.
//! - `host`: by which names the page may be asked for.
//!
//! The page is not trusted: it may load, and connect to, nothing but this server, and run no script but its own. So a
//! name of a node that looks like a script could do nothing even if the page made a mistake with it.

mod assets;
mod board;
mod feed;
mod host;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::time::timeout;

use self::board::{Told, Topic};
pub(super) use self::feed::Feed;
use super::access::{Access, authorize};
use crate::runs::KeySpace;

/// How long a client waits for the first answer of the server.
const FIRST: Duration = Duration::from_secs(8);

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JSON: &str = "application/json";

/// The runs that the page shows.
pub(crate) struct RunSource {
    pub(crate) keys: Arc<dyn KeySpace>,
    /// The prefix of the keys of all runs.
    pub(crate) prefix: String,
}

/// The routes of the page.
pub(super) fn router(feed: Arc<Feed>, access: Arc<Access>) -> Router {
    let mut router = Router::new();
    for asset in assets::ALL.iter().copied() {
        router = router.route(asset.path, get(move || async move { asset.response() }));
    }
    router
        .route("/api/runs", get(runs))
        .route("/api/runs/{run}", get(run))
        .route("/api/watch", get(stream::watch))
        .with_state(feed)
        .route_layer(from_fn(only_get))
        .route_layer(from_fn_with_state(access.clone(), authorize))
        .route_layer(from_fn_with_state(access, host::known))
}

/// The headers of every response. The page has no place in a frame, in a cache, or in the log of another server.
pub(super) async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let fixed = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses all methods but GET. `get` by itself would also answer HEAD, and make a stream without a reader.
async fn only_get(request: Request, next: Next) -> Response {
    if request.method() == Method::GET {
        return next.run(request).await;
    }
    let text = "This page is for reading: it answers GET alone.\n";
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")], text).into_response()
}

async fn runs(State(feed): State<Arc<Feed>>) -> Response {
    once(&feed, Topic::Runs).await
}

async fn run(State(feed): State<Arc<Feed>>, Path(run): Path<String>) -> Response {
    once(&feed, Topic::Run(run)).await
}

/// What a viewer of this topic is told first.
async fn once(feed: &Feed, topic: Topic) -> Response {
    let mut told = feed.subscribe(topic);
    let answer = timeout(FIRST, told.wait_for(Option::is_some)).await;
    let told = answer.ok().and_then(Result::ok).and_then(|told| told.clone());
    let Some(told) = told else {
        let text = "The server has not answered yet; try again.\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let code = match told {
        Told::Board(_) => StatusCode::OK,
        Told::Gone(_) => StatusCode::NOT_FOUND,
        Told::Away(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, [(CONTENT_TYPE, JSON)], told.json()).into_response()
}
