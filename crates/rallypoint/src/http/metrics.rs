//! The page `/metrics`.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Process;
use crate::metrics::{TEXT, page};

/// All metrics of the process.
pub(super) async fn metrics(State(process): State<Process>) -> impl IntoResponse {
    // This thread may block: it serves these pages alone.
    ([(CONTENT_TYPE, TEXT)], page(process.told.metrics()))
}
