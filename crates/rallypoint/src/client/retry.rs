//! Whether and when to retry a request: pure decisions, without a clock and a connection.
//!
//! One rule governs all of it: a request that may have been executed is retried only if it is idempotent,
//! so that executing it twice is the same as executing it once.

use std::error::Error as StdError;
use std::time::Duration;

use tonic::{Code, Status};

use crate::succession::{STANDS_BY, WITHHELD};
use crate::util::backoff::Backoff;

/// Whether a request may be executed twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The request is idempotent: retry it after any failure.
    Always,
    /// The request writes: retry it only if it was surely not executed.
    IfNotExecuted,
    /// The caller wants the outcome of the first attempt.
    Never,
}

/// The meaning of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The server is overloaded and did not execute the request. Another endpoint would not help.
    Busy,
    /// The endpoint cannot serve at present and did not execute the request.
    NotServing,
    /// There was no connection.
    NotConnected,
    /// There was no connection because one side does not trust the other's certificate.
    NotTrusted,
    /// The token is not, or no longer, valid; the request was not executed.
    TokenInvalid,
    /// The answer was lost: the request may have been executed.
    Lost,
    /// The server refused the request.
    Refused,
}

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Retry at this endpoint, after a delay.
    Again,
    /// Retry at the next endpoint.
    Elsewhere,
    /// Obtain a new token, then retry.
    Authenticate,
    /// Return an error: the request was not executed.
    GiveUp,
    /// Return an error: whether the request was executed is unknown.
    OutcomeUnknown,
}

/// The meaning of `status`. The text decides where it can: etcd has changed codes between versions.
pub(crate) fn failure(status: &Status) -> Failure {
    // A status with a source was created by this client's transport; a server's own status has none.
    if let Some(source) = status.source() {
        return transport_failure(source);
    }
    match status.message() {
        "etcdserver: too many requests" | WITHHELD => Failure::Busy,
        "etcdserver: no leader" | "raft proposal dropped" | STANDS_BY => Failure::NotServing,
        // The third is the answer to a request without a token after authentication was enabled.
        "etcdserver: invalid auth token"
        | "etcdserver: revision of auth store is old"
        | "etcdserver: user name is empty" => Failure::TokenInvalid,
        "etcdserver: not capable" | "etcdserver: rpc not supported for learner" => {
            Failure::NotServing
        }
        _ if status.code() == Code::Unavailable => Failure::Lost,
        // The server abandoned the request while it executed it.
        _ if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => Failure::Lost,
        _ => Failure::Refused,
    }
}

fn transport_failure(source: &(dyn StdError + 'static)) -> Failure {
    let mut cause = Some(source);
    let mut connected = true;
    while let Some(error) = cause {
        connected &= !error.is::<tonic::ConnectError>();
        if is_tls_error(&error.to_string()) {
            return Failure::NotTrusted;
        }
        cause = error.source();
    }
    if connected { Failure::Lost } else { Failure::NotConnected }
}

/// Whether a handshake failed over a certificate. In TLS 1.3 the client learns of the server's refusal
/// only after it has sent its first request, which the server then never read.
///
/// The text decides, since HTTP/2 keeps nothing else of an error of the layer below.
fn is_tls_error(text: &str) -> bool {
    const ALERTS: [&str; 8] = [
        "AccessDenied",
        "BadCertificate",
        "CertificateExpired",
        "CertificateRequired",
        "CertificateRevoked",
        "CertificateUnknown",
        "UnknownCA",
        "UnsupportedCertificate",
    ];
    text.contains("invalid peer certificate")
        || text
            .split_once("received fatal alert: ")
            .is_some_and(|(_, alert)| ALERTS.iter().any(|name| alert.starts_with(name)))
}

/// What to do after the `attempts`-th attempt at one of `endpoints` failed.
pub(crate) fn step(failure: Failure, repeat: Repeat, attempts: u32, endpoints: usize) -> Step {
    match (failure, repeat) {
        (Failure::TokenInvalid, _) => Step::Authenticate,
        (Failure::Refused, _) | (_, Repeat::Never) => Step::GiveUp,
        (Failure::Busy, _) => Step::Again,
        (Failure::NotServing | Failure::NotConnected, _) => Step::Elsewhere,
        // A retry does not change a certificate; another endpoint may have another one.
        (Failure::NotTrusted, _) if (attempts as usize) < endpoints => Step::Elsewhere,
        (Failure::NotTrusted, _) => Step::GiveUp,
        (Failure::Lost, Repeat::Always) => Step::Elsewhere,
        (Failure::Lost, Repeat::IfNotExecuted) => Step::OutcomeUnknown,
    }
}

/// The backoff between attempts, once every endpoint was asked.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// How long to wait after the `attempts`-th attempt, given a random number from 0 to 1.
///
/// There is no delay while some endpoint was not tried.
pub(crate) fn delay(step: Step, attempts: u32, endpoints: usize, random: f64) -> Duration {
    let rounds = match step {
        Step::Elsewhere if (attempts as usize) < endpoints => return Duration::ZERO,
        Step::Elsewhere => (attempts as usize).saturating_sub(endpoints) as u32,
        _ => attempts.saturating_sub(1),
    };
    BACKOFF.delay(rounds, random)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn with_source(code: Code, source: impl StdError + Send + Sync + 'static) -> Status {
        let mut status = Status::new(code, "transport error");
        status.set_source(Arc::new(source));
        status
    }

    #[test]
    fn failures_are_told_apart_by_text_and_by_origin() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let alert = std::io::Error::other("received fatal alert: CertificateRequired");
        let other_alert = std::io::Error::other("received fatal alert: InternalError");
        let table = [
            (Status::unknown("etcdserver: too many requests"), Failure::Busy),
            (Status::resource_exhausted("etcdserver: too many requests"), Failure::Busy),
            (Status::unavailable("etcdserver: no leader"), Failure::NotServing),
            (Status::unauthenticated("etcdserver: invalid auth token"), Failure::TokenInvalid),
            (
                Status::invalid_argument("etcdserver: revision of auth store is old"),
                Failure::TokenInvalid,
            ),
            (Status::unavailable("etcdserver: leader changed"), Failure::Lost),
            (Status::unavailable("etcdserver: request timed out"), Failure::Lost),
            (Status::deadline_exceeded("context deadline exceeded"), Failure::Lost),
            (Status::resource_exhausted("grpc: received message larger"), Failure::Refused),
            (Status::permission_denied("etcdserver: permission denied"), Failure::Refused),
            (Status::unimplemented("unknown method"), Failure::Refused),
            (
                with_source(Code::Unavailable, tonic::ConnectError(Box::new(refused))),
                Failure::NotConnected,
            ),
            (with_source(Code::Unknown, reset), Failure::Lost),
            (with_source(Code::Unknown, alert), Failure::NotTrusted),
            (with_source(Code::Unknown, other_alert), Failure::Lost),
        ];
        for (status, expected) in table {
            assert_eq!(failure(&status), expected, "{status:?}");
        }
    }

    #[test]
    fn only_what_was_surely_not_executed_is_written_again() {
        use Repeat::{Always, IfNotExecuted};
        let table = [
            // failure, attempts so far, of a read, of a write
            (Failure::Busy, 1, Step::Again, Step::Again),
            (Failure::NotServing, 1, Step::Elsewhere, Step::Elsewhere),
            (Failure::NotConnected, 9, Step::Elsewhere, Step::Elsewhere),
            (Failure::NotTrusted, 1, Step::Elsewhere, Step::Elsewhere),
            (Failure::NotTrusted, 3, Step::GiveUp, Step::GiveUp),
            (Failure::TokenInvalid, 1, Step::Authenticate, Step::Authenticate),
            (Failure::Lost, 1, Step::Elsewhere, Step::OutcomeUnknown),
            (Failure::Refused, 1, Step::GiveUp, Step::GiveUp),
        ];
        for (failure, attempts, of_read, of_write) in table {
            assert_eq!(step(failure, Always, attempts, 3), of_read, "read, {failure:?}");
            assert_eq!(step(failure, IfNotExecuted, attempts, 3), of_write, "write, {failure:?}");
        }
    }

    #[test]
    fn the_delay_begins_after_one_round_doubles_and_ends() {
        let millis = |step, attempts, random| delay(step, attempts, 3, random).as_millis();
        assert_eq!(millis(Step::Elsewhere, 1, 1.0), 0);
        assert_eq!(millis(Step::Elsewhere, 2, 1.0), 0);
        assert_eq!(millis(Step::Elsewhere, 3, 1.0), 50);
        assert_eq!(millis(Step::Elsewhere, 4, 1.0), 100);
        assert_eq!(millis(Step::Elsewhere, 4, 0.0), 50);
        assert_eq!(millis(Step::Again, 1, 1.0), 50);
        assert_eq!(millis(Step::Again, 3, 0.5), 150);
        assert_eq!(millis(Step::Again, u32::MAX, 1.0), 2000);
    }
}
