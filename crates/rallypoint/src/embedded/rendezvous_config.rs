//! Where the nodes of a job meet, and whether this host runs the server.

use std::net::SocketAddr;

use thiserror::Error;

use super::decide::Question;
use super::this_host::ThisHost;
use crate::client::{ClientError, Credentials, ETCD_PORT, TlsOptions};
use crate::config::suggest;
use crate::rendezvous::{
    Endpoint, EtcdOptions, ParameterError, RendezvousError, RendezvousParameters,
};

/// The backend that brings its own server.
pub(crate) const RALLYPOINT_BACKEND: &str = "rallypoint";

/// Whom the nodes of a job authenticate as, with the secret for a password.
pub(crate) const SECRET_USER: &str = "rallypoint";

/// Where an embedded server listens unless told otherwise, as torchrun's `c10d` does.
pub const DEFAULT_PORT: u16 = 29400;

/// Whether this host runs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPlacement {
    /// It does not: another host does, or an etcd is there already.
    Elsewhere,
    /// On loopback, at a free port: nobody else is to come.
    Loopback,
    /// Here. Unless it is `required`, someone else on this host may be there first, and then is the server.
    Here {
        /// Where to listen.
        address: SocketAddr,
        /// Whether nobody else may be there.
        required: bool,
    },
    /// That is not known yet: the endpoint names another host, on which no server may answer, or none at all. It is
    /// looked up again until a server answers, since names may be late or out of date.
    Undecided {
        /// Whether it names a host.
        resolves: bool,
    },
}

impl ServerPlacement {
    /// Whether this host runs the server for all that is known now.
    pub fn is_here(self) -> bool {
        matches!(self, Self::Loopback | Self::Here { .. })
    }
}

/// How this node meets the others.
#[derive(Debug, Clone)]
pub struct RendezvousConfig {
    /// Under [`ServerPlacement::Loopback`] without an endpoint until the server has one.
    pub parameters: RendezvousParameters,
    /// Whether this host runs the server.
    pub server: ServerPlacement,
    /// What this node authenticates with, and what a server on this host asks its clients for.
    pub credentials: Option<Credentials>,
    /// TLS, if any. A server on this host shows the same identity as its clients do.
    pub tls: Option<TlsOptions>,
    /// What the user should know about the decision.
    pub warnings: Vec<String>,
}

impl RendezvousConfig {
    /// Decides it by the parameters of a backend on etcd. If that is `rallypoint`, one host in the endpoint
    /// runs the server itself, and the option `is_host` overrules what this host thinks of its name; several
    /// hosts are an etcd that is there already. Nodes that share a `secret` ask each other for it.
    ///
    /// Blocks if a name has to be looked up.
    ///
    /// # Errors
    /// [`ParameterError`] says which parameter is wrong, and what would be right.
    pub fn from_parameters(
        mut parameters: RendezvousParameters,
        host: &ThisHost,
        secret: Option<&str>,
    ) -> Result<Self, ParameterError> {
        parameters.validate()?;
        let mut warnings = Vec::new();
        let mut server = ServerPlacement::Elsewhere;
        if parameters.backend == RALLYPOINT_BACKEND {
            let is_host = parameters.get_as_bool("is_host")?;
            parameters.config.remove("is_host");
            server = place(&mut parameters, is_host, host, &mut warnings)?;
            let embedded = !parameters.endpoint.contains(',');
            let given = ["user", "password"].iter().any(|key| parameters.get(key).is_some());
            if let (true, false, Some(secret)) = (embedded, given, secret) {
                parameters.config.insert("user".to_owned(), SECRET_USER.to_owned());
                parameters.config.insert("password".to_owned(), secret.to_owned());
            }
        }
        let options = EtcdOptions::from_parameters(&parameters).map_err(with_is_host)?;
        let connection = options.connection;
        let (tls, credentials) = (connection.tls, connection.credentials);
        if server.is_here() && tls.as_ref().is_some_and(|tls| tls.identity.is_none()) {
            let fix = "this host runs the server; give cert and key, which it shows its clients";
            return Err(ParameterError::missing("cert", fix));
        }
        Ok(Self { parameters, server, credentials, tls, warnings })
    }

    /// Whether an error means that this node has not the secret of the others: the server is one that the nodes
    /// bring, and they were given no other credentials for it.
    pub fn secret_error(&self, error: &RendezvousError) -> Option<SecretError> {
        let is_secret = |credentials: &Credentials| credentials.user == SECRET_USER;
        let by_secret = self.parameters.backend == RALLYPOINT_BACKEND
            && self.credentials.as_ref().is_none_or(is_secret);
        let RendezvousError::Connection { source, .. } = error else { return None };
        let is_unauthenticated = source.downcast_ref().is_some_and(ClientError::is_unauthenticated);
        (by_secret && is_unauthenticated).then(|| {
            let endpoint = self.parameters.endpoint.clone();
            SecretError { endpoint, has_secret: self.credentials.is_some() }
        })
    }
}

/// The nodes of a job share a secret, and this one does not.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "the server at {endpoint} does not let this node in: {}",
    if *.has_secret { "its secret is another" } else { "it asks for a secret, and here is none" }
)]
pub struct SecretError {
    endpoint: String,
    has_secret: bool,
}

/// The one option of this backend that was read before the others.
fn with_is_host(error: ParameterError) -> ParameterError {
    match error {
        ParameterError::UnknownOption { backend, option, mut known, .. }
            if backend == RALLYPOINT_BACKEND =>
        {
            known.push("is_host");
            let suggestion = suggest(&option, known.iter().copied()).map(str::to_owned);
            ParameterError::UnknownOption { backend, option, suggestion, known }
        }
        error => error,
    }
}

/// Completes the endpoint, and decides whether it is here.
fn place(
    parameters: &mut RendezvousParameters,
    is_host: Option<bool>,
    host: &ThisHost,
    warnings: &mut Vec<String>,
) -> Result<ServerPlacement, ParameterError> {
    let given = parameters.endpoint.trim();
    if parameters.max_nodes == 1 && is_any_port(given) {
        parameters.endpoint.clear();
        return Ok(ServerPlacement::Loopback);
    }
    if given.is_empty() {
        let fix = format!(
            "{} nodes need a place to meet; give a host that all of them reach, such as head:{DEFAULT_PORT}, on \
             each of them, and it will run the server",
            parameters.max_nodes
        );
        return Err(ParameterError::missing("endpoint", fix));
    }
    let port = if given.contains(',') { ETCD_PORT } else { DEFAULT_PORT };
    let endpoints = given.split(',').map(|one| Endpoint::parse(one.trim(), port));
    let endpoints: Vec<Endpoint> = endpoints.collect::<Result<_, _>>()?;
    // It would mean another host to each of them.
    if let Some(any) = endpoints.iter().find(|at| matches!(&*at.host, "0.0.0.0" | "[::]")) {
        let fix = "this is no host; name the one that runs the server as all nodes reach it";
        return Err(ParameterError::invalid("endpoint", any.to_string(), fix));
    }
    parameters.endpoint = endpoints.iter().map(written).collect::<Vec<_>>().join(",");
    let [endpoint] = &endpoints[..] else {
        return match is_host {
            Some(true) => Err(ParameterError::Conflict {
                first: "is_host=true".to_owned(),
                second: "an endpoint of several hosts".to_owned(),
                fix: "several hosts are an etcd that is there already; name this host alone"
                    .to_owned(),
            }),
            _ => Ok(ServerPlacement::Elsewhere),
        };
    };
    let (max_nodes, local_addr) = (parameters.max_nodes, parameters.local_addr.as_deref());
    let (server, warning) =
        Question { endpoint, told: is_host, max_nodes, local_addr, host }.decide();
    warnings.extend(warning);
    Ok(server)
}

/// Whether an endpoint leaves the port to a node that is alone: none is given, or port 0 of this host, as in
/// torchrun's own line for one node.
pub(crate) fn is_any_port(endpoint: &str) -> bool {
    let host = endpoint.strip_suffix(":0");
    endpoint.is_empty()
        || host.is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"))
}

/// As it has to be written to be read again.
pub(crate) fn written(endpoint: &Endpoint) -> String {
    match endpoint.protocol {
        Some(protocol) => format!("{protocol}://{endpoint}"),
        None => endpoint.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::this_host::tests::host;

    fn config(
        endpoint: &str,
        max: usize,
        options: &[(&str, &str)],
    ) -> Result<RendezvousConfig, String> {
        let parameters =
            RendezvousParameters::new(RALLYPOINT_BACKEND, endpoint, "job", 1, max).unwrap();
        let parameters =
            options.iter().fold(parameters, |all, (key, value)| all.with(*key, *value));
        RendezvousConfig::from_parameters(parameters, &host(), None)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_host_that_is_named_serves() {
        let at = |text: &str, required| ServerPlacement::Here {
            address: text.parse().unwrap(),
            required,
        };
        for (endpoint, options, completed, server) in [
            ("alias", &[][..], "alias:29400", at("10.0.0.1:29400", false)),
            ("127.0.0.1:7", &[], "127.0.0.1:7", at("127.0.0.1:7", false)),
            ("other:7", &[], "other:7", ServerPlacement::Undecided { resolves: true }),
            ("alias", &[("is_host", "no")], "alias:29400", ServerPlacement::Elsewhere),
            ("other", &[("is_host", "1")], "other:29400", at("0.0.0.0:29400", true)),
            ("alias,b:7", &[], "alias:2379,b:7", ServerPlacement::Elsewhere),
        ] {
            let found = config(endpoint, 2, options).unwrap();
            assert_eq!((&*found.parameters.endpoint, found.server), (completed, server));
        }
        for endpoint in ["", "localhost:0", "127.0.0.1:0"] {
            let found = config(endpoint, 1, &[]).unwrap();
            assert_eq!(
                (&*found.parameters.endpoint, found.server),
                ("", ServerPlacement::Loopback)
            );
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (endpoint, options, words) in [
            ("", &[][..], "endpoint is missing: 2 nodes need a place to meet"),
            ("localhost:0", &[], "endpoint \"localhost:0\": port 0 is any free port"),
            ("0.0.0.0", &[], "endpoint \"0.0.0.0:29400\": this is no host"),
            ("a,b", &[("is_host", "true")], "is_host=true and an endpoint of several hosts"),
            ("alias", &[("is_host", "maybe")], "is_host \"maybe\": give true or false"),
            ("alias", &[("lease_tll", "3")], "unknown option \"lease_tll\""),
            (
                "alias",
                &[("is_hots", "1")],
                "unknown option \"is_hots\" of backend \"rallypoint\": did you mean is_host?",
            ),
            (
                "alias",
                &[("protocol", "https"), ("cacert", "x")],
                "cert is missing: this host runs the server",
            ),
        ] {
            let error = config(endpoint, 2, options).unwrap_err();
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn a_secret_is_for_a_server_that_the_nodes_bring() {
        let with = |backend: &str, endpoint: &str| {
            let parameters = RendezvousParameters::new(backend, endpoint, "job", 1, 2).unwrap();
            let config = RendezvousConfig::from_parameters(parameters, &host(), Some("s"));
            config.unwrap().credentials.map(|credentials| (credentials.user, credentials.password))
        };
        assert_eq!(
            with(RALLYPOINT_BACKEND, "alias"),
            Some((SECRET_USER.to_owned(), "s".to_owned()))
        );
        assert_eq!(with(RALLYPOINT_BACKEND, "a,b"), None);
        assert_eq!(with("etcd", "alias"), None);
    }
}
