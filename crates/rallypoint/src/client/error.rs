//! The errors of the client, each of which tells what the caller can do next.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::time::Duration;

use rallypoint_core::kv::KvError;
use thiserror::Error;
use tonic::Status;

use super::retry::{self, Failure};
use crate::config::ConfigError;

/// Why a request failed.
///
/// After [`OutcomeUnknown`](Self::OutcomeUnknown) the request may have been executed, so the caller has to
/// read back before it decides; after every other variant it was not executed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// An option or an argument is wrong. Nothing was sent.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A certificate or key file cannot be read.
    #[error("cannot read the {what} in {path:?}: {source}")]
    File {
        /// The expected content of the file.
        what: &'static str,
        /// The path of the file.
        path: std::path::PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The certificates and keys do not match.
    #[error("the TLS options for {endpoint} are unusable: {}", describe(.source))]
    Tls {
        /// The endpoint that they were meant for.
        endpoint: String,
        /// The error of the TLS library.
        source: tonic::transport::Error,
    },
    /// The server does not accept the user name or the password.
    #[error("{endpoint} did not accept the password of user {user:?}: {}", describe(.source))]
    Authentication {
        /// The endpoint that answered.
        endpoint: String,
        /// The user that was given.
        user: String,
        /// The server's answer.
        source: Status,
    },
    /// The store refused the request and changed nothing.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The server refused the request for a reason that is not the store's.
    #[error("{endpoint} refused the {request} request: {}", describe(.source))]
    Refused {
        /// The kind of request.
        request: &'static str,
        /// The endpoint that answered.
        endpoint: String,
        /// The server's answer.
        source: Status,
    },
    /// No endpoint answered in time. The request was not executed, or only read.
    #[error(
        "no answer to the {request} request after {attempts} attempts in {waited:.1?}; \
         the last was at {endpoint}: {}",
        describe(.source)
    )]
    Unavailable {
        /// The kind of request.
        request: &'static str,
        /// The endpoint of the last attempt.
        endpoint: String,
        /// The number of attempts.
        attempts: u32,
        /// How long the attempts took.
        waited: Duration,
        /// The failure of the last attempt.
        source: Status,
    },
    /// The request was sent and not answered: it may have been executed or not.
    #[error(
        "the {request} request was sent to {endpoint} but not answered, so it may have been \
         executed or not; read back before repeating it: {}",
        describe(.source)
    )]
    OutcomeUnknown {
        /// The kind of request.
        request: &'static str,
        /// The endpoint that the request was sent to.
        endpoint: String,
        /// The failure that came instead of an answer.
        source: Status,
    },
}

impl ClientError {
    pub(crate) fn invalid(
        what: &'static str,
        value: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Config(ConfigError::invalid(what, value, fix))
    }

    /// Whether the request may succeed if it is tried again: the server could not be reached, or its answer was lost.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::OutcomeUnknown { .. })
    }

    /// Whether the server requires authentication and has refused this client.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        match self {
            Self::Authentication { .. } => true,
            Self::Refused { source, .. } => source.message().contains(NO_USER),
            _ => false,
        }
    }

    /// Whether the connection failed because one side does not trust the certificate of the other.
    pub(crate) fn is_tls_error(&self) -> bool {
        let Self::Unavailable { source, .. } = self else { return false };
        retry::failure(source) == Failure::NotTrusted
    }
}

/// etcd's message for a request without a user.
const NO_USER: &str = "etcdserver: user name is empty";

/// An error with its causes on one line, and a hint where the cause is a known mistake.
///
/// A transport error says nothing by itself ("transport error"); the cause is among its sources.
pub(crate) fn describe(error: &(dyn StdError + 'static)) -> String {
    // A status also prints its code and metadata, which do not help the reader.
    let mut text = match error.downcast_ref::<Status>() {
        Some(status) if status.message().is_empty() => status.code().description().to_owned(),
        Some(status) => status.message().to_owned(),
        None => error.to_string(),
    };
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if next != "transport error" && !text.contains(&next) {
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    const HINTS: [(&str, &str); 7] = [
        ("UnknownIssuer", "the server's certificate is not signed by the given CA"),
        ("BadSignature", "the server's certificate is not signed by the given CA"),
        ("not valid for name", "give the TLS server name that the server's certificate has"),
        ("CertificateRequired", "the server wants a client certificate and key"),
        ("alert: BadCertificate", "the server wants a client certificate that it trusts"),
        (NO_USER, "the server asks for a user and a password"),
        ("InvalidContentType", "the server may not use TLS; if so, write http://"),
    ];
    if let Some((_, hint)) = HINTS.iter().find(|(sign, _)| text.contains(sign)) {
        let _ = write!(text, " (hint: {hint})");
    }
    text
}
