//! A process that does not serve yet: another one of this host does, or the endpoint does not name this host, or not yet.
//!
//! Several launchers on one host may all be meant: the first to come serves, and the others stand by. If it
//! ends while they run, one of them takes its place. What was known is gone then, so the nodes meet anew;
//! a job that must outlive any host wants an etcd cluster. A server that somebody started by hand is nobody's
//! to replace.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::name_lookup::Undecided;
use super::rendezvous_config::RendezvousConfig;
use super::server::{EmbeddedServerError, NAME, options, run};
use crate::client::{Client, ClientError, ClientOptions};
use crate::server::{Server, ServerOptions};

/// How long it may take to hear who serves.
const QUESTION: Duration = Duration::from_secs(5);

/// How often a stand-by that was too late to serve looks again at most.
const AGAIN: Duration = Duration::from_millis(50);

/// What it takes to serve, and to find out who does.
pub(super) struct StandBy {
    run_id: String,
    client: ClientOptions,
    options: ServerOptions,
    serves: Arc<AtomicBool>,
}

impl StandBy {
    /// What `serves` says is whether this process does.
    pub(super) async fn new(
        config: &RendezvousConfig,
        serves: Arc<AtomicBool>,
    ) -> Result<Self, EmbeddedServerError> {
        let client = ClientOptions {
            tls: config.tls.clone(),
            credentials: config.credentials.clone(),
            timeout: QUESTION,
            ..ClientOptions::new([&config.parameters.endpoint])
        };
        let run_id = config.parameters.run_id.clone();
        Ok(Self { run_id, client, options: options(config).await?, serves })
    }

    /// The run that the server there belongs to, if it is another one.
    pub(super) async fn other_run(&self) -> Option<String> {
        let run = run_of(&self.client).await.ok().flatten();
        run.filter(|run| *run != self.run_id)
    }

    /// Serves as soon as no other launcher of this host does.
    pub(super) async fn until_free(self, address: SocketAddr, stop: CancellationToken) {
        let free = stop.run_until_cancelled(self.free(address)).await;
        let Some(Some(listener)) = free else { return };
        tracing::warn!(%address, "the process that served is gone; this one serves now, and the nodes meet anew");
        self.serve(listener, stop).await;
    }

    /// Serves as soon as the endpoint means this host, unless a server answers elsewhere.
    pub(super) async fn until_meant(self, undecided: Undecided, stop: CancellationToken) {
        let Some(Some(address)) = stop.run_until_cancelled(undecided.settled()).await else {
            return;
        };
        match TcpListener::bind(address).await {
            Ok(listener) => {
                tracing::info!(%address, "the endpoint means this host by now; this process runs the server of the job");
                self.serve(listener, stop).await;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                self.until_free(address, stop).await;
            }
            Err(source) => {
                let error = EmbeddedServerError::Listen { address, source };
                tracing::error!("{error}");
            }
        }
    }

    /// Waits until the launcher that serves there has ended, and takes its place. Nothing, if the server is not
    /// a launcher's: whoever runs that one may start it again, and must find its port free.
    async fn free(&self, address: SocketAddr) -> Option<TcpListener> {
        let mut said = false;
        loop {
            // It may end before it has answered.
            let answer = tokio::select! {
                answer = run_of(&self.client) => Some(answer),
                _ = ended(address) => None,
            };
            match answer {
                Some(Ok(Some(_))) => {
                    if !said {
                        tracing::info!(%address, "another process of this host serves already; standing by");
                        said = true;
                    }
                    let _ = ended(address).await;
                }
                Some(Ok(None)) => {
                    tracing::info!(%address, "a server is there already");
                    return None;
                }
                // This launcher is not let in at all, and will say so itself.
                Some(Err(error)) if error.is_unauthenticated() => return None,
                Some(Err(error)) => {
                    tracing::debug!(%error, %address, "nobody says who serves there");
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
                "this host is to run the server, and has no certificate; give --cert and --key"
            );
            return;
        }
        self.serves.store(true, Ordering::Relaxed);
        match Server::open(self.options).await {
            Ok(server) => run(server, listener, stop).await,
            Err(error) => tracing::error!(%error, "this process cannot serve either"),
        }
    }
}

/// The run of the launcher that brought the server along; nothing if it is nobody's.
async fn run_of(client: &ClientOptions) -> Result<Option<String>, ClientError> {
    let members = Client::connect(client.clone()).await?.members().await?;
    let run = |name: &str| name.strip_prefix(NAME).map(str::to_owned);
    Ok(members.first().and_then(|member| run(&member.name)))
}

/// Waits until the server there ends: it ends its connections with it. It also ends those that say nothing,
/// after a while, and then there is no harm in looking.
async fn ended(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let mut said = [0; 64];
    while stream.read(&mut said).await? > 0 {}
    Ok(())
}
