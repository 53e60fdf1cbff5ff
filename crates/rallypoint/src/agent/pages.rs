//! Health, readiness and metrics of a foreign agent's node over HTTP, and the events that they follow from.

use std::error::Error as StdError;
use std::sync::Arc;

use rallypoint_core::agent::{AgentInput, AgentOutput, AgentSettings};
use rallypoint_core::kv::Time;
use thiserror::Error;
use tokio_util::task::AbortOnDropHandle;

use crate::config::ConfigError;
use crate::embedded::{EmbeddedServer, RendezvousConfig};
use crate::events::EventRecorder;
use crate::http::HttpServer;
use crate::launch::pages::NodePages;
use crate::rendezvous::{
    EtcdOptions, EtcdRendezvousHandler, HandlerStatus, RendezvousHandler as _,
};
use crate::util::host::host_name;

/// Why a node tells nothing over HTTP.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct PagesError(Box<dyn StdError + Send + Sync>);

impl PagesError {
    fn new(error: impl StdError + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

/// What a node tells over HTTP, until this is dropped.
pub struct AgentPages {
    pages: Arc<NodePages>,
    recorder: EventRecorder,
    _server: HttpServer,
    following: Vec<AbortOnDropHandle<()>>,
}

impl AgentPages {
    /// Listens, if the options ask for it (`http`). To be called before the server and the handler are started: probes
    /// are answered from then on, and the events of the handler are recorded.
    ///
    /// # Errors
    /// [`PagesError`] if an option is wrong, or if the address or the certificate cannot be used.
    pub async fn open(config: &mut RendezvousConfig) -> Result<Option<Self>, PagesError> {
        let options = EtcdOptions::from_parameters(&config.parameters).map_err(PagesError::new)?;
        let Some(address) = options.handler.http else { return Ok(None) };
        if config.tls.as_ref().is_some_and(|tls| tls.identity.is_none()) {
            let fix = "this job uses TLS, and http does too; give cert and key of this node";
            return Err(PagesError::new(ConfigError::missing("cert", fix)));
        }
        // torchrun has restarts of its own, and does not tell how many are left.
        let pages = NodePages::new(&config.parameters, None);
        let server = pages.open(address, config).await.map_err(PagesError::new)?;
        let recorder =
            config.parameters.recorder.get_or_insert_with(EventRecorder::without_file).clone();
        Ok(Some(Self { pages, recorder, _server: server, following: Vec::new() }))
    }

    /// This process runs the server of the job, or may do so later.
    pub fn embeds(&self, server: &EmbeddedServer) {
        self.pages.embeds(server.serving());
    }

    /// Follows the handler of the node.
    pub(super) fn follow(&mut self, handler: &EtcdRendezvousHandler) {
        let settings = AgentSettings { host: host_name(), ..AgentSettings::default() };
        self.recorder.agent_began(handler.run_id(), handler.node_id(), &settings);
        let (pages, mut changes) = (self.pages.clone(), handler.changes());
        let readiness = async move {
            loop {
                show(&pages, &changes.borrow_and_update());
                if changes.changed().await.is_err() {
                    return pages.waits_for("its rendezvous has ended");
                }
            }
        };
        let margin = self.pages.clone().follow_fence(handler.fence_at());
        self.following = vec![
            AbortOnDropHandle::new(tokio::spawn(readiness)),
            AbortOnDropHandle::new(tokio::spawn(margin)),
        ];
    }

    /// What the node tells.
    pub(super) fn node(&self) -> Arc<NodePages> {
        self.pages.clone()
    }

    /// The time by the clock of the recorded events.
    pub(super) fn now(&self) -> Time {
        self.recorder.origin().elapsed()
    }

    /// Records what the agent was told, and what it decided.
    pub(super) fn record(&self, input: &AgentInput, outputs: &[AgentOutput]) {
        self.recorder.agent_step(self.now(), input, outputs);
    }
}

fn show(pages: &NodePages, status: &HandlerStatus) {
    match (status.view.member_of, &status.view.waits_for) {
        (Some(_), _) => pages.is_member(),
        (None, Some(what)) => pages.waits_for(what),
        (None, None) => pages.waits_for("its agent has not asked for a group"),
    }
}
