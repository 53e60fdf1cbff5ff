//! The page `/metrics`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Process;
use crate::metrics::{TEXT, page};
use crate::util::blocking::blocking;

/// All metrics of the process.
pub(super) async fn metrics(State(process): State<Process>) -> impl IntoResponse {
    // Signs of progress may be on a file system that does not answer. The probes must.
    ([(CONTENT_TYPE, TEXT)], blocking(move || page(process.told.metrics())).await)
}
