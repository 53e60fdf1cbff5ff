//! `rallypoint serve --engine embedded`: Rallypoint's own server.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::Args;
use prometheus::proto::MetricFamily;
use rallypoint_core::mvcc::MvccOptions;
use rallypoint_core::rendezvous::keys::DEFAULT_PREFIX;
use thiserror::Error as ThisError;
use tokio::net::TcpListener;

use super::{Common, shutdown};
use crate::cli::AnyError;
use crate::embedded::runtime_directory;
use crate::http::{HttpOptions, HttpServer, Pages, RunSource, Told};
use crate::metrics::process_metrics;
use crate::runs::OwnKeys;
use crate::server::{Credentials, Server, ServerMetrics, ServerOptions, ServerTls};

/// Options of the embedded server alone.
#[derive(Args)]
pub(super) struct Embedded {
    /// Server certificate, PEM; enables TLS
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Security (embedded)")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Security (embedded)")]
    key: Option<PathBuf>,
    /// CA certificates for clients, PEM; clients must present a certificate that one of them signed
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Security (embedded)")]
    client_ca: Option<PathBuf>,
    /// Clients must authenticate as this user
    #[arg(long, value_name = "NAME", help_heading = "Security (embedded)")]
    user: Option<String>,
    /// The user's password. Other users of this host can read arguments: prefer --password-file or the variable
    /// RALLYPOINT_PASSWORD
    #[arg(
        long,
        value_name = "TEXT",
        requires = "user",
        conflicts_with = "password_file",
        help_heading = "Security (embedded)"
    )]
    password: Option<String>,
    /// File with the user's password; a final newline is ignored
    #[arg(long, value_name = "FILE", requires = "user", help_heading = "Security (embedded)")]
    password_file: Option<PathBuf>,

    /// Serve a page of the runs (/), health (/healthz, /readyz) and Prometheus metrics (/metrics) over HTTP at this
    /// address; port 0 picks a free port. With --cert it is HTTPS, and with --user the page and the metrics need the
    /// password
    #[arg(long, value_name = "IP:PORT", value_parser = crate::http::address, help_heading = "Monitoring (embedded)")]
    pub(super) http: Option<SocketAddr>,

    /// Limit on the size of a write request, in bytes
    #[arg(long, value_name = "N", default_value_t = 1536 << 10, value_parser = limit, help_heading = "Limits (embedded)")]
    max_request_bytes: usize,
    /// Limit on concurrent connections
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = limit, help_heading = "Limits (embedded)")]
    max_connections: usize,
    /// Limit on concurrent watches
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = limit, help_heading = "Limits (embedded)")]
    max_watches: usize,
    /// Limit on concurrent leases
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = limit, help_heading = "Limits (embedded)")]
    max_leases: usize,
    /// Limit on memory for keys, values and their history, in bytes
    #[arg(long, value_name = "N", default_value_t = 2 << 30, value_parser = limit, help_heading = "Limits (embedded)")]
    max_bytes: usize,
    /// Revisions of history to keep for readers and watches; 0 keeps all
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(i64).range(0..),
        allow_hyphen_values = true,
        help_heading = "Limits (embedded)"
    )]
    keep_revisions: i64,
}

#[derive(Debug, ThisError)]
pub(super) enum EmbeddedError {
    #[error("cannot read {option} {path}")]
    Read { option: &'static str, path: PathBuf, source: std::io::Error },
    #[error("--user is empty; give the name that clients shall authenticate as")]
    NoUser,
    #[error("--user {user} has no password; give --password-file, or RALLYPOINT_PASSWORD")]
    NoPassword { user: String },
    #[error("--password-file {path} is not UTF-8 text, and clients could not send it")]
    PasswordText { path: PathBuf },
    #[error("cannot listen on {address}; {hint}")]
    Listen { address: SocketAddr, hint: &'static str, source: std::io::Error },
}

/// What the server tells over HTTP.
#[derive(Default)]
struct ServerPages {
    serving: OnceLock<ServerMetrics>,
}

impl Told for ServerPages {
    fn readiness(&self) -> Result<(), String> {
        match self.serving.get() {
            None => Err("the server is starting: it reads its log".to_owned()),
            Some(server) if !server.is_serving() => Err("the server is stopping".to_owned()),
            Some(_) => Ok(()),
        }
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        let server = self.serving.get().map(ServerMetrics::families);
        [process_metrics(), server.unwrap_or_default()].concat()
    }
}

/// Parses a limit, which must not be 0.
fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number of at least 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, EmbeddedError> {
    fs::read(path).map_err(|source| EmbeddedError::Read { option, path: path.to_owned(), source })
}

pub(super) async fn serve(
    options: ServerOptions,
    http: Option<SocketAddr>,
    common: Common,
) -> Result<(), AnyError> {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    // Before the log is read, which may take a while: a probe is to know that the process works.
    let pages = Arc::new(ServerPages::default());
    let own = Arc::new(OwnKeys::default());
    let _http = match http {
        None => None,
        Some(address) => {
            let (tls, credentials) = (options.tls.clone(), options.credentials.clone());
            let options = HttpOptions { address, tls, credentials };
            let runs = RunSource { keys: own.clone(), prefix: DEFAULT_PREFIX.to_owned() };
            let pages = Pages { told: pages.clone(), runs: Some(runs) };
            Some(HttpServer::start(options, pages)?)
        }
    };
    let server = Server::open(options).await?;
    let listener = TcpListener::bind(common.listen)
        .await
        .map_err(|source| cannot_listen(common.listen, source))?;
    let shutdown = shutdown(common.stop_at_eof)?;
    let address = listener.local_addr()?.to_string();
    common.announce(scheme, std::slice::from_ref(&address))?;
    let _ = pages.serving.set(server.metrics());
    own.serves(server.local(), format!("{scheme}://{address}"));
    Ok(server.run(listener, shutdown).await?)
}

impl Embedded {
    pub(super) fn options(
        &self,
        data_dir: Option<PathBuf>,
    ) -> Result<ServerOptions, EmbeddedError> {
        let file = |option, path: &Option<PathBuf>| {
            path.as_deref().map(|path| read(option, path)).transpose()
        };
        let tls = match (file("--cert", &self.cert)?, file("--key", &self.key)?) {
            (Some(cert), Some(key)) => {
                Some(ServerTls { cert, key, client_ca: file("--client-ca", &self.client_ca)? })
            }
            _ => None,
        };
        let mut store = MvccOptions::default();
        store.max_leases = self.max_leases;
        store.max_watches = self.max_watches;
        store.max_bytes = self.max_bytes;
        store.keep_revisions = self.keep_revisions;
        Ok(ServerOptions {
            data_dir,
            notes: Some(runtime_directory()),
            tls,
            credentials: self.credentials()?,
            store,
            max_request_bytes: self.max_request_bytes,
            max_connections: self.max_connections,
            ..ServerOptions::default()
        })
    }

    fn credentials(&self) -> Result<Option<Credentials>, EmbeddedError> {
        let Some(user) = self.user.clone() else { return Ok(None) };
        if user.is_empty() {
            return Err(EmbeddedError::NoUser);
        }
        let password = match (&self.password_file, &self.password) {
            (Some(path), _) => {
                let text = String::from_utf8(read("--password-file", path)?)
                    .map_err(|_| EmbeddedError::PasswordText { path: path.clone() })?;
                let line = text.strip_suffix('\n').unwrap_or(&text);
                line.strip_suffix('\r').unwrap_or(line).to_owned()
            }
            (None, Some(password)) => password.clone(),
            (None, None) => std::env::var("RALLYPOINT_PASSWORD").unwrap_or_default(),
        };
        if password.is_empty() {
            return Err(EmbeddedError::NoPassword { user });
        }
        Ok(Some(Credentials { user, password }))
    }
}

fn cannot_listen(address: SocketAddr, source: std::io::Error) -> EmbeddedError {
    let hint = match source.kind() {
        ErrorKind::AddrInUse => "is another server there? --listen names another address",
        ErrorKind::AddrNotAvailable => "no interface has this address; 0.0.0.0 means all of them",
        _ => "--listen names another address",
    };
    EmbeddedError::Listen { address, hint, source }
}
