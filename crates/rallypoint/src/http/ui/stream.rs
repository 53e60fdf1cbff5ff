//! Server-sent events: each viewer is told at once, and after each change.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::timeout;

use super::board::{Told, Topic};
use super::feed::Feed;
use crate::http::listener::Connection;

/// A comment is sent this often, so that both sides notice when the other is gone.
const PULSE: Duration = Duration::from_secs(15);

/// A browser connects again after a second.
const FIRST: &str = "retry: 1000\n\n";

/// `/api/watch`, and `/api/watch?run=ID`.
pub(super) async fn watch(State(feed): State<Arc<Feed>>, request: Request) -> Response {
    let topic = match topic(request.uri().query().unwrap_or_default()) {
        Ok(topic) => topic,
        Err(text) => return (StatusCode::BAD_REQUEST, text).into_response(),
    };
    if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
        connection.lasts();
    }
    let told = feed.subscribe(topic);
    let stream = stream::unfold((Some(FIRST), told), async |(first, mut told)| {
        let frame = match first {
            Some(first) => Bytes::from_static(first.as_bytes()),
            None => next(&mut told).await?,
        };
        Some((Ok::<_, std::convert::Infallible>(frame), (None, told)))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

/// The next frame. Changes that a slow reader misses are left out: it gets the last one.
async fn next(told: &mut watch::Receiver<Option<Told>>) -> Option<Bytes> {
    let changed = async {
        loop {
            if told.has_changed().ok()?
                && let Some(told) = told.borrow_and_update().clone()
            {
                return Some(told.frame());
            }
            told.changed().await.ok()?;
            told.mark_changed();
        }
    };
    timeout(PULSE, changed).await.unwrap_or(Some(Bytes::from_static(b":\n\n")))
}

/// The topic that a query names.
fn topic(query: &str) -> Result<Topic, &'static str> {
    if query.is_empty() {
        return Ok(Topic::Runs);
    }
    let wanted = "Give /api/watch, or /api/watch?run=ID with the id of a run, percent-encoded.\n";
    let run = query.strip_prefix("run=").filter(|run| !run.contains('&')).ok_or(wanted)?;
    let run = run.replace('+', " ");
    let run = percent_decode_str(&run).decode_utf8().map_err(|_| wanted)?;
    Ok(Topic::Run(run.into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_a_run_or_nothing() {
        assert_eq!(topic(""), Ok(Topic::Runs));
        let named = |run: &str| Ok(Topic::Run(run.to_owned()));
        assert_eq!(topic("run=job-7"), named("job-7"));
        assert_eq!(topic("run=a%2Fb%20c%3Cscript%3E"), named("a/b c<script>"));
        assert_eq!(topic("run=a+b%2B"), named("a b+"));
        for wrong in ["job", "run", "run=a&run=b", "run=%ff", "ran=a"] {
            assert!(topic(wrong).is_err(), "{wrong}");
        }
    }
}
