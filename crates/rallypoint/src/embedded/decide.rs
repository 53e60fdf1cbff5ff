//! Which node runs the embedded server, at which address, with which secret and certificate: decided here for the
//! launcher, for the Python package and for programs alike.
//!
//! With the backend `rallypoint`, the host in the endpoint runs the server itself; several hosts are an order, in which
//! they succeed each other. An etcd that runs already has the backend `etcd`. The launcher adds what it alone knows as
//! [`ServerHints`].

use std::net::SocketAddr;

use thiserror::Error;

use super::order::OwnPlaces;
use super::this_host::{NameMeaning, ThisHost, listening, meaning};
use crate::client::{ClientError, Credentials, TlsOptions};
use crate::config::{
    ConfigError, ConnectionOptions, ETCD_PORT, Endpoint, EtcdOptions, RALLYPOINT_BACKEND,
    RendezvousParameters, has_succession, is_host,
};
use crate::rendezvous::RendezvousError;

/// The user as which the nodes of a job authenticate, with the shared secret for a password.
pub(crate) const SECRET_USER: &str = "rallypoint";

/// The port of an embedded server unless another is given, as that of torchrun's `c10d`.
pub const DEFAULT_PORT: u16 = 29400;

/// Whether this process runs the embedded server, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPlacement {
    /// Another host runs it, or an etcd runs already.
    Elsewhere,
    /// This process, on loopback at a free port: no other node can join.
    Loopback,
    /// This process. Unless it is `required`, another process of this host may have started first, and then is the
    /// server.
    Here {
        /// The address to listen on.
        address: SocketAddr,
        /// Whether it is an error if the address is in use.
        required: bool,
    },
    /// Not decided yet: the endpoint names another host, on which no server may answer, or no host that is known. It
    /// is looked up again until a server answers, since names may be late or out of date.
    Undecided {
        /// Whether the name resolves to a host.
        resolves: bool,
    },
    /// Several hosts may serve, in the order of the endpoint.
    Order {
        /// Whether this host is one of them, by all that is known now.
        is_here: bool,
    },
}

impl ServerPlacement {
    /// Whether this process runs the server by all that is known now.
    pub fn is_here(self) -> bool {
        matches!(self, Self::Loopback | Self::Here { .. } | Self::Order { is_here: true })
    }
}

/// What the launcher knows besides the parameters. The default is that of a caller that knows nothing more.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerHints {
    /// Whether this node has rank 0, where a scheduler or torchrun's static form has assigned ranks and rank 0 runs
    /// the server.
    pub(crate) is_rank0: Option<bool>,
    /// The position of this host among those that may serve, where the scheduler tells it. A position beyond them is
    /// that of a host which may not.
    pub(crate) position: Option<usize>,
    /// The names of the fields in errors.
    pub(crate) fields: FieldNames,
}

/// The interface that the user has written in, whose names errors use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldNames {
    /// Arguments by name: `endpoint`.
    #[default]
    Arguments,
    /// Options of the command line: `--rdzv-endpoint`.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command has one"))]
    CommandLine,
}

impl FieldNames {
    fn endpoint(self) -> &'static str {
        match self {
            Self::Arguments => "endpoint",
            Self::CommandLine => "--rdzv-endpoint",
        }
    }

    fn cert_and_key(self) -> (&'static str, &'static str) {
        match self {
            Self::Arguments => ("cert", "key"),
            Self::CommandLine => ("--cert", "--key"),
        }
    }

    /// The error of a job of several nodes without an endpoint.
    pub(crate) fn missing_endpoint(self, max_nodes: usize) -> ConfigError {
        let example = match self {
            Self::Arguments => format!("head:{DEFAULT_PORT}"),
            Self::CommandLine => format!("--rdzv-endpoint head:{DEFAULT_PORT}"),
        };
        let fix = format!(
            "{max_nodes} nodes need a place to meet; give a host that all of them reach, such as {example}, on \
             each of them, and it will run the server"
        );
        ConfigError::missing(self.endpoint(), fix)
    }

    /// Reads the endpoints of `--rdzv-endpoint` or `endpoint`: the hosts that may serve, at the embedded server's port
    /// unless given, or an etcd, at etcd's. An address that means another host to each node is refused.
    pub(crate) fn endpoints(self, text: &str, backend: &str) -> Result<Vec<Endpoint>, ConfigError> {
        let is_embedded = backend == RALLYPOINT_BACKEND;
        let port = if is_embedded { DEFAULT_PORT } else { ETCD_PORT };
        let endpoints = Endpoint::parse_all(text, port)?;
        if let Some((first, again)) = repeated(&endpoints).filter(|_| is_embedded) {
            let fix = format!("this is the same as {first}; name each host that may serve once");
            return Err(ConfigError::invalid(self.endpoint(), again.to_string(), fix));
        }
        let is_any = |endpoint: &&Endpoint| endpoint.ip().is_some_and(|ip| ip.is_unspecified());
        if let Some(any) = endpoints.iter().find(is_any) {
            let fix = "this is no host; name the one that runs the server as all nodes reach it";
            return Err(ConfigError::invalid(self.endpoint(), any.to_string(), fix));
        }
        Ok(endpoints)
    }
}

/// The configuration of this node's rendezvous, with everything decided: the parameters of the handler, and the
/// embedded server's placement, credentials and certificate.
#[derive(Debug, Clone)]
pub struct RendezvousConfig {
    /// The parameters of the handler. Under [`ServerPlacement::Loopback`] they have no endpoint until the server has
    /// one.
    pub parameters: RendezvousParameters,
    /// Whether this process runs the server.
    pub server: ServerPlacement,
    /// The credentials of this node, which a server in this process requires of its clients.
    pub credentials: Option<Credentials>,
    /// TLS, if any. A server in this process has the same certificate as its clients.
    pub tls: Option<TlsOptions>,
    /// What the user should know about the decision.
    pub warnings: Vec<String>,
    /// Where several hosts may serve: which of them are this one.
    pub(crate) own_places: OwnPlaces,
    /// Whether this node may serve, as far as the user or a rank has told.
    pub(crate) is_host: Option<bool>,
}

impl RendezvousConfig {
    /// Decides by the parameters of a backend on etcd. If that is `rallypoint`, the host in the endpoint runs the
    /// server itself, and the option `is_host` overrules what this host thinks of its name; of several hosts the first
    /// one does, and the others may succeed it. Nodes that share a `secret` require it of each other.
    ///
    /// Blocks if a name has to be looked up.
    ///
    /// # Errors
    /// [`ConfigError`] names the parameter that is wrong, and the remedy.
    pub fn from_parameters(
        mut parameters: RendezvousParameters,
        host: &ThisHost,
        secret: Option<&str>,
    ) -> Result<Self, ConfigError> {
        let hints = ServerHints::default();
        let given = parameters.endpoint.trim();
        if parameters.backend == RALLYPOINT_BACKEND {
            let endpoints = if given.is_empty() || leaves_port_open(given, parameters.max_nodes) {
                Vec::new()
            } else {
                hints.fields.endpoints(given, RALLYPOINT_BACKEND)?
            };
            parameters.endpoint = written(&endpoints);
        }
        Self::decide(parameters, host, secret, hints)
    }

    /// Decides for parameters whose endpoint is complete: every host with its port, or empty for a node that is
    /// alone.
    pub(crate) fn decide(
        mut parameters: RendezvousParameters,
        host: &ThisHost,
        secret: Option<&str>,
        hints: ServerHints,
    ) -> Result<Self, ConfigError> {
        parameters.validate()?;
        let mut placed = Placed::default();
        let mut told = None;
        if parameters.backend == RALLYPOINT_BACKEND {
            told = is_host(&parameters)?;
            if !has_succession(&parameters)? {
                let first = parameters.endpoint.split(',').next().unwrap_or_default();
                parameters.endpoint = first.to_owned();
            }
            placed = placement(&parameters, told, host, hints)?;
            if let Some(secret) = secret
                && given_credential(&parameters).is_none()
            {
                parameters.config.insert("user".to_owned(), SECRET_USER.to_owned());
                parameters.config.insert("password".to_owned(), secret.to_owned());
            }
        }
        let connection = ConnectionOptions::of_backend(&parameters)?;
        let (tls, credentials) =
            connection.map_or((None, None), |connection| (connection.tls, connection.credentials));
        // The decision is made, and the handler needs it no more.
        parameters.config.remove("is_host");
        let Placed { server, own_places, warnings } = placed;
        if server.is_here() && tls.as_ref().is_some_and(|tls| tls.identity.is_none()) {
            let (cert, key) = hints.fields.cert_and_key();
            let fix = format!(
                "this host runs the server; give {cert} and {key}, which it shows its clients"
            );
            return Err(ConfigError::missing(cert, fix));
        }
        Ok(Self { parameters, server, credentials, tls, warnings, own_places, is_host: told })
    }

    /// The error of a node without the shared secret of its peers, if `error` is a failed authentication at a server
    /// that the nodes bring, and they were given no other credentials for it.
    pub fn secret_error(&self, error: &RendezvousError) -> Option<SecretError> {
        let RendezvousError::Connection { source, .. } = error else { return None };
        self.secret_refused(source.downcast_ref()?)
    }

    /// The same for the error of a client.
    pub(crate) fn secret_refused(&self, error: &ClientError) -> Option<SecretError> {
        let is_secret = |credentials: &Credentials| credentials.user == SECRET_USER;
        let by_secret = self.parameters.backend == RALLYPOINT_BACKEND
            && self.credentials.as_ref().is_none_or(is_secret);
        (by_secret && error.is_unauthenticated()).then(|| {
            let endpoint = self.parameters.endpoint.clone();
            SecretError { endpoint, has_secret: self.credentials.is_some() }
        })
    }
}

/// The nodes of a job share a secret, and this node does not have it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "authentication failed at the server at {endpoint}: {}",
    if *.has_secret {
        "the shared secret does not match"
    } else {
        "the server requires a shared secret and none is set"
    }
)]
pub struct SecretError {
    endpoint: String,
    has_secret: bool,
}

/// The option by which the user has given credentials, which a secret does not replace.
pub(crate) fn given_credential(parameters: &RendezvousParameters) -> Option<&'static str> {
    ["user", "password"].into_iter().find(|key| parameters.get(key).is_some())
}

/// The placement of the server, with what follows from it.
#[derive(Debug, Clone)]
struct Placed {
    server: ServerPlacement,
    own_places: OwnPlaces,
    warnings: Vec<String>,
}

impl Default for Placed {
    fn default() -> Self {
        Self::at(ServerPlacement::Elsewhere)
    }
}

impl Placed {
    fn at(server: ServerPlacement) -> Self {
        Self { server, own_places: OwnPlaces::default(), warnings: Vec::new() }
    }
}

/// Decides where the server of the backend `rallypoint` runs.
fn placement(
    parameters: &RendezvousParameters,
    is_host: Option<bool>,
    host: &ThisHost,
    hints: ServerHints,
) -> Result<Placed, ConfigError> {
    let RendezvousParameters { endpoint, max_nodes, local_addr, .. } = parameters;
    if endpoint.is_empty() {
        return match max_nodes {
            1 => Ok(Placed::at(ServerPlacement::Loopback)),
            _ => Err(hints.fields.missing_endpoint(*max_nodes)),
        };
    }
    let endpoints = Endpoint::parse_all(endpoint, DEFAULT_PORT)?;
    let [endpoint] = &endpoints[..] else {
        return order(&endpoints, parameters, is_host, host, hints);
    };
    let told = is_host.or(hints.is_rank0);
    let named = NamedServer { endpoint, max_nodes: *max_nodes, local_addr: local_addr.as_deref() };
    let (server, warning) = named.placement(told, host);
    Ok(Placed { warnings: warning.into_iter().collect(), ..Placed::at(server) })
}

/// Decides which of several hosts that may serve are this one.
fn order(
    endpoints: &[Endpoint],
    parameters: &RendezvousParameters,
    is_host: Option<bool>,
    host: &ThisHost,
    hints: ServerHints,
) -> Result<Placed, ConfigError> {
    let own_places = match is_host {
        Some(true) => {
            return Err(ConfigError::conflict(
                "is_host=true",
                format!("an {} of several hosts", hints.fields.endpoint()),
                "each of these hosts knows itself by its name; name the hosts so that each resolves its own name",
            ));
        }
        Some(false) => OwnPlaces::default(),
        None => OwnPlaces::find(endpoints, parameters, hints, host),
    };
    let mut warnings = own_places.warnings.clone();
    warnings.extend(two_nodes(parameters).map(str::to_owned));
    let server = ServerPlacement::Order { is_here: !own_places.places.is_empty() };
    Ok(Placed { server, own_places, warnings })
}

/// What a user should know whose job may have two nodes: neither is more than half.
fn two_nodes(parameters: &RendezvousParameters) -> Option<&'static str> {
    // What is wrong with other options is said where they are used.
    let EtcdOptions { handler, .. } = EtcdOptions::from_parameters(parameters).ok()?;
    let limits = handler.limits();
    (handler.sizes.size(limits, 2).size == 2).then_some(match limits.max {
        2 => {
            "two nodes cannot outvote each other: if the host that serves is lost, the other one waits for it. A job of \
             three nodes goes on without any one of them"
        }
        _ => {
            "two nodes cannot outvote each other: while the group has only two nodes and the host that serves is lost, the \
             other one waits for it. A group of three nodes or more goes on without any one of them"
        }
    })
}

/// The first endpoint that is named twice, and its repetition.
fn repeated(endpoints: &[Endpoint]) -> Option<(&Endpoint, &Endpoint)> {
    let named = |one: &Endpoint| (one.host.to_ascii_lowercase(), one.port);
    endpoints.iter().enumerate().find_map(|(index, again)| {
        let first = endpoints[..index].iter().find(|first| named(first) == named(again))?;
        Some((first, again))
    })
}

/// A server that the endpoint names, for the decision whether that is this host.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedServer<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) max_nodes: usize,
    pub(super) local_addr: Option<&'a str>,
}

impl NamedServer<'_> {
    /// Decides by what the user or the rank has `told`, or else by the meaning of the name at the moment, and returns
    /// a warning for the user. Blocks if a name has to be looked up.
    pub(super) fn placement(
        self,
        told: Option<bool>,
        host: &ThisHost,
    ) -> (ServerPlacement, Option<String>) {
        let Self { endpoint, local_addr, .. } = self;
        let meaning = self.meaning(host);
        match (told, meaning) {
            (Some(false), _) => return (ServerPlacement::Elsewhere, None),
            // An address does not change its meaning.
            (None, NameMeaning::Elsewhere) if endpoint.ip().is_some() => {
                return (ServerPlacement::Elsewhere, None);
            }
            (None, NameMeaning::Elsewhere) => {
                return (ServerPlacement::Undecided { resolves: true }, None);
            }
            (None, NameMeaning::Unknown) => {
                return (ServerPlacement::Undecided { resolves: false }, None);
            }
            (Some(true), _) | (None, NameMeaning::Here(_) | NameMeaning::HereSomehow) => {}
        }
        let (ip, warning) = listening(&endpoint.host, meaning, local_addr, host);
        let address = SocketAddr::new(ip, endpoint.port);
        (ServerPlacement::Here { address, required: told.is_some() }, warning)
    }

    /// The meaning of the endpoint, given the number of nodes.
    fn meaning(self, host: &ThisHost) -> NameMeaning {
        match meaning(&self.endpoint.host, host) {
            // A user who writes an address means it. A name of the loopback address is also what rank 0 is told by
            // programs that give the other nodes another name of its host.
            NameMeaning::Here(ip)
                if ip.is_loopback() && self.max_nodes > 1 && self.endpoint.ip().is_none() =>
            {
                NameMeaning::HereSomehow
            }
            meaning => meaning,
        }
    }
}

/// Whether an endpoint leaves the port to a node that is alone: port 0 of this host, as in torchrun's own line for
/// one node.
pub(crate) fn leaves_port_open(endpoint: &str, max_nodes: usize) -> bool {
    let host = endpoint.strip_suffix(":0");
    max_nodes == 1 && host.is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"))
}

/// The endpoints as one text, which can be read again.
pub(crate) fn written(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(Endpoint::url).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
