//! Runs each case on each store, with a keyspace of its own.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use libtest_mimic::{Arguments, Failed, Trial};
use rallypoint::client::{Client, ClientOptions};
use rallypoint::store::{
    AgentStore, EtcdStore, HashStore, PrefixStore, Store, StoreError, TcpStore,
};
use tokio::net::TcpSocket;

use crate::support::case::finish;
use crate::support::{Embedded, Etcd, Version};

/// Longer than any case takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a call waits that should succeed.
pub const LONG: Duration = Duration::from_secs(30);

/// How long a call waits that should not.
pub const SHORT: Duration = Duration::from_millis(100);

/// A store that the cases run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Arm {
    Hash,
    EtcdEmbedded,
    Etcd34,
    Etcd35,
    Etcd36,
    Etcd37,
    Agent,
}

impl Arm {
    /// Those whose servers are on this machine.
    fn all() -> Vec<Self> {
        let newest = [(Version::V3_6, Self::Etcd36), (Version::V3_7, Self::Etcd37)];
        let newest = newest.into_iter().filter(|(version, _)| version.is_expected());
        let always = [Self::Hash, Self::EtcdEmbedded, Self::Etcd34, Self::Etcd35, Self::Agent];
        always.into_iter().chain(newest.map(|(_, arm)| arm)).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::EtcdEmbedded => "etcd_embedded",
            Self::Etcd34 => "etcd_3_4",
            Self::Etcd35 => "etcd_3_5",
            Self::Etcd36 => "etcd_3_6",
            Self::Etcd37 => "etcd_3_7",
            Self::Agent => "agent",
        }
    }
}

/// What a case works with: two handles of one store, as two nodes have them.
pub struct Context {
    /// The one.
    pub store: Arc<dyn Store>,
    /// The other.
    pub other: Arc<dyn Store>,
    /// The store that these are a part of, if they are.
    pub whole: Option<Arc<dyn Store>>,
    /// Who serves them, if that is within this program.
    pub server: Option<AgentStore>,
}

impl Context {
    async fn open(arm: Arm, part: bool) -> Self {
        let (store, server): (Arc<dyn Store>, _) = match arm {
            Arm::Hash => (Arc::new(HashStore::default()), None),
            Arm::Agent => {
                let socket = TcpSocket::new_v4().unwrap();
                socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
                let server = AgentStore::start(socket).unwrap();
                let address = server.address().to_string();
                (Arc::new(TcpStore::connect(&address, LONG).await.unwrap()), Some(server))
            }
            Arm::EtcdEmbedded | Arm::Etcd34 | Arm::Etcd35 | Arm::Etcd36 | Arm::Etcd37 => {
                let client = Client::connect(ClientOptions::new([endpoint(arm)])).await.unwrap();
                static NEXT: AtomicU64 = AtomicU64::new(0);
                let prefix = format!("/case/{}/", NEXT.fetch_add(1, Ordering::Relaxed));
                (Arc::new(EtcdStore::new(client, prefix, 0, LONG)), None)
            }
        };
        store.set_timeout(LONG);
        let whole = part.then(|| store.clone());
        let store: Arc<dyn Store> =
            if part { Arc::new(PrefixStore::new("a part", store)) } else { store };
        let other = store.try_clone().await.unwrap();
        Self { store, other, whole, server }
    }

    /// Whether nothing has the key.
    pub async fn is_missing(&self, key: &[u8]) -> bool {
        !self.other.check(&[key]).await.unwrap()
    }

    /// Runs a call in the background and gives it time to begin waiting. It proves the same whether or
    /// not it did; most times it did.
    pub async fn started<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let task = tokio::spawn(call);
        tokio::time::sleep(Duration::from_millis(30)).await;
        task
    }
}

/// The keys that a call waited for in vain, as the user of a whole store knows them.
pub fn missing<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> Vec<String> {
    match outcome {
        Err(StoreError::Timeout { missing, .. }) => {
            let plain = |key: &String| key.strip_prefix("a part/").unwrap_or(key).to_owned();
            missing.iter().map(plain).collect()
        }
        other => panic!("expected a time-out, got {other:?}"),
    }
}

/// Some text as a value.
pub fn text(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

type Body = fn(Context) -> Pin<Box<dyn Future<Output = ()>>>;

/// A named expectation.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub body: Body,
}

/// The cases of an area.
#[macro_export]
macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        vec![$($crate::harness::Case {
            name: stringify!($name),
            body: |context| Box::pin($name(context)),
        }),+]
    };
}

enum Server {
    Ours(Embedded),
    Real(Etcd),
}

/// One server of each arm for all cases. They live until the process ends, when the watchdog removes
/// them.
static SERVERS: LazyLock<Mutex<BTreeMap<Arm, Server>>> = LazyLock::new(Mutex::default);

/// Starts what the cases share, before any of them runs.
fn start(arm: Arm) {
    let server = match arm {
        Arm::Hash | Arm::Agent => return,
        Arm::EtcdEmbedded => Server::Ours(runtime().block_on(Embedded::memory())),
        Arm::Etcd34 => Server::Real(runtime().block_on(Etcd::start(Version::V3_4))),
        Arm::Etcd35 => Server::Real(runtime().block_on(Etcd::start(Version::V3_5))),
        Arm::Etcd36 => Server::Real(runtime().block_on(Etcd::start(Version::V3_6))),
        Arm::Etcd37 => Server::Real(runtime().block_on(Etcd::start(Version::V3_7))),
    };
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).insert(arm, server);
}

fn endpoint(arm: Arm) -> String {
    match &SERVERS.lock().unwrap_or_else(PoisonError::into_inner)[&arm] {
        Server::Ours(server) => server.endpoint(),
        Server::Real(server) => server.endpoint(),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn run_case(arm: Arm, part: bool, case: Case) -> Result<(), Failed> {
    runtime().block_on(async {
        let context = Context::open(arm, part).await;
        finish((case.body)(context), PATIENCE).await
    })
}

/// Runs what the command line asks for.
pub fn run<const N: usize>(areas: [(&'static str, Vec<Case>); N]) -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases wait more than they work; a few more than there are cores go faster.
    arguments.test_threads.get_or_insert(6);
    let mut trials = Vec::new();
    for arm in Arm::all() {
        if !arguments.list {
            start(arm);
        }
        for part in [false, true] {
            for (area, cases) in &areas {
                for case in cases {
                    let case = *case;
                    let kind = if part { "_part" } else { "" };
                    let name = format!("{}{kind}::{area}::{}", arm.name(), case.name);
                    trials.push(Trial::test(name, move || run_case(arm, part, case)));
                }
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
