//! `rallypoint serve`.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use rallypoint_core::store::StoreOptions;
use thiserror::Error as ThisError;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::AnyError;
use crate::server::{Credentials, Server, ServerOptions, ServerTls};

pub(super) const AFTER_HELP: &str = "\
Examples:
  In memory, for a job on this host:
    rallypoint serve
  On disk, for other hosts, with a password (any etcd client can use it):
    rallypoint serve --listen 0.0.0.0:2379 --data-dir /var/lib/rallypoint \\
        --user root --password-file secret
    etcdctl --endpoints head:2379 --user root get --prefix /
  On a free port, for a script that wants to know which:
    rallypoint serve --listen 127.0.0.1:0 --ready-file address";

#[derive(Args)]
pub(super) struct Serve {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:2379", value_parser = address)]
    listen: SocketAddr,
    /// Write the address to this file once the server answers
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Stop when standard input ends, so as not to outlive the program that started this one
    #[arg(long)]
    stop_at_eof: bool,
    /// Keep everything in this directory; without it, in memory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Certificate to show, PEM; turns TLS on
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// Authorities, PEM; clients must then show a certificate that one of them signed
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Security")]
    client_ca: Option<PathBuf>,
    /// Clients must authenticate as this user
    #[arg(long, value_name = "NAME", help_heading = "Security")]
    user: Option<String>,
    /// The user's password. Others on this host can see it: prefer a file, or the environment
    /// variable RALLYPOINT_PASSWORD
    #[arg(
        long,
        value_name = "TEXT",
        requires = "user",
        conflicts_with = "password_file",
        help_heading = "Security"
    )]
    password: Option<String>,
    /// File with the user's password; one newline at its end is not part of it
    #[arg(long, value_name = "FILE", requires = "user", help_heading = "Security")]
    password_file: Option<PathBuf>,

    /// Largest request that writes, in bytes
    #[arg(long, value_name = "N", default_value_t = 1536 << 10, value_parser = limit, help_heading = "Limits")]
    max_request_bytes: usize,
    /// Connections at one time
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = limit, help_heading = "Limits")]
    max_connections: usize,
    /// Watches at one time
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = limit, help_heading = "Limits")]
    max_watches: usize,
    /// Leases at one time
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = limit, help_heading = "Limits")]
    max_leases: usize,
    /// Memory for keys, values and their history, in bytes
    #[arg(long, value_name = "N", default_value_t = 2 << 30, value_parser = limit, help_heading = "Limits")]
    max_bytes: usize,
    /// Revisions of history to keep for readers and watches; 0 keeps all
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(i64).range(0..),
        allow_hyphen_values = true,
        help_heading = "Limits"
    )]
    keep_revisions: i64,
}

#[derive(Debug, ThisError)]
enum ServeCommandError {
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
    #[error("cannot write --ready-file {path}")]
    ReadyFile { path: PathBuf, source: std::io::Error },
}

/// Parses what `--listen` takes.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "give an IP address and a port, such as 127.0.0.1:2379, or 0.0.0.0:2379 for all interfaces"
            .to_owned()
    })
}

/// Parses a limit, which would keep everybody out if it were 0.
fn limit(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number of at least 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, ServeCommandError> {
    fs::read(path).map_err(|source| ServeCommandError::Read {
        option,
        path: path.to_owned(),
        source,
    })
}

impl Serve {
    pub(super) fn run(self) -> Result<(), AnyError> {
        raise_descriptor_limit();
        let options = self.options()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        // On a thread of the runtime, like the tasks that it wakes; this one would be outside.
        match runtime.block_on(runtime.spawn(self.serve(options))) {
            Ok(done) => done,
            Err(join) => std::panic::resume_unwind(join.into_panic()),
        }
    }

    async fn serve(self, options: ServerOptions) -> Result<(), AnyError> {
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        // Whoever waits for the file must not find the one of a server that is gone.
        let remove = || self.ready_file.as_deref().map(fs::remove_file);
        let _ = remove();
        let server = Server::open(options).await?;
        let listener = TcpListener::bind(self.listen)
            .await
            .map_err(|source| cannot_listen(self.listen, source))?;
        let shutdown = shutdown(self.stop_at_eof)?;
        announce(scheme, listener.local_addr()?, self.ready_file.as_deref())?;
        let done = server.run(listener, shutdown).await;
        let _ = remove();
        Ok(done?)
    }

    fn options(&self) -> Result<ServerOptions, ServeCommandError> {
        let file = |option, path: &Option<PathBuf>| {
            path.as_deref().map(|path| read(option, path)).transpose()
        };
        let tls = match (file("--cert", &self.cert)?, file("--key", &self.key)?) {
            (Some(cert), Some(key)) => {
                Some(ServerTls { cert, key, client_ca: file("--client-ca", &self.client_ca)? })
            }
            _ => None,
        };
        let mut store = StoreOptions::default();
        store.max_leases = self.max_leases;
        store.max_watches = self.max_watches;
        store.max_bytes = self.max_bytes;
        store.keep_revisions = self.keep_revisions;
        Ok(ServerOptions {
            data_dir: self.data_dir.clone(),
            tls,
            credentials: self.credentials()?,
            store,
            max_request_bytes: self.max_request_bytes,
            max_connections: self.max_connections,
            ..ServerOptions::default()
        })
    }

    fn credentials(&self) -> Result<Option<Credentials>, ServeCommandError> {
        let Some(user) = self.user.clone() else { return Ok(None) };
        if user.is_empty() {
            return Err(ServeCommandError::NoUser);
        }
        let password = match (&self.password_file, &self.password) {
            (Some(path), _) => {
                let text = String::from_utf8(read("--password-file", path)?)
                    .map_err(|_| ServeCommandError::PasswordText { path: path.clone() })?;
                let line = text.strip_suffix('\n').unwrap_or(&text);
                line.strip_suffix('\r').unwrap_or(line).to_owned()
            }
            (None, Some(password)) => password.clone(),
            (None, None) => std::env::var("RALLYPOINT_PASSWORD").unwrap_or_default(),
        };
        if password.is_empty() {
            return Err(ServeCommandError::NoPassword { user });
        }
        Ok(Some(Credentials { user, password }))
    }
}

fn cannot_listen(address: SocketAddr, source: std::io::Error) -> ServeCommandError {
    let hint = match source.kind() {
        ErrorKind::AddrInUse => "is another server there? --listen names another address",
        ErrorKind::AddrNotAvailable => "no interface has this address; 0.0.0.0 means all of them",
        _ => "--listen names another address",
    };
    ServeCommandError::Listen { address, hint, source }
}

/// Says where we listen: from here on a client that connects is served.
fn announce(
    scheme: &str,
    address: SocketAddr,
    ready_file: Option<&Path>,
) -> Result<(), ServeCommandError> {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stdout(), "listening on {scheme}://{address}");
    let Some(path) = ready_file else { return Ok(()) };
    // Whoever waits for the file must never see half of it.
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".tmp");
    fs::write(&unfinished, format!("{address}\n"))
        .and_then(|()| fs::rename(&unfinished, path))
        .map_err(|source| ServeCommandError::ReadyFile { path: path.to_owned(), source })
}

/// Ready at the first SIGINT or SIGTERM, or at the end of standard input. The second signal ends the process as it would have without
/// us, for those who do not want to wait for the drain.
fn shutdown(at_eof: bool) -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        let mut next = async move || {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        };
        tokio::select! {
            _ = next() => {}
            () = end_of_input(), if at_eof => {}
        }
        tokio::spawn(async move {
            let code = next().await;
            #[expect(clippy::exit, reason = "asked twice, and this is the command itself")]
            std::process::exit(code);
        });
    })
}

/// Waits for the end of standard input, on a thread of its own: a read there cannot be cancelled.
async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// Every connection is a descriptor, and the usual soft limit of 1,024 is soon reached.
pub(super) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open descriptors stays as it is");
    }
}
