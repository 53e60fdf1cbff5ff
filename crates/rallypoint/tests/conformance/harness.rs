//! Runs each case on each arm, on the kind of server that it asks for.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::context::Context;
use crate::support::case::finish;
use crate::support::process::Directory;
use crate::support::{Embedded, Etcd, Version};

/// Longer than any case takes on a busy machine, whose disk may be the slowest part of it.
const PATIENCE: Duration = Duration::from_secs(110);

/// A server that the cases run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Arm {
    /// Ours, in memory.
    EmbeddedMemory,
    /// Ours, with a data directory.
    EmbeddedDisk,
    /// Real etcd 3.4.
    Etcd34,
    /// Real etcd 3.5.
    Etcd35,
    /// Real etcd 3.6.
    Etcd36,
    /// Real etcd 3.7.
    Etcd37,
}

impl Arm {
    /// Those whose servers are on this machine.
    fn all() -> Vec<Self> {
        let ours = [Self::EmbeddedMemory, Self::EmbeddedDisk];
        let real = [Self::Etcd34, Self::Etcd35, Self::Etcd36, Self::Etcd37];
        let is_here = |arm: &Self| arm.version().is_some_and(Version::is_expected);
        ours.into_iter().chain(real.into_iter().filter(is_here)).collect()
    }

    /// The version of a real etcd.
    fn version(self) -> Option<Version> {
        match self {
            Self::EmbeddedMemory | Self::EmbeddedDisk => None,
            Self::Etcd34 => Some(Version::V3_4),
            Self::Etcd35 => Some(Version::V3_5),
            Self::Etcd36 => Some(Version::V3_6),
            Self::Etcd37 => Some(Version::V3_7),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::EmbeddedMemory => "embedded_memory",
            Self::EmbeddedDisk => "embedded_disk",
            Self::Etcd34 => "etcd_3_4",
            Self::Etcd35 => "etcd_3_5",
            Self::Etcd36 => "etcd_3_6",
            Self::Etcd37 => "etcd_3_7",
        }
    }

    /// Whether it is our own server.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::EmbeddedMemory | Self::EmbeddedDisk)
    }

    /// Whether it keeps anything over a restart.
    pub fn is_durable(self) -> bool {
        self != Self::EmbeddedMemory
    }
}

/// What a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Any server; others use it at the same time.
    Shared,
    /// A server that no other case changes meanwhile, so that revisions can be counted.
    Quiet,
    /// A server of its own, at revision 1.
    Fresh,
    /// The same, but only where a restart loses nothing.
    Durable,
    /// A server of its own that wants the user `root` with the password [`PASSWORD`].
    Auth,
    /// A server of its own that has room for [`QUOTA`] bytes.
    Quota,
}

/// How many bytes a server holds that has little room.
pub const QUOTA: usize = 8 << 20;

/// The password of `root` on servers with authentication.
pub const PASSWORD: &str = "open sesame";

type Body = fn(Context) -> Pin<Box<dyn Future<Output = ()>>>;

/// A named expectation.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// What it does.
    pub body: Body,
}

/// The cases of an area: `cases![Shared: one, two; Fresh: three]`.
#[macro_export]
macro_rules! cases {
    ($($needs:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        vec![$($($crate::harness::Case {
            name: stringify!($name),
            needs: $crate::harness::Needs::$needs,
            body: |context| Box::pin($name(context)),
        }),+),+]
    };
}

/// A running server of either kind.
#[derive(Debug)]
pub enum Server {
    /// Ours.
    Ours(Embedded),
    /// etcd.
    Real(Etcd),
}

impl Server {
    async fn start(arm: Arm) -> Self {
        match arm.version() {
            Some(version) => Self::Real(Etcd::start(version).await),
            None if arm.is_durable() => Self::Ours(Embedded::disk().await),
            None => Self::Ours(Embedded::memory().await),
        }
    }

    async fn start_with_quota(arm: Arm) -> Self {
        let quota = QUOTA.to_string();
        let real = ["--quota-backend-bytes", &quota];
        let ours = ["--max-bytes", &quota, "--keep-revisions", "0"];
        match arm.version() {
            Some(version) => Self::Real(Etcd::start_with(version, &real).await),
            None => Self::Ours(Embedded::start_with(arm.is_durable(), &ours).await),
        }
    }

    async fn start_with_root(arm: Arm) -> Self {
        let Some(version) = arm.version() else {
            let directory = Directory::new();
            let file = directory.path().join("password");
            std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
            let args = ["--user", "root", "--password-file", file.to_str().unwrap()];
            return Self::Ours(Embedded::in_directory(directory, arm.is_durable(), &args).await);
        };
        let server = Self::start(arm).await;
        let user = format!("root:{PASSWORD}");
        for command in [
            &["user", "add", &user][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            let done = std::process::Command::new(version.etcdctl())
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &server.endpoint()])
                .args(command)
                .output()
                .unwrap();
            assert!(done.status.success(), "{command:?}: {done:?}");
        }
        server
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        match self {
            Self::Ours(server) => server.endpoint(),
            Self::Real(server) => server.endpoint(),
        }
    }

    /// Kills it and starts it again with what it has on disk.
    pub async fn restart(&mut self) {
        match self {
            Self::Ours(server) => server.restart().await,
            Self::Real(server) => server.restart().await,
        }
    }
}

/// One server of each arm for every case that shares, and one for those that want it quiet. They
/// live until the process ends, when the watchdog removes them.
type Pool = Mutex<BTreeMap<Arm, Arc<OnceLock<Arc<Mutex<Server>>>>>>;
static SHARED: LazyLock<Pool> = LazyLock::new(Pool::default);
static QUIET: LazyLock<Pool> = LazyLock::new(Pool::default);

fn pooled(pool: &Pool, arm: Arm) -> Arc<Mutex<Server>> {
    let slot = lock(pool).entry(arm).or_default().clone();
    slot.get_or_init(|| Arc::new(Mutex::new(runtime().block_on(Server::start(arm))))).clone()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn run_case(arm: Arm, case: Case) -> Result<(), Failed> {
    let (shared, quiet) = match case.needs {
        Needs::Shared => (Some(pooled(&SHARED, arm)), None),
        Needs::Quiet => (None, Some(pooled(&QUIET, arm))),
        Needs::Fresh | Needs::Durable | Needs::Auth | Needs::Quota => (None, None),
    };
    let endpoint = shared.map(|server| lock(&server).endpoint());
    // Held to the end: that is what keeps the server quiet.
    let quiet = quiet.as_ref().map(|server| lock(server));
    let endpoint = endpoint.or_else(|| quiet.as_ref().map(|server| server.endpoint()));
    runtime().block_on(async {
        let context = match (endpoint, case.needs) {
            (Some(endpoint), _) => Context::at(arm, endpoint),
            (None, Needs::Auth) => Context::with(arm, Server::start_with_root(arm).await),
            (None, Needs::Quota) => Context::with(arm, Server::start_with_quota(arm).await),
            (None, _) => Context::with(arm, Server::start(arm).await),
        };
        finish((case.body)(context), PATIENCE).await
    })
}

/// Runs what the command line asks for.
pub fn run<const N: usize>(areas: [(&'static str, Vec<Case>); N]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases wait for servers more than they work; a few more than there are cores go faster.
    arguments.test_threads.get_or_insert(6);
    let mut trials = Vec::new();
    for arm in Arm::all() {
        for (area, cases) in &areas {
            for case in cases {
                if case.needs == Needs::Durable && !arm.is_durable() {
                    continue;
                }
                let case = *case;
                let name = format!("{}::{area}::{}", arm.name(), case.name);
                trials.push(Trial::test(name, move || run_case(arm, case)));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
