//! Several etcds on this host that are one cluster.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use futures_util::future::{join_all, select_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::error::EtcdServerError;
use super::home::Home;
use super::member::{Member, Recipe};
use super::options::EtcdServerOptions;
use super::ports::{loopback, reachable, reserve};
use super::search::Places;
use crate::client::{Client, ClientError, ClientOptions};
use crate::log_target::ETCD_SERVER;
use crate::util::blocking::blocking;

/// A local cluster of real etcds, for trials: of what happens when a member dies, say.
///
/// All its processes end with it; see [`EtcdServer`](super::EtcdServer) for how.
///
/// ```no_run
/// use rallypoint::etcd_server::{EtcdCluster, EtcdServerOptions};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut cluster = EtcdCluster::start(3, EtcdServerOptions::default()).await?;
/// let client = cluster.client().await?;
/// cluster.kill(0).await?;
/// client.status().await?;
/// cluster.restart(0).await?;
/// cluster.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EtcdCluster {
    // Before the directory: the processes must be gone when their files are removed.
    members: Vec<Member>,
    home: Option<Home>,
    options: EtcdServerOptions,
}

impl EtcdCluster {
    /// Starts a cluster of so many members, 3 being the usual number, and waits until each of them
    /// serves.
    ///
    /// With a data directory each member has a directory of its own in it, and the cluster that was
    /// there before goes on, with the same number of members.
    ///
    /// Dropping the future ends what was started.
    ///
    /// # Errors
    /// [`EtcdServerError`] says why the last attempt failed.
    pub async fn start(
        members: usize,
        options: EtcdServerOptions,
    ) -> Result<Self, EtcdServerError> {
        options.validate(members)?;
        let given = options.binary.clone();
        let binary = blocking(move || Places::here(given).search()).await?;
        let mut attempt = 1;
        loop {
            let error = match Self::attempt(binary.clone(), members, options.clone()).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => error,
            };
            if attempt >= options.attempts || !error.may_pass() {
                return Err(error);
            }
            tracing::warn!(
                target: ETCD_SERVER,
                %error, attempt, of = options.attempts, "etcd did not start; trying again"
            );
            attempt += 1;
        }
    }

    async fn attempt(
        binary: PathBuf,
        size: usize,
        options: EtcdServerOptions,
    ) -> Result<Self, EtcdServerError> {
        // Files are opened and processes started there.
        let mut cluster = blocking(move || Self::launch(&binary, size, options)).await?;
        let patience = cluster.options.start_timeout;
        // All at once: one alone is never ready.
        let waiting = cluster.members.iter_mut().map(|member| member.ready(patience));
        match try_join_all(waiting).await {
            Ok(_) => {
                if let Some(home) = &mut cluster.home {
                    home.keep();
                }
                Ok(cluster)
            }
            Err(error) => {
                blocking(move || drop(cluster)).await;
                Err(error)
            }
        }
    }

    /// Starts the processes, and does not wait for them.
    fn launch(
        binary: &Path,
        size: usize,
        options: EtcdServerOptions,
    ) -> Result<Self, EtcdServerError> {
        let mut home = Home::open(options.data_dir.as_deref(), size)?;
        let (recipes, reserved) = recipes(binary, &mut home, &options)?;
        let members = recipes.into_iter().map(Member::new).collect();
        let mut cluster = Self { members, home: Some(home), options };
        drop(reserved);
        for member in &mut cluster.members {
            member.start()?;
        }
        Ok(cluster)
    }

    /// Where clients reach the members, `host:port`, in their order.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint().to_string()).collect()
    }

    /// A client of the whole cluster.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub async fn client(&self) -> Result<Client, ClientError> {
        Client::connect(ClientOptions::new(self.endpoints())).await
    }

    /// The version of etcd.
    pub fn version(&self) -> &str {
        self.first().version()
    }

    /// The numbers of the processes, in the order of the members; nothing for one that was stopped or
    /// killed.
    pub fn pids(&self) -> Vec<Option<u32>> {
        self.members.iter().map(Member::pid).collect()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.first().endpoint()
    }

    /// There is one: none at all is refused.
    fn first(&self) -> &Member {
        &self.members[0]
    }

    /// Waits until a member ends by itself. Returns which, counted from 0, and how. After that it counts
    /// as killed.
    ///
    /// Dropping the future loses nothing.
    pub async fn exited(&mut self) -> (usize, EtcdServerError) {
        let waiting = self.members.iter_mut().map(|member| Box::pin(member.exited()));
        let (how, index, others) = select_all(waiting).await;
        drop(others);
        self.members[index].forget();
        (index, how)
    }

    /// Kills a member with SIGKILL. Its data stay.
    ///
    /// # Errors
    /// [`EtcdServerError::Config`] if there is no such member.
    pub async fn kill(&mut self, index: usize) -> Result<(), EtcdServerError> {
        self.member(index)?.kill().await
    }

    /// Kills a member if it runs, starts it on its old addresses with its old data, and waits until it
    /// serves, which takes a majority of them.
    ///
    /// # Errors
    /// As for [`start`](Self::start). It is tried once.
    pub async fn restart(&mut self, index: usize) -> Result<(), EtcdServerError> {
        let patience = self.options.start_timeout;
        let member = self.member(index)?;
        member.kill().await?;
        member.start()?;
        let ready = member.ready(patience).await;
        if ready.is_err() {
            member.kill().await?;
        }
        ready
    }

    fn member(&mut self, index: usize) -> Result<&mut Member, EtcdServerError> {
        let count = self.members.len();
        let fix =
            || EtcdServerError::invalid("member", index, format!("there are {count}, from 0 on"));
        self.members.get_mut(index).ok_or_else(fix)
    }

    /// Ends all members: with SIGTERM, and then with SIGKILL those that have not ended after
    /// [`EtcdServerOptions::stop_timeout`], or that a majority has left. Then removes the temporary
    /// directory. Once is enough, and a second time does nothing.
    ///
    /// If the future is dropped, some may still run; they end when this does.
    ///
    /// # Errors
    /// [`EtcdServerError::NotStopped`] if one cannot be ended even by SIGKILL.
    pub async fn stop(&mut self) -> Result<(), EtcdServerError> {
        let patience = self.options.stop_timeout;
        self.members.iter().for_each(Member::ask_to_end);
        // The last leader of several would look for a successor that is no longer there, for seconds.
        let majority = self.members.len() / 2 + 1;
        let ending: FuturesUnordered<_> = self.members.iter_mut().map(Member::ended).collect();
        if timeout(patience, ending.take(majority).count()).await.is_err() {
            tracing::warn!(
                target: ETCD_SERVER,
                pids = ?self.pids(), ?patience, "etcd did not end when asked to; killing it"
            );
        }
        let killed = join_all(self.members.iter_mut().map(Member::kill)).await;
        killed.into_iter().collect::<Result<(), _>>()?;
        // Removing files may take its time.
        let home = self.home.take();
        blocking(move || drop(home)).await;
        Ok(())
    }
}

/// How each member is started, and the ports that are kept for them until then.
fn recipes(
    binary: &Path,
    home: &mut Home,
    options: &EtcdServerOptions,
) -> Result<(Vec<Recipe>, Vec<TcpListener>), EtcdServerError> {
    let take = |address: SocketAddr| {
        let refused = |source| EtcdServerError::Listen { address, source };
        let listener = reserve(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok::<_, EtcdServerError>((listener, address))
    };
    let (mut reserved, mut clients, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for (index, port) in home.peer_ports()?.into_iter().enumerate() {
        let mut listen = options.listen;
        if index > 0 {
            listen.set_port(0);
        }
        let (client, client_address) = take(listen)?;
        let (peer, peer_address) = take(SocketAddr::new(loopback(listen.ip()), port))?;
        reserved.extend([client, peer]);
        clients.push(client_address);
        peers.push(peer_address);
    }
    home.keep_peer_ports(&peers.iter().map(SocketAddr::port).collect::<Vec<_>>())?;
    let names = fastrand::u64(..);
    let name = |index: usize| format!("rallypoint-{names:016x}-{index}");
    let url = |address: SocketAddr| format!("http://{address}");
    let cluster: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| format!("{}={}", name(index), url(*peer)))
        .collect();
    let recipe = |index: usize| Recipe {
        binary: binary.to_owned(),
        name: name(index),
        endpoint: reachable(clients[index]),
        data: home.data(index),
        flags: vec![
            ("--listen-client-urls", url(clients[index])),
            ("--advertise-client-urls", url(reachable(clients[index]))),
            ("--listen-peer-urls", url(peers[index])),
            ("--initial-advertise-peer-urls", url(peers[index])),
            ("--initial-cluster", cluster.join(",")),
        ],
        args: options.args.clone(),
        output: options.output.clone(),
    };
    Ok(((0..peers.len()).map(recipe).collect(), reserved))
}
