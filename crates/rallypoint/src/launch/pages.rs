//! What a node tells over HTTP: whether it is a member of a group, and metrics.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use prometheus::proto::MetricFamily;
use rallypoint_core::agent::HangPolicy;
use rallypoint_core::kv::Time;
use tokio::sync::watch;

use super::LaunchError;
use super::hangs::unless_busy;
use super::run_metrics::{Progress, RunFacts, RunMetrics};
use super::workers::ProgressSigns;
use crate::embedded::{RendezvousConfig, ServerPlacement, Serving, certificate};
use crate::events::EventRecorder;
use crate::http::{HttpOptions, HttpServer, Pages, RunSource, Told};
use crate::metrics::process_metrics;
use crate::rendezvous::{EtcdOptions, RendezvousParameters};
use crate::runs::RemoteKeys;
use crate::util::clock::boot_time;

/// What a node tells, as the parts of its agent report it.
pub(crate) struct NodePages {
    /// What this node waits for; nothing while it is a member of a group.
    waits_for: Mutex<Option<String>>,
    server: OnceLock<Serving>,
    run: Arc<RunMetrics>,
    /// Of the workers that were started last, if anybody looks for signs of progress.
    progress: Mutex<Option<WorkerProgress>>,
}

/// The signs of progress of the workers of one start. They are a copy: who looks for hangs does not wait for a page.
#[derive(Clone)]
pub(crate) struct WorkerProgress {
    signs: Arc<Mutex<ProgressSigns>>,
    is_first: bool,
    policy: HangPolicy,
    begun: Instant,
}

impl WorkerProgress {
    /// Of workers that have just begun. `is_first`: whether the node has rank 0.
    pub(crate) fn new(signs: ProgressSigns, is_first: bool, policy: HangPolicy) -> Self {
        Self { signs: Arc::new(Mutex::new(signs)), is_first, policy, begun: Instant::now() }
    }

    /// The progress up to now; `None` while an earlier look waits for a file system. Blocks on the disk.
    fn look(&self) -> Option<Progress> {
        let latest = unless_busy(&self.signs)?.latest(self.is_first);
        let HangPolicy { after, first } = self.policy;
        Some(match latest {
            Some(at) => Progress { age: at.elapsed(), limit: after },
            None => Progress { age: self.begun.elapsed(), limit: first },
        })
    }
}

impl NodePages {
    /// `max_restarts`: the restarts of the job, if the agent knows them.
    pub(crate) fn new(parameters: &RendezvousParameters, max_restarts: Option<u32>) -> Arc<Self> {
        let waits_for = Mutex::new(Some("the launcher is starting".to_owned()));
        let options = EtcdOptions::from_parameters(parameters).ok().map(|options| options.handler);
        let run = RunMetrics::new(RunFacts {
            run_id: parameters.run_id.clone(),
            min_nodes: parameters.min_nodes,
            max_nodes: parameters.max_nodes,
            planned_nodes: options.as_ref().and_then(|options| options.sizes.planned),
            max_restarts,
            lease_ttl: options.map(|options| options.lease_ttl).unwrap_or_default(),
        });
        let (server, run, progress) = (OnceLock::new(), Arc::new(run), Mutex::default());
        Arc::new(Self { waits_for, server, run, progress })
    }

    /// Starts to tell it at this address.
    pub(crate) async fn open(
        self: &Arc<Self>,
        address: SocketAddr,
        rendezvous: &mut RendezvousConfig,
    ) -> Result<HttpServer, LaunchError> {
        let recorder = &mut rendezvous.parameters.recorder;
        let recorder = recorder.get_or_insert_with(EventRecorder::without_file);
        let run = self.run.clone();
        recorder.observe(Box::new(move |now, event| run.take(now, event)));
        let tls = certificate(rendezvous).await.map_err(LaunchError::Certificate)?;
        let credentials = rendezvous.credentials.clone();
        let options = HttpOptions { address, tls, credentials };
        let pages = Pages { told: self.clone(), runs: runs(rendezvous) };
        Ok(HttpServer::start(options, pages)?)
    }

    /// This process runs the server of the job, or may do so later.
    pub(crate) fn embeds(&self, server: Serving) {
        let _ = self.server.set(server);
    }

    /// Follows the fence, which each renewal of the lease moves on.
    pub(crate) async fn follow_fence(self: Arc<Self>, mut fence: watch::Receiver<Option<Time>>) {
        let mut before = *fence.borrow_and_update();
        while fence.changed().await.is_ok() {
            let now = *fence.borrow_and_update();
            if let (Some(before), true) = (before, now > before) {
                let acknowledged = boot_time();
                self.run.renewed(acknowledged, before.saturating_sub(acknowledged));
            }
            before = now;
        }
    }

    /// Workers were started, with these signs of progress if anybody looks for them.
    pub(crate) fn follow_progress(&self, progress: Option<WorkerProgress>) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// The progress of the workers, while they run. Blocks on the disk.
    fn progress(&self) -> Option<Progress> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        progress.filter(|_| self.run.is_training())?.look()
    }

    /// This node is no member of a group, and waits for this.
    pub(crate) fn waits_for(&self, what: &str) {
        let mut waits_for = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        if waits_for.as_deref() != Some(what) {
            *waits_for = Some(what.to_owned());
        }
    }

    /// This node is a member of a group.
    pub(crate) fn is_member(&self) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The runs of the job's server, for the page. There is none where the server has no address before it runs, and where
/// it asks its clients for a certificate and for nothing that the page could ask of its viewers.
fn runs(rendezvous: &RendezvousConfig) -> Option<RunSource> {
    let RendezvousConfig { parameters, server, credentials, tls, .. } = rendezvous;
    let has_certificate = tls.as_ref().is_some_and(|tls| tls.identity.is_some());
    if *server == ServerPlacement::Loopback || (has_certificate && credentials.is_none()) {
        return None;
    }
    let options = EtcdOptions::from_parameters(parameters).ok()?;
    let keys = RemoteKeys::new(options.client_options(), parameters.endpoint.clone());
    Some(RunSource { keys: Arc::new(keys), prefix: options.handler.prefix })
}

impl Told for NodePages {
    fn readiness(&self) -> Result<(), String> {
        let waits_for = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        waits_for.as_ref().map_or(Ok(()), |what| Err(format!("no member of a group: {what}")))
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let server = self.server.get().and_then(Serving::metrics);
        let server = server.map(|server| server.families()).unwrap_or_default();
        [process_metrics(), server, self.run.families(boot_time(), self.progress())].concat()
    }
}
