//! What a node tells over HTTP: whether it is a member of a group, and metrics.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus::proto::MetricFamily;
use rallypoint_core::kv::Time;
use tokio::sync::watch;

use super::LaunchError;
use super::run_metrics::{RunFacts, RunMetrics};
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
        Arc::new(Self { waits_for, server: OnceLock::new(), run: Arc::new(run) })
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
                self.run.renewed(before.saturating_sub(boot_time()));
            }
            before = now;
        }
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
        [process_metrics(), server, self.run.families()].concat()
    }
}
