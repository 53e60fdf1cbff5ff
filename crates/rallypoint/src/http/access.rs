//! Who may see the pages that are not for probes.
//!
//! The rule is that of the coordination server: where it wants a password, so do these pages; where it wants a
//! certificate of its clients, so do these. Probes have neither, and learn nothing but whether the process works.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::WWW_AUTHENTICATE;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::credentials::{CHALLENGE, Credentials};

/// What a request must have.
pub(super) struct Access {
    pub(super) credentials: Option<Credentials>,
    pub(super) wants_certificate: bool,
    pub(super) has_tls: bool,
}

impl Access {
    /// Whether a page of another site that has the address of this server under its own name gets nothing here: its
    /// visitor's browser has no password and no certificate for that name, and this server is not certified for it.
    pub(super) fn keeps_other_sites_out(&self) -> bool {
        self.credentials.is_some() || self.wants_certificate || self.has_tls
    }
}

/// Marks a request on a connection whose client has shown a certificate of the right authority.
#[derive(Debug, Clone, Copy)]
pub(super) struct HasCertificate;

/// Refuses a request that lacks what it must have.
pub(super) async fn authorize(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    if access.wants_certificate && request.extensions().get::<HasCertificate>().is_none() {
        let text = "This page wants a certificate that --client-ca has signed.\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    if access.credentials.as_ref().is_none_or(|required| required.admit(request.headers())) {
        return next.run(request).await;
    }
    let text = "This page wants the secret of the job, or the server's user and password.\n";
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, CHALLENGE)], text).into_response()
}
