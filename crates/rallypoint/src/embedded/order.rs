//! The embedded server where several hosts may serve: which of them is this host, and its part in the order.

use std::io;
use std::net::{self, SocketAddr};
use std::time::Duration;

use rallypoint_core::rendezvous::keys::Keys;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::decide::{NamedServer, RendezvousConfig, ServerHints, ServerPlacement};
use super::server::{EmbeddedServerError, Serving, options};
use super::standby::StandBy;
use super::this_host::ThisHost;
use crate::config::{Endpoint, EtcdOptions, RendezvousParameters};
use crate::log_target::EMBEDDED;
use crate::server::ServerOptions;
use crate::succession::{HostOrder, OrderSetup};
use crate::util::blocking::blocking;

/// How often names are looked up that do not resolve, or may be out of date.
const EVERY: Duration = Duration::from_secs(1);

/// How long a name may be out of date after all names resolve.
const OUT_OF_DATE: Duration = Duration::from_secs(60);

/// The hosts of an order that are this one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OwnPlaces {
    /// Their positions, and the addresses to listen on. There may be several, at different ports.
    pub(crate) places: Vec<(usize, SocketAddr)>,
    /// Whether some name does not resolve.
    pub(crate) is_undecided: bool,
    /// What the user should know.
    pub(crate) warnings: Vec<String>,
}

impl OwnPlaces {
    /// Looks for this host among the endpoints. Blocks if a name has to be looked up.
    pub(super) fn find(
        endpoints: &[Endpoint],
        parameters: &RendezvousParameters,
        hints: ServerHints,
        host: &ThisHost,
    ) -> Self {
        let (max_nodes, local_addr) = (parameters.max_nodes, parameters.local_addr.as_deref());
        let mut found = Self::default();
        for (position, endpoint) in endpoints.iter().enumerate() {
            let told = match (hints.position, hints.is_rank0) {
                (Some(own), _) => Some(own == position),
                // Rank 0 is on the first host.
                (None, Some(true)) => Some(position == 0),
                (None, Some(false)) if position == 0 => Some(false),
                (None, _) => None,
            };
            let named = NamedServer { endpoint, max_nodes, local_addr };
            let (server, warning) = named.placement(told, host);
            match server {
                ServerPlacement::Here { address, .. } => {
                    found.places.push((position, address));
                    found.warnings.extend(warning);
                }
                ServerPlacement::Undecided { resolves: false } => found.is_undecided = true,
                _ => {}
            }
        }
        found
    }
}

/// A host of the order, as it is started.
struct OrderHost {
    order: HostOrder,
    options: ServerOptions,
    serving: Serving,
    stop: CancellationToken,
}

/// Starts this host's part in the order, and gives the order to the parameters of the handler. Returns the task of the
/// host, if it has a part, or may have.
pub(super) async fn start(
    config: &mut RendezvousConfig,
    serving: Serving,
    stop: CancellationToken,
) -> Result<Option<tokio::task::JoinHandle<()>>, EmbeddedServerError> {
    let EtcdOptions { connection, handler } = EtcdOptions::from_parameters(&config.parameters)?;
    let endpoints = Endpoint::parse_all(&config.parameters.endpoint, super::DEFAULT_PORT)?;
    let order = HostOrder::new(OrderSetup {
        keys: Keys::new(&handler.prefix, &handler.run_id),
        run_id: handler.run_id,
        lease_ttl: handler.lease_ttl,
        endpoints: endpoints.clone(),
        client: connection.client_options(),
    })
    .await?;
    config.parameters.succession = Some(order.clone());
    let options = options(config).await?.with(|options| options.notes = None);
    let started = OrderHost { order, options, serving, stop };
    let OwnPlaces { places, is_undecided, .. } = config.own_places.clone();
    if let Some((position, listener)) = bind(config, &places).await? {
        return Ok(Some(tokio::spawn(started.run(position, listener))));
    }
    let may_change = config.is_host.is_none() && endpoints.iter().any(|one| one.ip().is_none());
    if !is_undecided || !may_change {
        started.order.decide();
    }
    let parameters = config.parameters.clone();
    Ok((may_change && places.is_empty())
        .then(|| tokio::spawn(started.run_later(endpoints, parameters))))
}

/// Binds the first of these places that is free. The others belong to other launchers on this host.
async fn bind(
    config: &RendezvousConfig,
    places: &[(usize, SocketAddr)],
) -> Result<Option<(usize, net::TcpListener)>, EmbeddedServerError> {
    for (position, address) in places {
        match TcpListener::bind(address).await.and_then(TcpListener::into_std) {
            Ok(listener) => return Ok(Some((*position, listener))),
            Err(source) if source.kind() == io::ErrorKind::AddrInUse => {
                let other = StandBy::at(config, *address).await?.other_run().await;
                if let Some(run) = other {
                    return Err(EmbeddedServerError::OtherRun { address: *address, run });
                }
                tracing::info!(target: EMBEDDED, %address, "another process of this host listens here");
            }
            Err(source) => return Err(EmbeddedServerError::Listen { address: *address, source }),
        }
    }
    Ok(None)
}

impl OrderHost {
    async fn run(self, position: usize, listener: net::TcpListener) {
        let Self { order, options, serving, stop } = self;
        if let Some(host) = order.is_own(position) {
            host.run(listener, options, serving, stop).await;
        }
    }

    /// Looks the names up until one of them means this host. In Kubernetes the name of a pod resolves some seconds after
    /// the pod has started, and for a while to the address of the one before.
    async fn run_later(self, endpoints: Vec<Endpoint>, parameters: RendezvousParameters) {
        let mut resolved: Option<Instant> = None;
        while resolved.is_none_or(|at| at.elapsed() < OUT_OF_DATE) {
            if self.stop.run_until_cancelled(sleep(EVERY)).await.is_none() {
                return;
            }
            let (endpoints, parameters) = (endpoints.clone(), parameters.clone());
            let look = move || {
                let hints = ServerHints::default();
                OwnPlaces::find(&endpoints, &parameters, hints, &ThisHost::look())
            };
            let found = blocking(look).await;
            for (position, address) in found.places {
                let bound = TcpListener::bind(address).await.and_then(TcpListener::into_std);
                match bound {
                    Ok(listener) => return self.run(position, listener).await,
                    Err(source) => {
                        let error = EmbeddedServerError::Listen { address, source };
                        tracing::warn!(target: EMBEDDED, "{error}");
                    }
                }
            }
            if !found.is_undecided {
                resolved.get_or_insert_with(Instant::now);
                self.order.decide();
            }
        }
    }
}
