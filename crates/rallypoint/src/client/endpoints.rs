//! Which server is being talked to.
//!
//! A client holds one connection at a time, since a cluster may have ten thousand clients. It begins at
//! a random endpoint, stays while that answers, and goes on to the next one when it does not.

use std::sync::{Arc, Mutex, PoisonError};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::error::ClientError;
use super::options::ClientOptions;

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
    /// Made when first wanted; it connects by itself, and again when the connection is lost.
    channel: Option<Channel>,
}

/// The way to one server.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) name: Arc<str>,
    generation: u64,
}

impl Endpoints {
    /// Checks the options and reads the certificates; nothing is connected yet.
    pub(super) fn new(options: &ClientOptions) -> Result<Self, ClientError> {
        let addresses = options.addresses()?;
        let tls = tls_config(options)?;
        let mut targets = Vec::with_capacity(addresses.len());
        for name in addresses.iter().map(ToString::to_string) {
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
        let current = Mutex::new(Current { index, generation: 0, channel: None });
        Ok(Self { targets, current })
    }

    pub(super) fn len(&self) -> usize {
        self.targets.len()
    }

    /// The way to the current server. Must be called inside a tokio runtime.
    pub(super) fn current(&self) -> Connection {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let target = &self.targets[current.index];
        let channel = current.channel.get_or_insert_with(|| target.endpoint.connect_lazy()).clone();
        Connection { channel, name: target.name.clone(), generation: current.generation }
    }

    /// Goes on to the next server, unless somebody has done so since `connection` was handed out.
    ///
    /// With a single endpoint this still makes a new connection: the old one may be dead without knowing.
    pub(super) fn failed(&self, connection: &Connection) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.generation != connection.generation {
            return;
        }
        current.generation += 1;
        current.index = (current.index + 1) % self.targets.len();
        // Calls still under way hold the channel; with the last of them its connection closes.
        current.channel = None;
        let next = &self.targets[current.index].name;
        tracing::debug!(endpoint = %connection.name, %next, "an endpoint failed");
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
