//! One member of a job's etcd cluster, as a child of the launcher on its host.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use rallypoint_core::kv::{KeyRange, Range};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::error::EtcdServerError;
use super::member::EtcdMember;
use super::member_plan::{Bootstrap, MemberPlan};
use super::ports::reserve;
use super::search::EtcdSearch;
use crate::client::{Client, ClientError, ClientOptions, ClusterMember};
use crate::log_target::EMBEDDED;
use crate::process::TemporaryDirectory;
use crate::util::blocking::blocking;

/// A member serves as soon as a majority of the members runs, however late their launchers come.
const UNTIL_READY: Duration = Duration::from_secs(365 * 24 * 3600);

/// The pause before a member that had served is started again, and between attempts to take a member's place.
const PAUSE: Duration = Duration::from_secs(1);

/// How long another etcd at this member's address may take to say whose it is: as long as a majority may take to start.
const WHOSE: Duration = Duration::from_secs(60);

/// How long the cluster may take to answer a member that does not start. An election takes a second or two.
const QUESTION: Duration = Duration::from_secs(5);

/// How long the cluster may take to let a new member take the place of an old one. etcd refuses changes for some
/// seconds after one of its members was lost.
const REPLACEMENT: Duration = Duration::from_secs(60);

/// How often a member may take the place of the one before it.
const REPLACEMENTS: u32 = 3;

/// How long no member may answer before a majority counts as lost.
const QUORUM: Duration = Duration::from_secs(10);

/// One member of a job's etcd cluster, until this is dropped. Its process and its data end with it, also if this
/// process is killed.
///
/// A member whose process ends is started again with its data. A member that begins without data on a host whose
/// former launcher was lost takes the place of the former member.
#[derive(Debug)]
pub(crate) struct JobMember {
    stop: CancellationToken,
    failed: Option<oneshot::Receiver<EtcdServerError>>,
    task: AbortOnDropHandle<()>,
}

impl JobMember {
    /// Starts the member, without waiting for the other members. Nothing, if another process of this host runs it already.
    ///
    /// # Errors
    /// There is no etcd, or another server has one of the two ports.
    pub(crate) async fn start(plan: MemberPlan) -> Result<Option<Self>, EtcdServerError> {
        let binary = blocking(|| EtcdSearch::of_process(None).search()).await?;
        for address in [plan.client_address(), plan.peer_address()] {
            match reserve(address) {
                Ok(_) => {}
                Err(error) if is_in_use(&error) && is_run_by_another_process(&plan).await => {
                    tracing::info!(
                        target: EMBEDDED,
                        %address, "another process of this host runs its member of the etcd cluster"
                    );
                    return Ok(None);
                }
                Err(source) => return Err(EtcdServerError::Listen { address, source }),
            }
        }
        let directory = blocking(|| TemporaryDirectory::new("rallypoint-etcd-")).await;
        let directory = directory
            .map_err(|source| EtcdServerError::Directory { path: std::env::temp_dir(), source })?;
        let (address, of) = (plan.client_address(), plan.endpoints.len());
        tracing::info!(
            target: EMBEDDED,
            %address, ?binary, "this process runs one of the {of} members of the job's etcd cluster"
        );
        let (stop, (sender, receiver)) = (CancellationToken::new(), oneshot::channel());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let life = live(plan, binary, directory);
            if let Some(error) = stopped.run_until_cancelled_owned(life).await
                && let Err(error) = sender.send(error)
            {
                tracing::error!(
                    target: EMBEDDED,
                    %error, "this host has no member of the etcd cluster any more; the others continue"
                );
            }
        });
        Ok(Some(Self { stop, failed: Some(receiver), task: AbortOnDropHandle::new(task) }))
    }

    /// Waits until the member has ended for good, and returns why. Never returns after [`joined`](Self::joined).
    pub(crate) async fn failed(&mut self) -> EtcdServerError {
        match &mut self.failed {
            Some(failed) => match failed.await {
                Ok(error) => error,
                Err(_) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Notes that this node has found a cluster that serves: a member that ends from now on is reported in the log,
    /// and the node goes on with the other members.
    pub(crate) fn joined(&mut self) {
        self.failed = None;
    }

    /// Ends the process, and removes its data. It has nothing to save: the job is over.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        let _ = self.task.await;
    }
}

/// Waits until a majority of the members is lost: then none of them serves anyone.
pub(crate) async fn quorum_lost(client: &Client) {
    let client = client.with_timeout(QUORUM);
    let any = Range { limit: 1, keys_only: true, ..Range::new(KeyRange::all()) };
    while client.range(any.clone()).await.is_ok() {
        sleep(PAUSE).await;
    }
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Whether the server at the address of this host's member is this host's member.
async fn is_run_by_another_process(plan: &MemberPlan) -> bool {
    let options = ClientOptions { timeout: WHOSE, ..plan.client(|index| index == plan.own) };
    let name = plan.own_name();
    let members = async { Client::connect(options).await?.members().await }.await;
    members.is_ok_and(|members| members.iter().any(|member| member.name == name))
}

/// Runs the member until it ends for good. Returns why.
async fn live(plan: MemberPlan, binary: PathBuf, directory: TemporaryDirectory) -> EtcdServerError {
    let mut bootstrap = Bootstrap::New;
    for replacement in 0.. {
        let data = directory.path().join(replacement.to_string());
        let mut member = EtcdMember::new(plan.spec(&binary, data, bootstrap));
        let ended = serve(&mut member, plan.client_address()).await;
        if replacement >= REPLACEMENTS || !is_replaceable(&plan).await {
            return ended;
        }
        tracing::info!(
            target: EMBEDDED,
            "the etcd cluster of this run had another member on this host; this one takes its place"
        );
        if let Err(source) = replace(&plan).await {
            let endpoint = plan.endpoints[plan.own].to_string();
            return EtcdServerError::NotReplaced { endpoint, source: Box::new(source) };
        }
        bootstrap = Bootstrap::Existing;
    }
    unreachable!("the number of replacements is limited")
}

/// Starts the member, and again whenever it ends after it has served. Returns why it did not serve.
async fn serve(member: &mut EtcdMember, address: SocketAddr) -> EtcdServerError {
    loop {
        if let Err(error) = member.start() {
            return error;
        }
        if let Err(ended) = member.ready(UNTIL_READY).await {
            member.forget();
            return ended;
        }
        tracing::info!(target: EMBEDDED, %address, "the etcd cluster of the job serves");
        let ended = member.exited().await.to_string();
        member.forget();
        let ended = ended.lines().next();
        tracing::warn!(target: EMBEDDED, ended, "the etcd of this host has ended; starting it again");
        sleep(PAUSE).await;
    }
}

/// Whether the cluster serves without this host's member, and has had one at its address.
async fn is_replaceable(plan: &MemberPlan) -> bool {
    let options = ClientOptions { timeout: QUESTION, ..plan.client(|index| index != plan.own) };
    let members = async { Client::connect(options).await?.members().await }.await;
    // A first member that has never started is this one, and another reason keeps it from serving.
    let is_other = |member: &ClusterMember| has_started(member) || is_only_added(member);
    members.is_ok_and(|members| former(plan, &members).is_none_or(is_other))
}

/// Removes the former member of this host from the cluster, and adds the new one.
async fn replace(plan: &MemberPlan) -> Result<(), ClientError> {
    let options = ClientOptions { timeout: QUESTION, ..plan.client(|index| index != plan.own) };
    let client = Client::connect(options).await?;
    let begun = Instant::now();
    loop {
        match replace_once(&client, plan).await {
            Err(error) if begun.elapsed() < REPLACEMENT => {
                tracing::debug!(target: EMBEDDED, %error, "the etcd cluster does not change its members yet");
                sleep(PAUSE).await;
            }
            done => return done,
        }
    }
}

/// One attempt. It may be repeated whatever became of the one before.
async fn replace_once(client: &Client, plan: &MemberPlan) -> Result<(), ClientError> {
    let members = client.members().await?;
    match former(plan, &members) {
        Some(added) if is_only_added(added) => return Ok(()),
        Some(former) => client.member_remove(former.id).await?,
        None => {}
    }
    client.member_add(&plan.own_peer_url()).await
}

fn former<'a>(plan: &MemberPlan, members: &'a [ClusterMember]) -> Option<&'a ClusterMember> {
    let url = plan.own_peer_url();
    members.iter().find(|member| member.peer_urls.contains(&url))
}

/// A member tells its addresses for clients when it has started.
fn has_started(member: &ClusterMember) -> bool {
    !member.client_urls.is_empty()
}

/// The first members have names from the start; a member that was added has one when it has started.
fn is_only_added(member: &ClusterMember) -> bool {
    member.name.is_empty()
}
