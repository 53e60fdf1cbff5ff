//! Metrics of the server, under etcd's names, so that etcd's dashboards and tools work with this server.
//!
//! - `calls`: the calls of clients.
//!
//! What is counted here are events; sizes and numbers are read from the engine when the page is built.

mod calls;

use std::sync::{Arc, Weak};

use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntGaugeVec, Opts};
use tokio::sync::OwnedSemaphorePermit;

pub(super) use self::calls::{ActiveCall, CallMetrics};
use super::engine::Engine;
use super::grpc::ETCD_VERSION;
use crate::metrics::{VALID, gauge, page, process_metrics};
use crate::util::blocking::blocking;

/// etcd's buckets for a write to the disk.
const DISK_BUCKETS: [f64; 14] = [
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096,
    8.192,
];

/// What the server counts.
pub(super) struct Counters {
    pub(super) calls: CallMetrics,
    pub(super) wal_fsync: Histogram,
    pub(super) leases_granted: IntCounter,
    pub(super) leases_revoked: IntCounter,
    pub(super) leases_renewed: IntCounter,
    pub(super) leases_expired: IntCounter,
}

impl Counters {
    pub(super) fn new() -> Self {
        let counter = |name, help| IntCounter::new(name, help).expect(VALID);
        let wal_fsync = HistogramOpts::new(
            "etcd_disk_wal_fsync_duration_seconds",
            "Time to write a batch to the write-ahead log and to sync it.",
        );
        let wal_fsync = Histogram::with_opts(wal_fsync.buckets(DISK_BUCKETS.to_vec()));
        Self {
            calls: CallMetrics::new(),
            wal_fsync: wal_fsync.expect(VALID),
            leases_granted: counter(
                "etcd_debugging_lease_granted_total",
                "Leases that were granted.",
            ),
            leases_revoked: counter(
                "etcd_debugging_lease_revoked_total",
                "Leases that have ended: revoked, or expired.",
            ),
            leases_renewed: counter(
                "etcd_debugging_lease_renewed_total",
                "Renewals of leases that exist.",
            ),
            leases_expired: counter(
                "etcd_debugging_server_lease_expired_total",
                "Leases that have expired.",
            ),
        }
    }

    fn families(&self) -> Vec<MetricFamily> {
        let mut families = self.calls.families();
        families.extend(self.wal_fsync.collect());
        let leases = [
            &self.leases_granted,
            &self.leases_revoked,
            &self.leases_renewed,
            &self.leases_expired,
        ];
        families.extend(leases.into_iter().flat_map(Collector::collect));
        families
    }
}

/// The metrics of a server, for as long as it exists.
#[derive(Clone)]
pub(crate) struct ServerMetrics(
    #[cfg_attr(not(feature = "cli"), expect(dead_code, reason = "only the command has pages"))]
    Weak<Engine>,
);

impl std::fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ServerMetrics").finish_non_exhaustive()
    }
}

impl ServerMetrics {
    pub(super) fn new(engine: &Arc<Engine>) -> Self {
        Self(Arc::downgrade(engine))
    }

    /// Whether the server accepts writes.
    #[cfg(feature = "cli")]
    pub(crate) fn is_serving(&self) -> bool {
        self.0.upgrade().is_some_and(|engine| engine.is_open())
    }

    /// The metrics as they are now; none of a server that has ended.
    #[cfg(feature = "cli")]
    pub(crate) fn families(&self) -> Vec<MetricFamily> {
        self.0.upgrade().map(|engine| families(&engine)).unwrap_or_default()
    }
}

/// The page of metrics of this server and its process. A page that is being made is finished, even if its client is
/// gone; so the permit is held until then.
pub(super) async fn metrics_page(engine: Arc<Engine>, permit: OwnedSemaphorePermit) -> String {
    let build = move || {
        let _permit = permit;
        page([process_metrics(), families(&engine)].concat())
    };
    blocking(build).await
}

fn families(engine: &Engine) -> Vec<MetricFamily> {
    let sizes = engine.sizes();
    let version = IntGaugeVec::new(
        Opts::new("etcd_server_version", "The version of etcd that this server conforms to."),
        &["server_version"],
    );
    let version = version.expect(VALID);
    version.with_label_values(&[ETCD_VERSION]).set(1);
    let mut families = engine.counters().families();
    families.extend(version.collect());
    let open = f64::from(u8::from(sizes.open));
    let values: [(&str, &str, f64); 10] = [
        ("etcd_server_has_leader", "Whether the server accepts writes.", open),
        ("etcd_server_is_leader", "The same: there is one member, and it leads.", open),
        ("etcd_debugging_mvcc_watcher_total", "Watches that exist.", sizes.watches as f64),
        (
            "etcd_debugging_mvcc_watch_stream_total",
            "Streams of watches that exist.",
            sizes.streams as f64,
        ),
        ("rallypoint_server_leases", "Leases that exist.", sizes.leases as f64),
        ("etcd_debugging_mvcc_current_revision", "The newest revision.", sizes.revision as f64),
        (
            "etcd_debugging_mvcc_compact_revision",
            "The newest revision that is compacted.",
            sizes.compacted as f64,
        ),
        (
            "etcd_mvcc_db_total_size_in_bytes",
            "Size of the log, or in memory of the store.",
            sizes.bytes as f64,
        ),
        (
            "etcd_mvcc_db_total_size_in_use_in_bytes",
            "Memory of keys, values and their history.",
            sizes.in_use as f64,
        ),
        ("etcd_server_quota_backend_bytes", "Limit of that memory.", sizes.quota as f64),
    ];
    families.extend(values.into_iter().flat_map(|(name, help, value)| gauge(name, help, value)));
    families
}
