//! `rallypoint run` as its users see it: real launchers, real workers, real servers.
//!
//! Written from what the launcher promises (its help, torchrun's contract), not from its code. The tests of
//! its parts are beside those.

mod ground;
pub mod hosts;
mod launcher;
mod processes;
pub mod recorded;
mod workers;

mod changes;
mod chaos;
mod defects;
mod devices;
mod environment;
mod error_files;
mod events;
mod exit_codes;
mod first_command;
mod guarding;
mod hangs;
mod haste;
mod input;
mod limits;
mod meeting;
mod names;
mod namespaces;
mod notices;
mod one_group;
mod output;
mod own_etcd;
mod passing;
mod places;
mod pods;
mod ports;
mod preflight;
mod programs;
mod reopening;
mod security;
mod serving;
mod sizes;
mod stopping;
mod succession;
mod surplus;
mod terminal;
mod trouble;
mod units;

use std::time::{Duration, Instant};

use rallypoint::client::{Client, ClientOptions};
use rallypoint::core::kv::{KeyRange, LeaseId, RangeResult};
use rallypoint::core::rendezvous::keys::{DEFAULT_PREFIX, Keys};

pub use self::ground::{Group, Job, free_endpoint, host_of};
pub use self::launcher::{Ended, Launcher};
pub use self::workers::Worker;

/// For what must come about by itself. A busy machine may take its time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until there is something to return.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something is so.
pub fn until_true(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, || is_so().then_some(()));
}

/// Runs a future where everything else is plain code.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The name of this host, as reports have it.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What lies at a server now.
pub fn query(address: &str, range: KeyRange) -> RangeResult {
    wait(async {
        let client = Client::connect(ClientOptions::new([address])).await.unwrap();
        client.range(range).await.unwrap()
    })
}

/// Lets a lease end before its time.
pub fn revoke(address: &str, lease: LeaseId) {
    wait(async {
        let client = Client::connect(ClientOptions::new([address])).await.unwrap();
        client.lease_revoke(lease).await.unwrap();
    });
}

/// Waits until this number of nodes of a run has registered.
pub fn until_listed(address: &str, run_id: &str, nodes: usize) {
    let range = Keys::new(DEFAULT_PREFIX, run_id).nodes();
    until_true(&format!("{nodes} nodes of {run_id} at {address}"), || {
        query(address, range.clone()).kvs.len() == nodes
    });
}
