//! The options of a client: endpoints, certificates, credentials and time-outs.
//!
//! All of them are checked here, once, before the first request.

use std::path::PathBuf;
use std::time::Duration;

use super::error::ClientError;
use crate::config::{ETCD_PORT, Endpoint, Protocol};
use crate::credentials::Credentials;

/// The options of a client of one cluster.
///
/// ```
/// use std::time::Duration;
/// use rallypoint::client::{ClientOptions, Credentials};
///
/// let options = ClientOptions::new(["10.0.0.1:2379", "10.0.0.2:2379"]).with(|options| {
///     options.credentials = Some(Credentials::new("trainer", "secret"));
///     options.timeout = Duration::from_secs(30);
/// });
/// assert!(options.validate().is_ok());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// The servers: `host`, `host:port`, `http://host:port` or `https://host:port`, where host is a
    /// name, an IPv4 address or an IPv6 address in brackets. The port is 2379 unless given. One string
    /// may hold several, separated by commas.
    pub endpoints: Vec<String>,
    /// Certificates for `https://` endpoints. With it, an endpoint without a scheme means `https://`.
    pub tls: Option<TlsOptions>,
    /// The user to authenticate as, where the cluster requires one.
    pub credentials: Option<Credentials>,
    /// How long a call may take, including retries.
    pub timeout: Duration,
    /// How long one endpoint may take to answer a read before another is asked. It doubles with each
    /// attempt, so that a slow server is not asked for ever without hearing it out. An endpoint from which nothing
    /// comes at all, not even the answer to a probe, is left within two seconds, by all who use the client.
    pub attempt_timeout: Duration,
    /// How long it may take to open a connection.
    pub connect_timeout: Duration,
    /// How long the peer may be silent before it is pinged. etcd allows a ping every 5 s.
    pub keep_alive_interval: Duration,
    /// How long it may take to answer the ping before the connection counts as dead.
    pub keep_alive_timeout: Duration,
}

/// A certificate or a key in PEM form.
#[derive(Clone)]
pub enum Pem {
    /// The text itself.
    Bytes(Vec<u8>),
    /// The path of the file, which is read when the client is created.
    File(PathBuf),
}

impl std::fmt::Debug for Pem {
    /// Leaves out the text, which may be a private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Pem {
    /// The text, checked for a section with the label `label`.
    pub(crate) fn load(&self, what: &'static str, label: &str) -> Result<Vec<u8>, ClientError> {
        let (text, origin) = match self {
            Self::Bytes(bytes) => (bytes.clone(), "in memory".to_owned()),
            Self::File(path) => {
                let text = std::fs::read(path).map_err(|source| ClientError::File {
                    what,
                    path: path.clone(),
                    source,
                })?;
                (text, path.display().to_string())
            }
        };
        // The TLS library skips sections that it cannot read, and would then trust no server, without an error.
        let found = String::from_utf8_lossy(&text)
            .lines()
            .any(|line| line.starts_with("-----BEGIN ") && line.contains(label));
        if !found {
            let fix = format!("it has no PEM block that begins with -----BEGIN …{label}-----");
            return Err(ClientError::invalid(what, origin, fix));
        }
        Ok(text)
    }
}

/// The certificates for TLS: the trusted authority, and the client's own identity.
#[derive(Debug, Clone)]
pub struct TlsOptions {
    /// The certificate of the authority that signed the servers' certificates.
    pub ca: Pem,
    /// The client's own certificate and private key, where the servers require one.
    pub identity: Option<(Pem, Pem)>,
    /// The name that the servers' certificates are made out to, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl TlsOptions {
    /// Options that trust servers whose certificates `ca` has signed.
    pub fn new(ca: Pem) -> Self {
        Self { ca, identity: None, server_name: None }
    }
}

impl ClientOptions {
    /// These options after `change`, so that a single expression can set several of them.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Options for these endpoints with the defaults otherwise: no TLS, no user, 10 s for a call.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            credentials: None,
            timeout: Duration::from_secs(10),
            attempt_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(2),
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(5),
        }
    }

    /// Checks all options, without reading a file or opening a connection.
    ///
    /// # Errors
    /// [`ClientError::Config`] names the first invalid option and the remedy.
    pub fn validate(&self) -> Result<(), ClientError> {
        self.addresses().map(drop)
    }

    /// The host and the port of each endpoint.
    pub(crate) fn hosts(&self) -> Result<Vec<(String, u16)>, ClientError> {
        Ok(self.addresses()?.into_iter().map(|address| (address.host, address.port)).collect())
    }

    /// The endpoints, parsed; everything else is checked on the way.
    pub(super) fn addresses(&self) -> Result<Vec<Endpoint>, ClientError> {
        let least = Duration::from_millis(1);
        for (what, value, least) in [
            ("timeout", self.timeout, least),
            ("attempt_timeout", self.attempt_timeout, least),
            ("connect_timeout", self.connect_timeout, least),
            ("keep_alive_interval", self.keep_alive_interval, Duration::from_secs(5)),
            ("keep_alive_timeout", self.keep_alive_timeout, least),
        ] {
            if value < least {
                let fix = format!("give at least {least:?}");
                return Err(ClientError::invalid(what, format!("{value:?}"), fix));
            }
        }
        if let Some(Credentials { user, .. }) = &self.credentials
            && user.is_empty()
        {
            return Err(ClientError::invalid("user", "", "give a user name or no credentials"));
        }
        let protocol = if self.tls.is_some() { Protocol::Https } else { Protocol::Http };
        let mut addresses = Vec::new();
        for text in self.endpoints.iter().flat_map(|list| list.split(',')) {
            let parsed = Endpoint::parse(text.trim(), ETCD_PORT)?;
            if parsed.protocol.is_some_and(|given| given != protocol) {
                let fix = match protocol {
                    Protocol::Http => "https:// needs TLS options with a CA certificate",
                    Protocol::Https => "with TLS options every endpoint must be https://",
                };
                return Err(ClientError::invalid("endpoint", text.trim(), fix));
            }
            let address = Endpoint { protocol: Some(protocol), ..parsed };
            // An endpoint given twice would be used twice as often, and retried right after its failure.
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return Err(ClientError::invalid("endpoints", "", "give at least one host:port"));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked_together() {
        let parse = |options: ClientOptions| {
            options.addresses().map(|all| all.iter().map(Endpoint::url).collect::<Vec<_>>())
        };
        let both = ["http://a:2379".to_owned(), "http://b:1".to_owned()];
        assert_eq!(parse(ClientOptions::new(["a, b:1", "http://a:2379"])).unwrap(), both);

        let tls = Some(TlsOptions::new(Pem::Bytes(Vec::new())));
        let with_tls =
            |endpoint: &str| ClientOptions { tls: tls.clone(), ..ClientOptions::new([endpoint]) };
        assert_eq!(parse(with_tls("a")).unwrap(), ["https://a:2379"]);

        let short = Duration::from_secs(1);
        for (options, names) in [
            (ClientOptions::new([""]), "endpoint \"\""),
            (ClientOptions::new(Vec::<String>::new()), "endpoints"),
            (ClientOptions::new(["https://a"]), "endpoint \"https://a\": https:// needs TLS"),
            (with_tls("http://a"), "endpoint \"http://a\": with TLS"),
            (
                ClientOptions { keep_alive_interval: short, ..ClientOptions::new(["a"]) },
                "keep_alive_interval \"1s\": give at least 5s",
            ),
            (
                ClientOptions { timeout: Duration::ZERO, ..ClientOptions::new(["a"]) },
                "timeout \"0ns\"",
            ),
            (
                ClientOptions {
                    credentials: Some(Credentials::new("", "p")),
                    ..ClientOptions::new(["a"])
                },
                "user \"\"",
            ),
        ] {
            let error = parse(options).unwrap_err().to_string();
            assert!(error.contains(names), "{error} should name {names}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = ClientOptions {
            credentials: Some(Credentials::new("u", "hidden")),
            tls: Some(TlsOptions::new(Pem::Bytes(b"hidden".to_vec()))),
            ..ClientOptions::new(["a"])
        };
        assert!(!format!("{options:?}").contains("hidden"));
    }
}
