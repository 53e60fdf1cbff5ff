//! The calls of clients, under the names that etcd's gRPC library gives them.
//!
//! Everything is resolved when the server starts: a call costs four atomic additions and two readings of the clock,
//! and allocates nothing. The labels are bounded by the list of methods, whatever paths clients send.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};
use tonic::Code;

use crate::metrics::VALID;
use crate::server::grpc::{
    AUTH, CLUSTER, DOCTOR, ELECTION, HEALTH, KV, LEASE, LOCK, MAINTENANCE, SUCCESSION, WATCH,
};

/// The methods that are served. All calls to other methods are counted as one.
const METHODS: [(&str, &str, CallKind); 31] = [
    (KV, "Range", CallKind::Unary),
    (KV, "RangeStream", CallKind::Responses),
    (KV, "Put", CallKind::Unary),
    (KV, "DeleteRange", CallKind::Unary),
    (KV, "Txn", CallKind::Unary),
    (KV, "Compact", CallKind::Unary),
    (LEASE, "LeaseGrant", CallKind::Unary),
    (LEASE, "LeaseRevoke", CallKind::Unary),
    (LEASE, "LeaseKeepAlive", CallKind::Stream),
    (LEASE, "LeaseTimeToLive", CallKind::Unary),
    (LEASE, "LeaseLeases", CallKind::Unary),
    (WATCH, "Watch", CallKind::Stream),
    (CLUSTER, "MemberList", CallKind::Unary),
    (MAINTENANCE, "Status", CallKind::Unary),
    (MAINTENANCE, "Alarm", CallKind::Unary),
    (MAINTENANCE, "Defragment", CallKind::Unary),
    (MAINTENANCE, "Hash", CallKind::Unary),
    (MAINTENANCE, "HashKV", CallKind::Unary),
    (AUTH, "Authenticate", CallKind::Unary),
    (AUTH, "AuthStatus", CallKind::Unary),
    (LOCK, "Lock", CallKind::Unary),
    (LOCK, "Unlock", CallKind::Unary),
    (ELECTION, "Campaign", CallKind::Unary),
    (ELECTION, "Proclaim", CallKind::Unary),
    (ELECTION, "Leader", CallKind::Unary),
    (ELECTION, "Observe", CallKind::Responses),
    (ELECTION, "Resign", CallKind::Unary),
    (HEALTH, "Check", CallKind::Unary),
    (DOCTOR, "DialBack", CallKind::Unary),
    (SUCCESSION, "Ask", CallKind::Unary),
    ("unknown", "unknown", CallKind::Unary),
];

/// The buckets of etcd's library, and finer ones below: most calls take microseconds.
const BUCKETS: [f64; 17] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0,
];

/// The names of gRPC's codes, by number.
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    Unary,
    /// A stream of requests and a stream of responses, which last for as long as the client likes.
    Stream,
    /// One request, and a stream of responses.
    Responses,
}

/// The metrics of all calls.
pub(in crate::server) struct CallMetrics {
    started: IntCounterVec,
    handled: IntCounterVec,
    handling: HistogramVec,
    methods: [Arc<MethodMetrics>; METHODS.len()],
}

/// The metrics of the calls of one method.
pub(in crate::server) struct MethodMetrics {
    started: IntCounter,
    handled: [IntCounter; CODES.len()],
    /// None for streams, whose length is up to the client.
    handling: Option<Histogram>,
}

impl CallMetrics {
    pub(super) fn new() -> Self {
        let names = ["grpc_type", "grpc_service", "grpc_method"];
        let with_code = ["grpc_type", "grpc_service", "grpc_method", "grpc_code"];
        let started = Opts::new("grpc_server_started_total", "Calls that have begun.");
        let started = IntCounterVec::new(started, &names).expect(VALID);
        let handled = Opts::new("grpc_server_handled_total", "Calls that have ended.");
        let handled = IntCounterVec::new(handled, &with_code).expect(VALID);
        let handling = HistogramOpts::new(
            "grpc_server_handling_seconds",
            "Time of calls that are no streams, until the response is ready to be sent.",
        );
        let handling = HistogramVec::new(handling.buckets(BUCKETS.to_vec()), &names).expect(VALID);
        let methods = METHODS.map(|(service, method, kind)| {
            let kind_name = match kind {
                CallKind::Unary => "unary",
                CallKind::Stream => "bidi_stream",
                CallKind::Responses => "server_stream",
            };
            let labels = [kind_name, service, method];
            Arc::new(MethodMetrics {
                started: started.with_label_values(&labels),
                handled: CODES
                    .map(|code| handled.with_label_values(&[kind_name, service, method, code])),
                handling: (kind == CallKind::Unary).then(|| handling.with_label_values(&labels)),
            })
        });
        Self { started, handled, handling, methods }
    }

    /// The metrics of this method.
    pub(in crate::server) fn of(&self, service: &str, method: &str) -> &Arc<MethodMetrics> {
        let is_it = |(other, name, _): &(&str, &str, _)| *other == service && *name == method;
        let index = METHODS.iter().position(is_it).unwrap_or(METHODS.len() - 1);
        &self.methods[index]
    }

    pub(super) fn families(&self) -> Vec<MetricFamily> {
        [self.started.collect(), self.handled.collect(), self.handling.collect()].concat()
    }
}

impl MethodMetrics {
    /// A call begins.
    pub(in crate::server) fn start(self: &Arc<Self>) -> ActiveCall {
        self.started.inc();
        let code = AtomicU8::new(Code::Cancelled as u8);
        ActiveCall { metrics: self.clone(), begun: Instant::now(), code }
    }
}

/// A call under way. It is counted as handled when it is dropped: with the code that was set, or else as canceled by
/// its client.
pub(in crate::server) struct ActiveCall {
    metrics: Arc<MethodMetrics>,
    begun: Instant,
    code: AtomicU8,
}

impl ActiveCall {
    /// Sets how the call ends.
    pub(in crate::server) fn ends_with(&self, code: Code) {
        self.code.store(code as u8, Ordering::Relaxed);
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        if let Some(handling) = &self.metrics.handling {
            handling.observe(self.begun.elapsed().as_secs_f64());
        }
        let code = usize::from(*self.code.get_mut());
        self.metrics.handled[code.min(CODES.len() - 1)].inc();
    }
}
