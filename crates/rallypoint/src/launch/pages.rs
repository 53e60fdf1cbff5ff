//! What the launcher tells over HTTP: whether this node is a member of a group, and metrics.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus::proto::MetricFamily;

use super::LaunchError;
use super::job::JobSpec;
use crate::embedded::{Serving, certificate};
use crate::http::{HttpOptions, HttpServer, Told};
use crate::metrics::process_metrics;

/// What the launcher tells, as its parts report it.
pub(super) struct LauncherPages {
    /// What this node waits for; nothing while it is a member of a group.
    waits_for: Mutex<Option<String>>,
    server: OnceLock<Serving>,
}

impl LauncherPages {
    pub(super) fn new() -> Arc<Self> {
        let waits_for = Mutex::new(Some("the launcher is starting".to_owned()));
        Arc::new(Self { waits_for, server: OnceLock::new() })
    }

    /// Starts to tell it, if the user asks for it.
    pub(super) async fn open(
        self: &Arc<Self>,
        job: &JobSpec,
    ) -> Result<Option<HttpServer>, LaunchError> {
        let Some(address) = job.http else { return Ok(None) };
        let tls = certificate(&job.rendezvous).await.map_err(LaunchError::Certificate)?;
        let credentials = job.rendezvous.credentials.clone();
        let options = HttpOptions { address, tls, credentials };
        Ok(Some(HttpServer::start(options, self.clone())?))
    }

    /// This process runs the server of the job, or may do so later.
    pub(super) fn embeds(&self, server: Serving) {
        let _ = self.server.set(server);
    }

    /// This node is no member of a group, and waits for this.
    pub(super) fn waits_for(&self, what: &str) {
        let mut waits_for = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        if waits_for.as_deref() != Some(what) {
            *waits_for = Some(what.to_owned());
        }
    }

    /// This node is a member of a group.
    pub(super) fn is_member(&self) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Told for LauncherPages {
    fn readiness(&self) -> Result<(), String> {
        let waits_for = self.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        waits_for.as_ref().map_or(Ok(()), |what| Err(format!("no member of a group: {what}")))
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let server = self.server.get().and_then(|serving| serving.get());
        let server = server.map(crate::server::ServerMetrics::families).unwrap_or_default();
        [process_metrics(), server].concat()
    }
}
