//! Where the tests of the dynamic rendezvous take place.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rallypoint::client::Client;
use rallypoint::core::rendezvous::documents::Limits;
use rallypoint::core::rendezvous::keys;
use rallypoint::rendezvous::dynamic::{
    DynamicHandlerOptions, DynamicRendezvousHandler, DynamicSettings, EtcdRendezvousBackend,
    MemoryRendezvousBackend, RendezvousBackend, StoreFactory,
};
use rallypoint::store::HashStore;

use crate::client::client;
use crate::support::{Embedded, Etcd, Version};

/// A server, or none.
pub struct Ground {
    pub name: &'static str,
    pub client: Option<Client>,
    memory: Mutex<BTreeMap<String, MemoryRendezvousBackend>>,
    _server: Box<dyn Any>,
}

/// All of them, fresh.
pub async fn grounds() -> Vec<Ground> {
    let mut all = vec![Ground::memory()];
    let embedded = Embedded::memory().await;
    all.push(Ground::server("embedded", embedded.endpoint(), embedded).await);
    for version in Version::all() {
        let etcd = Etcd::start(version).await;
        all.push(Ground::server(version.name(), etcd.endpoint(), etcd).await);
    }
    all
}

impl Ground {
    pub fn memory() -> Self {
        Self { name: "memory", client: None, memory: Mutex::default(), _server: Box::new(()) }
    }

    pub async fn server(name: &'static str, endpoint: String, server: impl Any) -> Self {
        let client = Some(client([endpoint]).await);
        Self { name, client, memory: Mutex::default(), _server: Box::new(server) }
    }

    /// A node's own backend for a run.
    pub fn backend(&self, run_id: &str) -> Arc<dyn RendezvousBackend> {
        match &self.client {
            Some(client) => {
                Arc::new(EtcdRendezvousBackend::create(client.clone(), run_id).unwrap())
            }
            None => {
                let mut all = self.memory.lock().unwrap();
                Arc::new(all.entry(run_id.to_owned()).or_default().clone())
            }
        }
    }
}

/// A run whose nodes are all here.
pub struct Run<'a> {
    ground: &'a Ground,
    run_id: &'static str,
    pub settings: DynamicSettings,
    pub store: StoreFactory,
}

impl<'a> Run<'a> {
    pub fn new(ground: &'a Ground, run_id: &'static str, limits: Limits) -> Self {
        let settings = DynamicSettings {
            last_call: Duration::from_millis(300),
            keep_alive_interval: Duration::from_millis(500),
            keep_alive_max_attempt: 4,
            ..DynamicSettings::new(limits)
        };
        let stores: Mutex<BTreeMap<String, HashStore>> = Mutex::default();
        let store: StoreFactory = Arc::new(move |round| {
            let mut stores = stores.lock().unwrap();
            Arc::new(stores.entry(keys::dynamic_store(run_id, round)).or_default().clone())
        });
        Self { ground, run_id, settings, store }
    }

    pub fn options(&self, host: u8) -> DynamicHandlerOptions {
        DynamicHandlerOptions {
            run_id: self.run_id.to_owned(),
            local_addr: format!("127.0.0.{host}"),
            settings: self.settings.clone(),
            store: self.store.clone(),
        }
    }

    /// A node on a host of its own.
    pub fn node(&self, host: u8) -> DynamicRendezvousHandler {
        let backend = self.ground.backend(self.run_id);
        DynamicRendezvousHandler::start(backend, self.options(host)).unwrap()
    }
}
