//! The endpoints of a client, and the one that it currently uses.
//!
//! A client holds one connection at a time, since a cluster may have ten thousand clients. It starts at
//! a random endpoint, stays while that answers, and moves to the next one when it does not. If a single call has
//! failed, other calls under way stay where they are; if the connection is lost, all of them move. The owner of a client
//! may choose its endpoint instead, where hosts succeed each other as servers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::error::ClientError;
use super::line::Line;
use super::options::ClientOptions;

use crate::log_target::CLIENT;

pub(super) struct Endpoints {
    targets: Vec<EndpointTarget>,
    current: Mutex<Current>,
}

struct EndpointTarget {
    name: Arc<str>,
    endpoint: Endpoint,
}

struct Current {
    index: usize,
    /// Whether the client stays at this server, also when it fails, until its owner chooses another one.
    pinned: bool,
    /// Incremented with each move, so that a hundred calls that failed together cause one move.
    generation: u64,
    /// Created when first needed; it connects by itself, and reconnects when the server closes the connection.
    open: Option<(Channel, Arc<Line>)>,
    /// The number of connections that were lost to silence within a short time, and the time of the last loss.
    losses: u32,
    lost_at: Option<Instant>,
}

/// A loss older than this is not counted any more.
const LONG_AGO: Duration = Duration::from_secs(30);

/// The connection to one server.
#[derive(Clone)]
pub(super) struct EndpointConnection {
    pub(super) channel: Channel,
    pub(super) name: Arc<str>,
    pub(super) line: Arc<Line>,
    generation: u64,
}

impl Endpoints {
    /// Checks the options and reads the certificates. No connection is opened yet.
    pub(super) fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        let addresses = options.addresses()?;
        let tls = tls_config(options)?;
        let mut targets = Vec::with_capacity(addresses.len());
        for name in addresses.iter().map(crate::config::Endpoint::url) {
            let mut endpoint = Endpoint::from_shared(name.clone())
                .map_err(|_| {
                    ClientError::invalid("endpoint", &name, "give host:port, like 10.0.0.1:2379")
                })?
                .tcp_nodelay(true)
                .connect_timeout(options.connect_timeout)
                .http2_keep_alive_interval(options.keep_alive_interval)
                .keep_alive_timeout(options.keep_alive_timeout)
                // etcd treats pings on a connection without a stream as abuse and closes it.
                .keep_alive_while_idle(false);
            if let Some(tls) = &tls {
                endpoint = endpoint
                    .tls_config(tls.clone())
                    .map_err(|source| ClientError::Tls { endpoint: name.clone(), source })?;
            }
            targets.push(EndpointTarget { name: name.into(), endpoint });
        }
        let index = fastrand::usize(..targets.len());
        let current =
            Current { index, pinned: false, generation: 0, open: None, losses: 0, lost_at: None };
        Ok(Self { targets, current: Mutex::new(current) })
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// The connection to the current server. Must be called inside a tokio runtime.
    pub(super) fn current(&self) -> EndpointConnection {
        let mut current = self.lock();
        let target = &self.targets[current.index];
        let open = || (target.endpoint.connect_lazy(), Arc::default());
        let (channel, line) = current.open.get_or_insert_with(open).clone();
        EndpointConnection {
            channel,
            name: target.name.clone(),
            line,
            generation: current.generation,
        }
    }

    /// How long the current server may take to answer a probe; `least` at first.
    ///
    /// The time doubles when all endpoints were lost in turn, so that servers which are slow under load get to answer,
    /// and do not get the same connections again and again.
    pub(super) fn patience(&self, least: Duration) -> Duration {
        let current = self.lock();
        let recent = current.lost_at.is_some_and(|lost| lost.elapsed() < LONG_AGO);
        let rounds = if recent { current.losses as usize / self.targets.len() } else { 0 };
        least * (1 << rounds.min(3))
    }

    /// Abandons `connection` for all calls on it, and moves to the next server.
    pub(super) fn lost(&self, connection: &EndpointConnection) {
        if self.failed(connection) {
            let mut current = self.lock();
            let recent = current.lost_at.is_some_and(|lost| lost.elapsed() < LONG_AGO);
            current.losses = if recent { current.losses.saturating_add(1) } else { 1 };
            current.lost_at = Some(Instant::now());
        }
        connection.line.lose();
    }

    /// Moves to this server for all calls, and stays there.
    pub(super) fn pin_to(&self, index: usize) {
        let mut current = self.lock();
        current.pinned = true;
        if current.index != index && index < self.targets.len() {
            current.index = index;
            current.generation += 1;
            if let Some((_, line)) = current.open.take() {
                line.lose();
            }
        }
    }

    /// Closes the connection, once no call is under way on it. The next call opens another one.
    pub(super) fn disconnect(&self) {
        let mut current = self.lock();
        current.generation += 1;
        current.open = None;
    }

    /// Moves to the next server; returns false if another call has done so since `connection` was obtained. Calls under
    /// way on the old connection may still be answered.
    ///
    /// With a single endpoint this still opens a new connection: the old one may be dead without a sign.
    pub(super) fn failed(&self, connection: &EndpointConnection) -> bool {
        let mut current = self.lock();
        if current.generation != connection.generation {
            return false;
        }
        current.generation += 1;
        if !current.pinned {
            current.index = (current.index + 1) % self.targets.len();
        }
        // Calls under way hold the channel; its connection closes with the last of them.
        current.open = None;
        let next = &self.targets[current.index].name;
        tracing::debug!(target: CLIENT, endpoint = %connection.name, %next, "an endpoint failed");
        true
    }
}

fn tls_config(options: &ClientOptions) -> Result<Option<ClientTlsConfig>, ClientError> {
    let Some(tls) = &options.tls else { return Ok(None) };
    let ca = tls.ca.load("CA certificate", "CERTIFICATE")?;
    let mut config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(ca))
        // A connection that is accepted but never answered must not delay the next endpoint.
        .timeout(options.connect_timeout);
    if let Some((certificate, key)) = &tls.identity {
        let certificate = certificate.load("client certificate", "CERTIFICATE")?;
        let key = key.load("client key", "PRIVATE KEY")?;
        config = config.identity(Identity::from_pem(certificate, key));
    }
    if let Some(name) = &tls.server_name {
        config = config.domain_name(name);
    }
    Ok(Some(config))
}
