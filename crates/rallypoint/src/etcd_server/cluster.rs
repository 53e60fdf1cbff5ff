//! A cluster of several etcd processes on this host.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use futures_util::future::{join_all, select_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use tokio::time::timeout;

use super::data_dir::EtcdDataDir;
use super::error::EtcdServerError;
use super::member::{EtcdMember, MemberSpec};
use super::options::EtcdServerOptions;
use super::ports::{loopback, reachable, reserve};
use super::search::EtcdSearch;
use crate::client::{Client, ClientError, ClientOptions};
use crate::log_target::ETCD_SERVER;
use crate::util::blocking::blocking;

/// A local cluster of etcd processes, for tests, for example of the death of a member.
///
/// All its processes end with this value; [`EtcdServer`](super::EtcdServer) says how.
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
    // Declared before the directory, so dropped first: the processes must have ended when their files are removed.
    members: Vec<EtcdMember>,
    directory: Option<EtcdDataDir>,
    options: EtcdServerOptions,
}

impl EtcdCluster {
    /// Starts a cluster of `members` members, usually 3, and waits until each of them serves requests.
    ///
    /// In a given data directory, each member has a directory of its own. A cluster whose data are there
    /// already continues; it must have the same number of members.
    ///
    /// Dropping the future ends the processes that it started.
    ///
    /// # Errors
    /// [`EtcdServerError`] says why the last attempt failed.
    pub async fn start(
        members: usize,
        options: EtcdServerOptions,
    ) -> Result<Self, EtcdServerError> {
        options.validate(members)?;
        let given = options.binary.clone();
        let binary = blocking(move || EtcdSearch::of_process(given).search()).await?;
        let mut attempt = 1;
        loop {
            let error = match Self::attempt(binary.clone(), members, options.clone()).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => error,
            };
            if attempt >= options.attempts || !error.is_retryable() {
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
        // `launch` opens files and starts processes, which blocks.
        let mut cluster = blocking(move || Self::launch(&binary, size, options)).await?;
        let timeout = cluster.options.start_timeout;
        // All members at the same time: none is ready before a majority runs.
        let waiting = cluster.members.iter_mut().map(|member| member.ready(timeout));
        match try_join_all(waiting).await {
            Ok(_) => {
                if let Some(directory) = &mut cluster.directory {
                    directory.keep();
                }
                Ok(cluster)
            }
            Err(error) => {
                blocking(move || drop(cluster)).await;
                Err(error)
            }
        }
    }

    /// Starts the processes without waiting until they are ready.
    fn launch(
        binary: &Path,
        size: usize,
        options: EtcdServerOptions,
    ) -> Result<Self, EtcdServerError> {
        let mut directory = EtcdDataDir::open(options.data_dir.as_deref(), size)?;
        let (specs, reserved) = member_specs(binary, &mut directory, &options)?;
        let members = specs.into_iter().map(EtcdMember::new).collect();
        let mut cluster = Self { members, directory: Some(directory), options };
        drop(reserved);
        for member in &mut cluster.members {
            member.start()?;
        }
        Ok(cluster)
    }

    /// The client address of each member, `host:port`, in the order of the members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint().to_string()).collect()
    }

    /// A client of the whole cluster.
    ///
    /// # Errors
    /// The errors of [`Client::connect`].
    pub async fn client(&self) -> Result<Client, ClientError> {
        Client::connect(ClientOptions::new(self.endpoints())).await
    }

    /// The version of etcd.
    pub fn version(&self) -> &str {
        self.first().version()
    }

    /// The process id of each member, in the order of the members; `None` for a member that was stopped or
    /// killed.
    pub fn pids(&self) -> Vec<Option<u32>> {
        self.members.iter().map(EtcdMember::pid).collect()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.first().endpoint()
    }

    /// The first member. It exists, because `start` refuses a cluster without members.
    fn first(&self) -> &EtcdMember {
        &self.members[0]
    }

    /// Waits until a member ends by itself. Returns its index and how it ended. The member then counts as
    /// killed.
    ///
    /// The call is cancel-safe: dropping the future loses no event.
    pub async fn exited(&mut self) -> (usize, EtcdServerError) {
        let waiting = self.members.iter_mut().map(|member| Box::pin(member.exited()));
        let (how, index, others) = select_all(waiting).await;
        drop(others);
        self.members[index].forget();
        (index, how)
    }

    /// Kills a member with SIGKILL, and keeps its data.
    ///
    /// # Errors
    /// [`EtcdServerError::Config`] if there is no such member.
    pub async fn kill(&mut self, index: usize) -> Result<(), EtcdServerError> {
        self.member(index)?.kill().await
    }

    /// Kills a member if it runs, starts it at its former addresses with its former data, and waits until it
    /// serves requests, for which a majority of the members must run.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start). A restart is attempted once.
    pub async fn restart(&mut self, index: usize) -> Result<(), EtcdServerError> {
        let timeout = self.options.start_timeout;
        let member = self.member(index)?;
        member.kill().await?;
        member.start()?;
        let ready = member.ready(timeout).await;
        if ready.is_err() {
            member.kill().await?;
        }
        ready
    }

    fn member(&mut self, index: usize) -> Result<&mut EtcdMember, EtcdServerError> {
        let count = self.members.len();
        let fix =
            || EtcdServerError::invalid("member", index, format!("there are {count}, from 0 on"));
        self.members.get_mut(index).ok_or_else(fix)
    }

    /// Ends all members and removes the temporary directory. A second call does nothing.
    ///
    /// The members get SIGTERM, and SIGKILL when a majority of them has ended or
    /// [`EtcdServerOptions::stop_timeout`] is over.
    ///
    /// If the future is dropped, members may still run; they end when the cluster is dropped.
    ///
    /// # Errors
    /// [`EtcdServerError::NotStopped`] if a member does not end even after SIGKILL.
    pub async fn stop(&mut self) -> Result<(), EtcdServerError> {
        let stop_timeout = self.options.stop_timeout;
        self.members.iter().for_each(EtcdMember::terminate);
        // A leader that is the last to end would spend seconds on transferring its leadership.
        let majority = self.members.len() / 2 + 1;
        let ending: FuturesUnordered<_> = self.members.iter_mut().map(EtcdMember::ended).collect();
        if timeout(stop_timeout, ending.take(majority).count()).await.is_err() {
            tracing::warn!(
                target: ETCD_SERVER,
                pids = ?self.pids(), ?stop_timeout, "etcd did not end after SIGTERM; killing it"
            );
        }
        let killed = join_all(self.members.iter_mut().map(EtcdMember::kill)).await;
        killed.into_iter().collect::<Result<(), _>>()?;
        // Removing files blocks.
        let directory = self.directory.take();
        blocking(move || drop(directory)).await;
        Ok(())
    }
}

/// Makes the specs of all members, and reserves their ports until they are started.
fn member_specs(
    binary: &Path,
    directory: &mut EtcdDataDir,
    options: &EtcdServerOptions,
) -> Result<(Vec<MemberSpec>, Vec<TcpListener>), EtcdServerError> {
    let take = |address: SocketAddr| {
        let refused = |source| EtcdServerError::Listen { address, source };
        let listener = reserve(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok::<_, EtcdServerError>((listener, address))
    };
    let (mut reserved, mut clients, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for (index, port) in directory.peer_ports()?.into_iter().enumerate() {
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
    directory.keep_peer_ports(&peers.iter().map(SocketAddr::port).collect::<Vec<_>>())?;
    let names = fastrand::u64(..);
    let name = |index: usize| format!("rallypoint-{names:016x}-{index}");
    let url = |address: SocketAddr| format!("http://{address}");
    let cluster: Vec<String> = peers
        .iter()
        .enumerate()
        .map(|(index, peer)| format!("{}={}", name(index), url(*peer)))
        .collect();
    let spec = |index: usize| MemberSpec {
        binary: binary.to_owned(),
        name: name(index),
        endpoint: reachable(clients[index]),
        peer: peers[index],
        client: ClientOptions::new([reachable(clients[index]).to_string()]),
        data: directory.data(index),
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
    Ok(((0..peers.len()).map(spec).collect(), reserved))
}
