//! From parameters to a handler: the registry, and what reaches the servers in the end.

use std::error::Error;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rallypoint::client::{Client, ClientError};
use rallypoint::core::kv::KeyRange;
use rallypoint::core::rendezvous::keys::Keys;
use rallypoint::rendezvous::{
    ConfigError, CreateError, EtcdOptions, RegistryError, RendezvousError, RendezvousHandler,
    RendezvousHandlerCreator, RendezvousHandlerRegistry, RendezvousInfo, RendezvousParameters,
    RunOutcome, load_extra_data, store_extra_data,
};
use rallypoint::store::StoreError;

use crate::client::client;
use crate::etcd_store::on_each_server;
use crate::support::Embedded;

/// Calls itself what it was told to, and does nothing.
struct Toy {
    backend: &'static str,
    run_id: String,
}

#[async_trait]
impl RendezvousHandler for Toy {
    fn backend(&self) -> &str {
        self.backend
    }

    fn run_id(&self) -> &str {
        &self.run_id
    }

    async fn next_rendezvous(&self) -> Result<RendezvousInfo, RendezvousError> {
        let (run_id, reason) = (self.run_id.clone(), "it was a toy".to_owned());
        Err(RendezvousError::GracefulExit { run_id, reason })
    }

    async fn is_closed(&self) -> Result<bool, RendezvousError> {
        Ok(false)
    }

    async fn close(&self, _outcome: RunOutcome, _reason: &str) -> Result<(), RendezvousError> {
        Ok(())
    }

    async fn num_nodes_waiting(&self) -> Result<usize, RendezvousError> {
        Ok(0)
    }

    async fn leave(&self) {}
    async fn shutdown(&self) -> bool {
        true
    }
}

fn toy(backend: &'static str) -> RendezvousHandlerCreator {
    RendezvousHandlerCreator::new(move |parameters| async move {
        EtcdOptions::from_parameters(&parameters)?;
        Ok(Toy { backend, run_id: parameters.run_id })
    })
}

fn parameters(backend: &str) -> RendezvousParameters {
    RendezvousParameters::new(backend, "", "job", 1, 2).unwrap()
}

async fn refusal(
    registry: &RendezvousHandlerRegistry,
    parameters: RendezvousParameters,
) -> RegistryError {
    match registry.create_handler(parameters).await {
        Ok(_) => panic!("there is a handler"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_registered_backend_makes_handlers() {
    let mut registry = RendezvousHandlerRegistry::new();
    let creator = toy("toy");
    registry.register("toy", creator.clone()).unwrap();
    // Twice the same is once.
    registry.register("toy", creator).unwrap();
    registry.register("other", toy("other")).unwrap();
    assert_eq!(registry.names().collect::<Vec<_>>(), ["other", "toy"]);
    let handler = registry.create_handler(parameters("toy")).await.unwrap();
    assert_eq!((handler.backend(), handler.run_id()), ("toy", "job"));
    assert!(!handler.use_agent_store());

    let taken = registry.register("toy", toy("toy")).unwrap_err();
    assert!(matches!(&taken, RegistryError::Taken { name } if name == "toy"));
    let words = "backend \"toy\" is registered already, with another creator; choose another name";
    assert_eq!(taken.to_string(), words);
    let unnamed = registry.register("", toy("")).unwrap_err();
    let words = "backend \"\": register it under a name that is not empty";
    assert_eq!(unnamed.to_string(), words);
}

#[tokio::test]
async fn who_asks_for_a_handler_in_vain_is_told_why() {
    let mut registry = RendezvousHandlerRegistry::new();
    let error = refusal(&registry, parameters("etcd")).await.to_string();
    let words = "no backend \"etcd\" is registered. Nothing is registered: call register first";
    assert_eq!(error, words);

    registry.register("etcd", toy("etcd")).unwrap();
    registry.register("etcd-v2", toy("etcd")).unwrap();
    let error = refusal(&registry, parameters("etdc")).await;
    let words = "no backend \"etdc\" is registered: did you mean etcd? Registered: etcd, etcd-v2";
    assert_eq!(error.to_string(), words);
    assert!(matches!(error, RegistryError::Unknown { .. }));
    let error = refusal(&registry, parameters("c10d")).await.to_string();
    assert_eq!(error, "no backend \"c10d\" is registered. Registered: etcd, etcd-v2");

    let error = refusal(&registry, parameters("etcd-v2")).await;
    let words = "the creator registered as backend \"etcd-v2\" made a handler that calls itself \
                 \"etcd\"; its backend() must return the name that it is registered under";
    assert_eq!(error.to_string(), words);

    let mut changed = parameters("etcd");
    changed.min_nodes = 0;
    let error = refusal(&registry, changed).await;
    assert!(matches!(error, RegistryError::Parameter(ConfigError::Invalid { .. })), "{error}");
    let error = refusal(&registry, parameters("etcd").with("timout", 5)).await;
    let unknown = matches!(&error, RegistryError::Parameter(ConfigError::UnknownOption { .. }));
    assert!(unknown && error.to_string().contains("did you mean timeout?"), "{error}");
}

#[tokio::test]
async fn pytorchs_names_lead_to_the_backends_that_take_their_part() {
    let mut registry = RendezvousHandlerRegistry::new();
    for name in ["etcd", "dynamic"] {
        registry.register(name, toy(name)).unwrap();
    }
    for (asked, backend) in [("etcd-v2", "dynamic"), ("etcd-v3", "etcd")] {
        let handler = registry.create_handler(parameters(asked)).await.unwrap();
        assert_eq!(handler.backend(), backend, "{asked}");
    }
    // A backend that is registered under the name goes first.
    registry.register("etcd-v2", toy("etcd-v2")).unwrap();
    let handler = registry.create_handler(parameters("etcd-v2")).await.unwrap();
    assert_eq!(handler.backend(), "etcd-v2");
    let builtin = RendezvousHandlerRegistry::with_builtin();
    assert_eq!(builtin.names().collect::<Vec<_>>(), ["dynamic", "etcd", "rallypoint"]);
}

#[tokio::test]
async fn what_a_creator_met_is_kept() {
    let mut registry = RendezvousHandlerRegistry::new();
    let failing = RendezvousHandlerCreator::new(|_| async {
        let source = Box::new(std::io::Error::other("the cable is cut"));
        let context = "cannot reach 10.0.0.1:2379".to_owned();
        Err::<Toy, _>(CreateError::from(RendezvousError::Connection { context, source }))
    });
    registry.register("failing", failing).unwrap();
    let error = refusal(&registry, parameters("failing")).await;
    assert_eq!(error.to_string(), "cannot reach 10.0.0.1:2379: the cable is cut");
    assert!(matches!(error, RegistryError::Rendezvous(RendezvousError::Connection { .. })));
    assert_eq!(error.source().unwrap().to_string(), "the cable is cut");
}

#[tokio::test]
async fn a_url_leads_to_the_server() {
    let args = ["--user", "me", "--password", "hidden"];
    let server = Embedded::start_with(false, &args).await;
    let address = server.endpoint().replace("http://", "");
    let connect = async |password: &str| -> Client {
        let limits = "min_workers=1&max_workers=2&read_timeout=5";
        let url = format!("etcd://{address}/job?{limits}&user=me&password={password}");
        let parameters = RendezvousParameters::from_url(&url).unwrap();
        let options = EtcdOptions::from_parameters(&parameters).unwrap();
        Client::connect(options.client_options()).await.unwrap()
    };
    connect("hidd%65n").await.range(KeyRange::all()).await.unwrap();
    let error = connect("wrong").await.range(KeyRange::all()).await.unwrap_err();
    assert!(matches!(error, ClientError::Authentication { .. }), "{error}");
}

#[tokio::test]
async fn extra_data_are_found_by_name_and_round() {
    on_each_server(async |endpoint| {
        let client = client([endpoint]).await;
        let keys = Keys::new("/torchelastic/p2p", "job");
        let lease = client.lease_grant(60, None).await.unwrap().id;
        let short = Duration::from_millis(300);
        let load = |name: &'static str, timeout| {
            let (client, keys) = (client.clone(), keys.clone());
            async move { load_extra_data(&client, &keys, 3, name, timeout).await }
        };
        let waiting = tokio::spawn(load("b", Duration::from_secs(20)));
        store_extra_data(&client, &keys, lease, 3, "a", "1").await.unwrap();
        store_extra_data(&client, &keys, lease, 2, "b", "of another round").await.unwrap();
        assert_eq!(load("a", Duration::ZERO).await.unwrap(), "1");
        tokio::time::sleep(short).await;
        assert!(!waiting.is_finished());
        store_extra_data(&client, &keys, lease, 3, "b", "2").await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), "2");
        let status = client.lease_time_to_live(lease, true).await.unwrap().unwrap();
        assert_eq!(status.keys.len(), 3);

        let begun = Instant::now();
        let error = load("c", short).await.unwrap_err();
        assert!((short..short * 10).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(matches!(error, StoreError::Timeout { .. }));
        let words = "wait timeout after 300.0ms: these keys were still missing: extra data \"c\" of round 3 \
                     (below /torchelastic/p2p/run_job/rdzv/v_3/extra_data/)";
        assert_eq!(error.to_string(), words);
    })
    .await;
}
