//! A host that finds out late that it is the one to serve.
//!
//! In Kubernetes the name of a pod resolves some seconds after the pod has started, and for some seconds after it
//! was replaced to the address of the one before. So long as no server answers, a name is looked up again.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::decide::{Decision, Question};
use super::rendezvous_config::{DEFAULT_PORT, ServerPlacement};
use super::this_host::ThisHost;
use crate::rendezvous::{Endpoint, ParameterError, RendezvousParameters};
use crate::util::blocking::blocking;

/// How often a name is looked up.
const EVERY: Duration = Duration::from_secs(1);

/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(2);

/// What is asked again and again.
#[derive(Debug, Clone)]
pub(super) struct Undecided {
    endpoint: Endpoint,
    max_nodes: usize,
    local_addr: Option<String>,
}

impl Undecided {
    /// What is asked of these parameters.
    ///
    /// # Errors
    /// If their endpoint is not one host.
    pub(super) fn of(parameters: &RendezvousParameters) -> Result<Self, ParameterError> {
        Ok(Self {
            endpoint: Endpoint::parse(&parameters.endpoint, DEFAULT_PORT)?,
            max_nodes: parameters.max_nodes,
            local_addr: parameters.local_addr.clone(),
        })
    }

    /// Waits until the name means this host, and says where a server listens then; nothing if somebody answers
    /// where it means another one.
    pub(super) async fn settled(self) -> Option<SocketAddr> {
        loop {
            sleep(EVERY).await;
            let asked = self.clone();
            let (server, warning) = blocking(move || asked.ask()).await;
            match server {
                ServerPlacement::Here { address, .. } => {
                    if let Some(warning) = warning {
                        tracing::warn!("{warning}");
                    }
                    return Some(address);
                }
                ServerPlacement::Undecided { resolves: true } if self.answers().await => {
                    return None;
                }
                _ => {}
            }
        }
    }

    fn ask(&self) -> Decision {
        let Self { endpoint, max_nodes, local_addr } = self;
        let (host, local_addr) = (ThisHost::look(), local_addr.as_deref());
        Question { endpoint, told: None, max_nodes: *max_nodes, local_addr, host: &host }.decide()
    }

    async fn answers(&self) -> bool {
        let Endpoint { host, port, .. } = &self.endpoint;
        timeout(CONNECTING, TcpStream::connect((host.as_str(), *port)))
            .await
            .is_ok_and(|connected| connected.is_ok())
    }
}
