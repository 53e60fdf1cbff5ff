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
use super::standby::{Occupant, StandBy};
use super::this_host::ThisHost;
use crate::config::{Endpoint, EtcdOptions, RendezvousParameters};
use crate::log_target::EMBEDDED;
use crate::server::ServerOptions;
use crate::succession::{HostOrder, OrderSetup};
use crate::util::blocking::blocking;

/// How often names are looked up that do not resolve, or may be out of date.
const EVERY: Duration = Duration::from_secs(1);

/// How often names are looked up that have not resolved for [`OUT_OF_DATE`]. One of them may be wrong.
const RARELY: Duration = Duration::from_secs(30);

/// After this time the log says which names do not resolve. Most names that are late resolve before.
const LATE: Duration = Duration::from_secs(5);

/// How long a name may be out of date after all names resolve.
const OUT_OF_DATE: Duration = Duration::from_secs(60);

/// The hosts of an order that are this one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OwnPlaces {
    /// Their positions, and the addresses to listen on. There may be several, at different ports.
    pub(crate) places: Vec<(usize, SocketAddr)>,
    /// The names that do not resolve.
    pub(crate) unresolved: Vec<String>,
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
                ServerPlacement::Undecided { resolves: false } => {
                    found.unresolved.push(endpoint.host.clone());
                }
                _ => {}
            }
        }
        found
    }

    /// Whether it is known if this host is one of the order. If it is, the names that do not resolve are those of others.
    fn is_known(&self) -> bool {
        !self.places.is_empty() || self.unresolved.is_empty()
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
    let own = config.own_places.clone();
    if let Some((position, listener)) = bind(config, &own.places).await? {
        return Ok(Some(tokio::spawn(started.run(position, listener))));
    }
    let may_change = config.is_host.is_none() && endpoints.iter().any(|one| one.ip().is_none());
    if own.is_known() || !may_change {
        started.order.decide();
    }
    let parameters = config.parameters.clone();
    Ok((may_change && own.places.is_empty())
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
                match StandBy::at(config, *address).await?.occupant().await {
                    Occupant::OtherRun(run) => {
                        return Err(EmbeddedServerError::OtherRun { address: *address, run });
                    }
                    Occupant::Launcher => tracing::info!(
                        target: EMBEDDED,
                        %address, "another launcher of this host listens here, and serves for it"
                    ),
                    Occupant::Unknown => tracing::warn!(
                        target: EMBEDDED,
                        %address, "a program that does not answer as a launcher of this job listens here, so this host will \
                         not serve; end that program, or give --rdzv-endpoint with another port"
                    ),
                }
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
        let begun = Instant::now();
        let (mut said, mut resolved) = (false, None::<Instant>);
        while resolved.is_none_or(|at| at.elapsed() < OUT_OF_DATE) {
            let pause = if begun.elapsed() < OUT_OF_DATE { EVERY } else { RARELY };
            let (endpoints, parameters) = (endpoints.clone(), parameters.clone());
            let look = move || {
                let hints = ServerHints::default();
                OwnPlaces::find(&endpoints, &parameters, hints, &ThisHost::look())
            };
            // A name server that does not answer holds up a lookup, and not the end of the launcher.
            let looked = self.stop.run_until_cancelled(async {
                sleep(pause).await;
                blocking(look).await
            });
            let Some(found) = looked.await else { return };
            let is_known = found.is_known();
            for (position, address) in found.places {
                let bound = TcpListener::bind(address).await.and_then(TcpListener::into_std);
                match bound {
                    Ok(listener) => return self.run(position, listener).await,
                    Err(source) if resolved.is_none() => {
                        let error = EmbeddedServerError::Listen { address, source };
                        tracing::warn!(target: EMBEDDED, "{error}");
                    }
                    Err(_) => {}
                }
            }
            if !is_known && begun.elapsed() >= LATE && !std::mem::replace(&mut said, true) {
                tracing::warn!(
                    target: EMBEDDED,
                    names = found.unresolved.join(","), "these names of --rdzv-endpoint do not resolve, and one of them \
                     may be this host. They are looked up until they do; if one is wrong, correct it on all nodes"
                );
            }
            if is_known {
                resolved.get_or_insert_with(Instant::now);
                self.order.decide();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::config::RALLYPOINT_BACKEND;
    use crate::embedded::this_host::tests::host;

    /// Another launcher of this host has its place, and the name of another host never resolves.
    #[tokio::test]
    async fn a_host_whose_places_are_taken_does_not_wait_for_the_names_of_others() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("{},unknown:7", taken.local_addr().unwrap());
        let parameters =
            RendezvousParameters::new(RALLYPOINT_BACKEND, endpoint, "job", 1, 3).unwrap();
        let mut config = RendezvousConfig::from_parameters(parameters, &host(), None).unwrap();
        assert_eq!(config.own_places.unresolved, ["unknown"]);
        let started = start(&mut config, Serving::default(), CancellationToken::new());
        assert!(started.await.unwrap().is_none(), "it has no part in the order");
        let order = config.parameters.succession.unwrap();
        timeout(Duration::from_secs(5), order.votes())
            .await
            .expect("it is known that it does not vote");
    }
}
