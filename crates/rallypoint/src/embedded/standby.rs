//! A stand-by for the embedded server: another process of this host serves, or the endpoint does not name this host
//! yet.
//!
//! If several launchers of one host may serve, the first one does, and each of the remaining ones stands by. When the
//! server ends, a stand-by takes its place. The state of the server is lost then, so the nodes form a new group. A server
//! that a user has started by hand is not replaced. Where several hosts may serve, `order` has their rules.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::decide::RendezvousConfig;
use super::name_lookup::LateName;
use super::server::{EmbeddedServerError, RUN_NAME, Serving, options, run};
use crate::client::{Client, ClientError, ClientOptions};
use crate::log_target::EMBEDDED;
use crate::server::{Server, ServerOptions};

/// How long a server may take to answer which run it belongs to.
const QUESTION: Duration = Duration::from_secs(5);

/// The same before a node begins: a program that is no server is to be reported within five seconds.
const FIRST_QUESTION: Duration = Duration::from_secs(2);

/// The backoff of a stand-by whose bind failed.
const AGAIN: Duration = Duration::from_millis(50);

/// The options of a server that may start later, and of a client that asks the present one.
pub(super) struct StandBy {
    run_id: String,
    client: ClientOptions,
    options: ServerOptions,
    serving: Serving,
}

/// What listens at the address of the server.
pub(super) enum Occupant {
    /// A launcher of this run.
    Launcher,
    /// A launcher of this other run.
    OtherRun(String),
    /// A server of no launcher, another program, or a server that does not answer in time.
    Unknown,
}

impl StandBy {
    /// A stand-by for the server at this address.
    pub(super) async fn at(
        config: &RendezvousConfig,
        address: SocketAddr,
    ) -> Result<Self, EmbeddedServerError> {
        let standing_by = Self::new(config, Serving::default()).await?;
        let client = ClientOptions { endpoints: vec![address.to_string()], ..standing_by.client };
        Ok(Self { client, ..standing_by })
    }

    /// A stand-by that sets `serving` when this process becomes the server.
    pub(super) async fn new(
        config: &RendezvousConfig,
        serving: Serving,
    ) -> Result<Self, EmbeddedServerError> {
        let client = ClientOptions {
            tls: config.tls.clone(),
            credentials: config.credentials.clone(),
            timeout: QUESTION,
            ..ClientOptions::new([&config.parameters.endpoint])
        };
        let run_id = config.parameters.run_id.clone();
        Ok(Self { run_id, client, options: options(config).await?, serving })
    }

    /// What listens at the address of the server.
    pub(super) async fn occupant(&self) -> Occupant {
        let hasty = ClientOptions { timeout: FIRST_QUESTION, ..self.client.clone() };
        match timeout(FIRST_QUESTION, run_of(&hasty)).await {
            Ok(Ok(Some(run))) if run == self.run_id => Occupant::Launcher,
            Ok(Ok(Some(run))) => Occupant::OtherRun(run),
            _ => Occupant::Unknown,
        }
    }

    /// Serves as soon as no other launcher of this host does.
    pub(super) async fn until_free(self, address: SocketAddr, stop: CancellationToken) {
        let free = stop.run_until_cancelled(self.free(address)).await;
        let Some(Some(listener)) = free else { return };
        tracing::warn!(
            target: EMBEDDED,
            %address, "the process that served has ended; this one serves now, and the nodes form a new group"
        );
        self.serve(listener, stop).await;
    }

    /// Serves as soon as the endpoint means this host, unless a server answers on another one.
    pub(super) async fn until_meant(self, name: LateName, stop: CancellationToken) {
        let Some(Some(address)) = stop.run_until_cancelled(name.settled()).await else {
            return;
        };
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(
                    target: EMBEDDED,
                    %address, "the endpoint means this host by now; this process runs the server of the job"
                );
                self.serve(listener, stop).await;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                self.until_free(address, stop).await;
            }
            Err(source) => {
                let error = EmbeddedServerError::Listen { address, source };
                tracing::error!(target: EMBEDDED, "{error}");
            }
        }
    }

    /// Waits until the launcher that serves has ended, and binds its address. Nothing, if the server is not a
    /// launcher's: its user may start it again, and must find its port free.
    async fn free(&self, address: SocketAddr) -> Option<TcpListener> {
        let mut said = false;
        loop {
            // The server may end before it has answered.
            let answer = tokio::select! {
                answer = run_of(&self.client) => Some(answer),
                _ = ended(address) => None,
            };
            match answer {
                Some(Ok(Some(_))) => {
                    if !said {
                        tracing::info!(
                            target: EMBEDDED,
                            %address, "another process of this host serves already; standing by"
                        );
                        said = true;
                    }
                    let _ = ended(address).await;
                }
                Some(Ok(None)) => {
                    tracing::info!(target: EMBEDDED, %address, "a server is there already");
                    return None;
                }
                // This launcher fails to authenticate, and its handler reports that.
                Some(Err(error)) if error.is_unauthenticated() => return None,
                Some(Err(error)) => {
                    tracing::debug!(
                        target: EMBEDDED,
                        %error, %address, "the server does not say which run it belongs to"
                    );
                }
                None => {}
            }
            if let Ok(listener) = TcpListener::bind(address).await {
                return Some(listener);
            }
            sleep(AGAIN).await;
        }
    }

    async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        if self.client.tls.is_some() && self.options.tls.is_none() {
            tracing::error!(
                target: EMBEDDED,
                "this host is to run the server, and has no certificate; give --cert and --key"
            );
            return;
        }
        match Server::open(self.options).await {
            Ok(server) => {
                self.serving.begin(server.metrics());
                run(server, listener, stop).await;
            }
            Err(error) => tracing::error!(
                target: EMBEDDED,
                %error, "this process cannot serve either"
            ),
        }
    }
}

/// The run of the launcher that embeds the server; nothing if the server is not embedded.
async fn run_of(client: &ClientOptions) -> Result<Option<String>, ClientError> {
    let members = Client::connect(client.clone()).await?.members().await?;
    let run = |name: &str| name.strip_prefix(RUN_NAME).map(str::to_owned);
    Ok(members.first().and_then(|member| run(&member.name)))
}

/// Waits until the server at `address` ends: its connections end with it. The server also ends idle connections after
/// a while, and then the caller asks again.
async fn ended(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut said = [0; 64];
    while stream.read(&mut said).await? > 0 {}
    Ok(())
}
