//! How to reach the servers, out of the parameters.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Zero, check_names, text, time};
use crate::client::{ClientOptions, Credentials, Pem, TlsOptions};
use crate::config::endpoint::{Endpoint, Protocol};
use crate::config::parameters::{ParameterError, RendezvousParameters};

/// How to reach the servers.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// Where they are.
    pub endpoints: Vec<Endpoint>,
    /// Certificates, if the protocol is `https`.
    pub tls: Option<TlsOptions>,
    /// A user of the cluster, where it asks for one.
    pub credentials: Option<Credentials>,
    /// How long a request may take (`read_timeout`).
    pub timeout: Duration,
}

impl ConnectionOptions {
    /// Reads the options and the endpoint, for whoever only connects: an option that says how to meet is
    /// not known here.
    ///
    /// # Errors
    /// [`ParameterError`] names the first option that is wrong or unknown, and what would be right.
    pub fn from_parameters(parameters: &RendezvousParameters) -> Result<Self, ParameterError> {
        check_names(parameters, &[])?;
        Self::read(parameters, 10)
    }

    /// Reads the options; requests may take `timeout` seconds unless one says otherwise.
    pub(super) fn read(
        parameters: &RendezvousParameters,
        timeout: u32,
    ) -> Result<Self, ParameterError> {
        let endpoints = Endpoint::parse_list(&parameters.endpoint)?;
        let protocol = protocol(parameters, &endpoints)?;
        Ok(Self {
            tls: tls(parameters, protocol)?,
            credentials: credentials(parameters)?,
            timeout: time(
                parameters,
                "read_timeout",
                Duration::from_secs(timeout.into()),
                Zero::Refused,
            )?,
            endpoints,
        })
    }

    /// The options of a client that reaches them.
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

/// What the option says, or else what the endpoints say; they must not contradict each other.
fn protocol(
    parameters: &RendezvousParameters,
    endpoints: &[Endpoint],
) -> Result<Protocol, ParameterError> {
    let option = parameters.get("protocol").map(str::parse::<Protocol>).transpose()?;
    let named = endpoints.iter().find_map(|endpoint| endpoint.protocol);
    let protocol = option.or(named).unwrap_or_default();
    let other = endpoints.iter().find_map(|endpoint| match endpoint.protocol {
        Some(other) if other != protocol => Some(format!("{other}://{endpoint}")),
        _ => None,
    });
    match other {
        None => Ok(protocol),
        Some(endpoint) => Err(ParameterError::Conflict {
            first: format!("protocol {protocol}"),
            second: format!("endpoint {endpoint:?}"),
            fix: "speak to all servers alike, and name the protocol once".to_owned(),
        }),
    }
}

fn tls(
    parameters: &RendezvousParameters,
    protocol: Protocol,
) -> Result<Option<TlsOptions>, ParameterError> {
    let authority = either(parameters, "cacert", "ca_cert")?;
    let certificate = either(parameters, "cert", "ssl_cert")?;
    let key = either(parameters, "key", "ssl_cert_key")?;
    if protocol == Protocol::Http {
        let given = [&authority, &certificate, &key].into_iter().flatten().next();
        return match given {
            None => Ok(None),
            Some(given) => Err(ParameterError::Conflict {
                first: given.name.to_owned(),
                second: "protocol http".to_owned(),
                fix: "certificates are for protocol=https".to_owned(),
            }),
        };
    }
    let Some(authority) = authority else {
        let fix = "with protocol https give the file of the CA certificate that the servers' \
                   certificates are signed with";
        return Err(ParameterError::missing("cacert", fix));
    };
    let identity = match (certificate, key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate.file(), key.file())),
        (Some(certificate), None) => {
            let fix =
                format!("give the file of the private key that belongs to {}", certificate.name);
            return Err(ParameterError::missing("key", fix));
        }
        (None, Some(key)) => {
            let fix = format!("give the file of the certificate that belongs to {}", key.name);
            return Err(ParameterError::missing("cert", fix));
        }
    };
    Ok(Some(TlsOptions { identity, ..TlsOptions::new(authority.file()) }))
}

/// Where the password of the user that the options name may stand, rather than among arguments, which everybody on
/// the host can see.
pub const PASSWORD: &str = "RALLYPOINT_PASSWORD";

/// Adds a password that was found there to the options, if they name a user, and no password of theirs.
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

/// The password, or what is in the file of that.
fn password(parameters: &RendezvousParameters) -> Result<Option<String>, ParameterError> {
    const FILE: &str = "password_file";
    let (password, file) = (text(parameters, "password")?, text(parameters, FILE)?);
    let Some(file) = file else { return Ok(password) };
    if password.is_some() {
        return Err(ParameterError::Conflict {
            first: "password".to_owned(),
            second: FILE.to_owned(),
            fix: "give one of them; a file is not seen by others on this host".to_owned(),
        });
    }
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let fix = format!("it cannot be read ({error}); give a file with the password alone");
        ParameterError::invalid(FILE, &file, fix)
    })?;
    // Editors end a file with a newline.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    match text.strip_suffix('\r').unwrap_or(text) {
        "" => Err(ParameterError::invalid(FILE, file, "it is empty; write the password into it")),
        password => Ok(Some(password.to_owned())),
    }
}

fn credentials(parameters: &RendezvousParameters) -> Result<Option<Credentials>, ParameterError> {
    match (text(parameters, "user")?, password(parameters)?) {
        (None, None) => Ok(None),
        (Some(user), Some(password)) => Ok(Some(Credentials { user, password })),
        (Some(user), None) => {
            let fix = format!(
                "give the password of user {user:?}, by password_file or by {PASSWORD}, or no user"
            );
            Err(ParameterError::missing("password", fix))
        }
        (None, Some(_)) => {
            Err(ParameterError::missing("user", "give the user whose password it is, or none"))
        }
    }
}

/// An option that was given, under one of its two names.
struct Given {
    name: &'static str,
    value: String,
}

impl Given {
    fn file(self) -> Pem {
        Pem::File(self.value.into())
    }
}

/// An option that has two names.
fn either(
    parameters: &RendezvousParameters,
    first: &'static str,
    second: &'static str,
) -> Result<Option<Given>, ParameterError> {
    match (text(parameters, first)?, text(parameters, second)?) {
        (Some(one), Some(other)) if one != other => Err(ParameterError::Conflict {
            first: format!("{first} {one:?}"),
            second: format!("{second} {other:?}"),
            fix: "they are names of one option; give one of them".to_owned(),
        }),
        (Some(value), _) => Ok(Some(Given { name: first, value })),
        (None, Some(value)) => Ok(Some(Given { name: second, value })),
        (None, None) => Ok(None),
    }
}
