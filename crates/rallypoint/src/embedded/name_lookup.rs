//! Looks the name of the endpoint up again, for a host whose name resolves late.
//!
//! In Kubernetes the name of a pod resolves some seconds after the pod has started, and for some seconds after it
//! was replaced to the address of the one before. So long as no server answers, a name is looked up again.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::decide::{DEFAULT_PORT, NamedServer, ServerPlacement};
use super::this_host::ThisHost;
use crate::config::{ConfigError, Endpoint, RendezvousParameters};
use crate::log_target::EMBEDDED;
use crate::util::blocking::blocking;

/// How often a name is looked up.
const EVERY: Duration = Duration::from_secs(1);

/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(2);

/// The name of a server that may come to mean this host.
#[derive(Debug, Clone)]
pub(super) struct LateName {
    endpoint: Endpoint,
    max_nodes: usize,
    local_addr: Option<String>,
}

impl LateName {
    /// The server that the parameters name.
    ///
    /// # Errors
    /// If their endpoint is not one host.
    pub(super) fn of(parameters: &RendezvousParameters) -> Result<Self, ConfigError> {
        Ok(Self {
            endpoint: Endpoint::parse(&parameters.endpoint, DEFAULT_PORT)?,
            max_nodes: parameters.max_nodes,
            local_addr: parameters.local_addr.clone(),
        })
    }

    /// Waits until the name means this host, and returns the address to listen on; nothing if the name means another
    /// host and a server answers there.
    pub(super) async fn settled(self) -> Option<SocketAddr> {
        loop {
            sleep(EVERY).await;
            let asked = self.clone();
            let (server, warning) = blocking(move || asked.placement()).await;
            match server {
                ServerPlacement::Here { address, .. } => {
                    if let Some(warning) = warning {
                        tracing::warn!(target: EMBEDDED, "{warning}");
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

    fn placement(&self) -> (ServerPlacement, Option<String>) {
        let Self { endpoint, max_nodes, local_addr } = self;
        let local_addr = local_addr.as_deref();
        let named = NamedServer { endpoint, max_nodes: *max_nodes, local_addr };
        named.placement(None, &ThisHost::look())
    }

    async fn answers(&self) -> bool {
        let Endpoint { host, port, .. } = &self.endpoint;
        timeout(CONNECTING, TcpStream::connect((host.as_str(), *port)))
            .await
            .is_ok_and(|connected| connected.is_ok())
    }
}
