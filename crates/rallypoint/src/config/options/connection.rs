//! How to reach the servers: the options about the connection.

use std::collections::BTreeMap;
use std::time::Duration;

use super::read::Given;
use super::{Backend, DynamicOptions, EtcdOptions, Reader};
use crate::client::{ClientOptions, Credentials, Pem, TlsOptions};
use crate::config::endpoint::{Endpoint, Protocol};
use crate::config::error::ConfigError;
use crate::config::parameters::RendezvousParameters;

/// How to reach the servers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionOptions {
    /// The addresses of the servers.
    pub endpoints: Vec<Endpoint>,
    /// Certificates, if the protocol is `https`.
    pub tls: Option<TlsOptions>,
    /// The user of servers that require authentication.
    pub credentials: Option<Credentials>,
    /// How long a request may take (`read_timeout`).
    pub timeout: Duration,
}

impl ConnectionOptions {
    /// Reads the options and the endpoint of a client without a rendezvous: options of a rendezvous are unknown
    /// here.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option that is wrong or unknown, and the remedy.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ConfigError> {
        Self::read(&Reader::new(parameters, Backend::Client)?)
    }

    /// Checks all options of the backend that the parameters name, and returns those about the connection. Nothing for
    /// a backend that is not of this crate.
    pub(crate) fn of_backend(
        parameters: &RendezvousParameters,
    ) -> Result<Option<Self>, ConfigError> {
        Ok(match Backend::named(&parameters.backend) {
            Some(backend) if backend.is_own() => {
                Some(EtcdOptions::from_parameters(parameters)?.connection)
            }
            Some(Backend::Dynamic) => Some(DynamicOptions::from_parameters(parameters)?.connection),
            _ => None,
        })
    }

    /// Reads the options of the table.
    pub(super) fn read(reader: &Reader<'_>) -> Result<Self, ConfigError> {
        let endpoints = Endpoint::parse_list(&reader.parameters().endpoint)?;
        let protocol = protocol(reader, &endpoints)?;
        Ok(Self {
            tls: tls(reader, protocol)?,
            credentials: credentials(reader)?,
            timeout: reader.time("read_timeout")?,
            endpoints,
        })
    }

    /// The options of a client that reaches the servers.
    pub fn client_options(&self) -> ClientOptions {
        let usual = ClientOptions::new(self.endpoints.iter().map(ToString::to_string));
        ClientOptions {
            tls: self.tls.clone(),
            credentials: self.credentials.clone(),
            timeout: self.timeout,
            ..usual
        }
    }
}

/// The protocol of the option, or else of the endpoints; they must not contradict each other.
fn protocol(reader: &Reader<'_>, endpoints: &[Endpoint]) -> Result<Protocol, ConfigError> {
    let named = endpoints.iter().find_map(|endpoint| endpoint.protocol);
    let protocol = match (reader.given_as("protocol")?, named) {
        (None, Some(named)) => named,
        _ => reader.choice("protocol")?,
    };
    let other =
        endpoints.iter().find(|endpoint| endpoint.protocol.is_some_and(|other| other != protocol));
    match other {
        None => Ok(protocol),
        Some(endpoint) => Err(ConfigError::conflict(
            format!("protocol {protocol}"),
            format!("endpoint {:?}", endpoint.url()),
            "speak to all servers alike, and name the protocol once",
        )),
    }
}

fn tls(reader: &Reader<'_>, protocol: Protocol) -> Result<Option<TlsOptions>, ConfigError> {
    let authority = reader.given_as("cacert")?;
    let certificate = reader.given_as("cert")?;
    let key = reader.given_as("key")?;
    if protocol == Protocol::Http {
        return match authority.or(certificate).or(key) {
            None => Ok(None),
            Some(given) => {
                let fix = "certificates are for protocol=https";
                Err(ConfigError::conflict(given.name, "protocol http", fix))
            }
        };
    }
    let Some(authority) = authority else {
        let fix = "with protocol https give the file of the CA certificate that the servers' \
                   certificates are signed with";
        return Err(ConfigError::missing("cacert", fix));
    };
    let file = |given: Given<'_>| Pem::File(given.value.into());
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((file(certificate), file(key))),
        (Some(certificate), None) => {
            let fix =
                format!("give the file of the private key that belongs to {}", certificate.name);
            return Err(ConfigError::missing("key", fix));
        }
        (None, Some(key)) => {
            let fix = format!("give the file of the certificate that belongs to {}", key.name);
            return Err(ConfigError::missing("cert", fix));
        }
    };
    Ok(Some(TlsOptions { identity, ..TlsOptions::new(file(authority)) }))
}

/// The variable that may hold the password of the user in the options. Arguments of a command line are visible to
/// every user of the host; variables are not.
pub const PASSWORD: &str = "RALLYPOINT_PASSWORD";

/// Adds the password of the variable [`PASSWORD`] to the options, if they name a user and no password.
pub fn add_password(config: &mut BTreeMap<String, String>, found: Option<String>) {
    let given = |key| config.contains_key(key);
    if let Some(password) = found.filter(|password| !password.is_empty())
        && given("user")
        && !given("password")
        && !given("password_file")
    {
        config.insert("password".to_owned(), password);
    }
}

/// The password, or the content of its file.
fn password(reader: &Reader<'_>) -> Result<Option<String>, ConfigError> {
    const FILE: &str = "password_file";
    let (password, file) = (reader.text("password")?, reader.text(FILE)?);
    let Some(file) = file else { return Ok(password) };
    if password.is_some() {
        let fix = "give one of them; a file is not seen by others on this host";
        return Err(ConfigError::conflict("password", FILE, fix));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let fix = format!("it cannot be read ({error}); give a file with the password alone");
        ConfigError::invalid(FILE, &file, fix)
    })?;
    // Editors end a file with a newline.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    match text.strip_suffix('\r').unwrap_or(text) {
        "" => Err(ConfigError::invalid(FILE, file, "it is empty; write the password into it")),
        password => Ok(Some(password.to_owned())),
    }
}

fn credentials(reader: &Reader<'_>) -> Result<Option<Credentials>, ConfigError> {
    match (reader.text("user")?, password(reader)?) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Credentials { user, password })),
        (Some(user), None) => {
            let fix = format!(
                "give the password of user {user:?}, by password_file or by {PASSWORD}, or no user"
            );
            Err(ConfigError::missing("password", fix))
        }
        (None, Some(_)) => {
            Err(ConfigError::missing("user", "give the user whose password it is, or none"))
        }
    }
}
