//! `rallypoint ui`: a page with the runs of a server.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use prometheus::proto::MetricFamily;
use rallypoint_core::rendezvous::keys::Keys;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use super::print;
use super::server::{Reach, ServerArgs};
use crate::cli::AnyError;
use crate::http::{HttpError, HttpOptions, HttpServer, Pages, RunSource, Told};
use crate::log_target::CLI;
use crate::metrics::process_metrics;
use crate::runs::{KeySpace, RemoteKeys};
use crate::server::ServerTls;
use crate::util::host::host_name;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
The page shows the runs of the server, and follows them: a board with a cell for each node of a
run, those that are missing too; the rounds in order of time, and why each began; the last
failure; the story of a node; the server. It shows what `rallypoint status` and `rallypoint
explain` tell, changes nothing, and reads the server only while somebody looks. It works with
Rallypoint's own server and with any etcd. `rallypoint serve --http` has the same page.

Examples:
  rallypoint ui --rdzv-endpoint head:29400
  rallypoint ui --rdzv-endpoint etcd1:2379,etcd2:2379 --http 127.0.0.1:8080
  rallypoint ui --rdzv-endpoint head:29400 --http 0.0.0.0:9480 --cert page.pem --key page.key

From another host, without opening a port: ssh -L 9480:127.0.0.1:9480 head, and then
http://127.0.0.1:9480/.

Who may look: where the server wants a secret (RALLYPOINT_SECRET) or a password, so does the
page; the user of a secret is rallypoint. A server with TLS is shown to other hosts
over TLS alone (--cert, --key), and one that wants certificates of its clients to clients with
a certificate (--client-ca).

Exit codes: 0 it was interrupted; 1 the port is taken, or the server refuses the password; 2
the command line is wrong. While no server answers, the page says so and tries again.";

/// The pause before the server is asked again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct Ui {
    #[command(flatten)]
    server: ServerArgs,
    /// Address of the page; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9480", value_parser = crate::http::address)]
    http: SocketAddr,
    /// Certificate of the page, PEM; the page is then HTTPS
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "Security")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Security")]
    key: Option<PathBuf>,
    /// CA certificates, PEM; who looks must present a certificate that one of them signed
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "Security")]
    client_ca: Option<PathBuf>,
}

/// The page is all that this process has to tell.
struct Viewer;

impl Told for Viewer {
    fn readiness(&self) -> Result<(), String> {
        Ok(())
    }

    fn metrics(&self) -> Vec<MetricFamily> {
        process_metrics()
    }
}

impl Ui {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        super::block_on(self.show())
    }

    async fn show(self) -> Result<(), AnyError> {
        let reach = self.server.reach(None)?;
        let tls = self.tls()?;
        self.check_access(&reach, tls.as_ref())?;
        let Reach { options, prefix, endpoint } = reach;
        let credentials = options.credentials.clone();
        let keys = Arc::new(RemoteKeys::new(options, endpoint.clone()));
        // On this runtime: the page has a client of its own, on its own thread.
        let own = RemoteKeys::clone_unconnected(&keys);
        let runs = RunSource { keys, prefix: prefix.clone() };
        let pages = Pages { told: Arc::new(Viewer), runs: Some(runs) };
        let options = HttpOptions { address: self.http, tls, credentials };
        let server = HttpServer::start(options, pages).map_err(|error| self.taken(error))?;
        print(&format!("the runs of {endpoint} are at {}/\n", shown(server.url())))?;
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let checked = async {
            first_answer(own, &prefix).await?;
            std::future::pending::<Result<(), AnyError>>().await
        };
        tokio::select! {
            failed = checked => failed,
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
        }
    }

    fn tls(&self) -> Result<Option<ServerTls>, AnyError> {
        let read = |option: &str, path: &Option<PathBuf>| match path {
            None => Ok(None),
            Some(path) => match std::fs::read(path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) => Err(format!("cannot read {option} {}: {error}", path.display())),
            },
        };
        let client_ca = read("--client-ca", &self.client_ca)?;
        let (cert, key) = (read("--cert", &self.cert)?, read("--key", &self.key)?);
        Ok(cert.zip(key).map(|(cert, key)| ServerTls { cert, key, client_ca }))
    }

    /// What the server asks of its clients, this page asks too.
    fn check_access(&self, reach: &Reach, own: Option<&ServerTls>) -> Result<(), AnyError> {
        let Reach { options, endpoint, .. } = reach;
        let Some(tls) = &options.tls else { return Ok(()) };
        let wants_certificate = own.is_some_and(|own| own.client_ca.is_some());
        if tls.identity.is_some() && options.credentials.is_none() && !wants_certificate {
            return Err(format!(
                "the server at {endpoint} wants a certificate, and the page would show its runs to everybody \
                 who reaches {}: give --cert, --key and --client-ca",
                self.http
            )
            .into());
        }
        if own.is_none() && !is_loopback(self.http.ip()) {
            return Err(format!(
                "the server at {endpoint} uses TLS, and --http {} would show its runs to other hosts without: \
                 give --cert and --key, or an address of this host alone, such as 127.0.0.1:9480",
                self.http
            )
            .into());
        }
        Ok(())
    }

    fn taken(&self, error: HttpError) -> AnyError {
        match &error {
            HttpError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse => format!(
                "{} is taken, perhaps by another page: --http 127.0.0.1:0 takes a free port",
                self.http
            )
            .into(),
            _ => error.into(),
        }
    }
}

/// The address for a browser: that of all interfaces is the name of this host there.
fn shown(url: &str) -> String {
    let host = host_name();
    ["://0.0.0.0:", "://[::]:"]
        .iter()
        .fold(url.to_owned(), |url, all| url.replace(all, &format!("://{host}:")))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Waits until the server has answered once, with words. A server that refuses this client is an error.
async fn first_answer(keys: RemoteKeys, prefix: &str) -> Result<(), AnyError> {
    let all = Keys::runs(prefix, None);
    let mut said = String::new();
    loop {
        let Err(error) = keys.answers(&all).await else { break };
        let why = keys.why(&error).await;
        if !error.is_transient() || error.is_tls_error() {
            return Err(why.into());
        }
        if why != said {
            tracing::warn!(target: CLI, "{}; the page says so, and tries again", super::text::printable(&why));
            said = why;
        }
        sleep(AGAIN).await;
    }
    if !said.is_empty() {
        tracing::warn!(target: CLI, "the server answers now");
    }
    Ok(())
}
