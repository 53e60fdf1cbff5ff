//! Which server is being talked to.
//!
//! A client holds one connection at a time, since a cluster may have ten thousand clients. It begins at
//! a random endpoint, stays while that answers, and goes on to the next one when it does not. If it was a call that
//! failed, what else is under way stays where it is; if the connection is lost, all of it moves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::error::ClientError;
use super::line::Line;
use super::options::ClientOptions;

use crate::log_target::CLIENT;

pub(super) struct Endpoints {
    targets: Vec<Target>,
    current: Mutex<Current>,
}

struct Target {
    name: Arc<str>,
    endpoint: Endpoint,
}

struct Current {
    index: usize,
    /// Grows with each change, so that a hundred calls that failed together move on once.
    generation: u64,
    /// Made when first wanted; it connects by itself, and again when the server ends the connection.
    open: Option<(Channel, Arc<Line>)>,
    /// How many connections were lost to silence, one soon after the other, and the last of them when.
    losses: u32,
    lost_at: Option<Instant>,
}

/// A loss this long ago says nothing about the servers of today.
const LONG_AGO: Duration = Duration::from_secs(30);

/// The way to one server.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) name: Arc<str>,
    pub(super) line: Arc<Line>,
    generation: u64,
}

impl Endpoints {
    /// Checks the options and reads the certificates; nothing is connected yet.
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
                // etcd takes pings on a connection without a stream for abuse and closes it.
                .keep_alive_while_idle(false);
            if let Some(tls) = &tls {
                endpoint = endpoint
                    .tls_config(tls.clone())
                    .map_err(|source| ClientError::Tls { endpoint: name.clone(), source })?;
            }
            targets.push(Target { name: name.into(), endpoint });
        }
        let index = fastrand::usize(..targets.len());
        let current = Current { index, generation: 0, open: None, losses: 0, lost_at: None };
        Ok(Self { targets, current: Mutex::new(current) })
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// The way to the current server. Must be called inside a tokio runtime.
    pub(super) fn current(&self) -> Connection {
        let mut current = self.lock();
        let target = &self.targets[current.index];
        let open = || (target.endpoint.connect_lazy(), Arc::default());
        let (channel, line) = current.open.get_or_insert_with(open).clone();
        Connection { channel, name: target.name.clone(), line, generation: current.generation }
    }

    /// How long the current server may take to answer a probe, where at first it may take as long as `least`.
    ///
    /// It doubles when all endpoints were lost in turn, so that servers which are slow under load are heard out, and
    /// are not burdened with the same connections again and again.
    pub(super) fn patience(&self, least: Duration) -> Duration {
        let current = self.lock();
        let recent = current.lost_at.is_some_and(|lost| lost.elapsed() < LONG_AGO);
        let rounds = if recent { current.losses as usize / self.targets.len() } else { 0 };
        least * (1 << rounds.min(3))
    }

    /// Gives up on `connection` for all who use it, and goes on to the next server.
    pub(super) fn lost(&self, connection: &Connection) {
        if self.failed(connection) {
            let mut current = self.lock();
            let recent = current.lost_at.is_some_and(|lost| lost.elapsed() < LONG_AGO);
            current.losses = if recent { current.losses.saturating_add(1) } else { 1 };
            current.lost_at = Some(Instant::now());
        }
        connection.line.lose();
    }

    /// Goes on to the next server, unless somebody has done so since `connection` was handed out; then false. What
    /// is under way on the old connection may still be answered.
    ///
    /// With a single endpoint this still makes a new connection: the old one may be dead without knowing.
    pub(super) fn failed(&self, connection: &Connection) -> bool {
        let mut current = self.lock();
        if current.generation != connection.generation {
            return false;
        }
        current.generation += 1;
        current.index = (current.index + 1) % self.targets.len();
        // Calls still under way hold the channel; with the last of them its connection closes.
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
        // A connection that is accepted but never speaks must not hold up the next endpoint.
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
