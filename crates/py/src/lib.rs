//! The compiled half of the Python package `rallypoint`.
//!
//! - `runtime`: one runtime for the process, and how Python waits for what happens on it.
//! - `rendezvous`, `store`, `client`, `backend`, `server`, `etcd_server`: the library's types, as Python has them.
//! - `guard`: what ends workers that others start; the program that is started for it.
//! - `errors`: which exception an error becomes.
//! - `arguments`: what Python may pass for bytes, times and options.
//! - `log`: what the library has to say, on its way to Python's `logging`.
//!
//! Everything that blocks lets other Python threads run meanwhile, and ends when Ctrl-C was pressed. What
//! was made before a fork is refused after it.

// The macros write functions that only Python calls, and take arguments as Python passes them.
#![allow(clippy::needless_pass_by_value)]

mod arguments;
mod backend;
mod client;
mod errors;
mod etcd_server;
mod guard;
mod log;
mod rendezvous;
mod runtime;
mod server;
mod store;

use pyo3::prelude::*;

/// The compiled half of the package. What is public is in `rallypoint`.
#[pymodule(name = "_native")]
mod native {
    use std::ffi::OsString;

    use pyo3::prelude::*;
    use rallypoint::config::Backend;
    use rallypoint_core::rendezvous::keys;

    use super::errors::OrRaise as _;

    #[pymodule_export]
    use super::backend::RendezvousBackend;
    #[pymodule_export]
    use super::client::Client;
    #[pymodule_export]
    use super::etcd_server::EtcdServer;
    #[pymodule_export]
    use super::guard::{Guard, helper, register_helper};
    #[pymodule_export]
    use super::log::{next_records, start_log, wait_for_records};
    #[pymodule_export]
    use super::rendezvous::{Rendezvous, RendezvousInfo};
    #[pymodule_export]
    use super::server::Server;
    #[pymodule_export]
    use super::store::{EtcdStore, Store, TcpStore};

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    /// The backend of ``Rendezvous`` unless another is given: the one with an embedded server.
    #[pymodule_export]
    const DEFAULT_BACKEND: &str = Backend::Rallypoint.name();

    /// The backend for an etcd that runs already.
    #[pymodule_export]
    const ETCD_BACKEND: &str = Backend::Etcd.name();

    /// The names and aliases that ``Rendezvous`` takes as its backend.
    #[pyfunction]
    fn backends() -> Vec<&'static str> {
        Backend::own_names().collect()
    }

    /// The key at which the agents of a group find whether its round begins, in the round's store.
    #[pymodule_export]
    const DECISION_KEY: &str = keys::agent::DECISION;

    /// The default prefix of the states of dynamic rendezvous.
    #[pymodule_export]
    const DYNAMIC_PREFIX: &str = keys::DYNAMIC_PREFIX;

    /// The key of the arrival of an agent in its round, in the round's store.
    #[pyfunction]
    fn arrived_key(node_rank: u32) -> String {
        keys::agent::arrived(node_rank)
    }

    /// The prefix of the agents' keys in a store that they share with the workers of a round.
    #[pyfunction]
    fn agent_store_prefix(run_id: &str, round: u64) -> String {
        keys::dynamic_store(run_id, round)
    }

    /// The prefix of the store of a run of dynamic rendezvous on etcd.
    #[pyfunction]
    fn dynamic_run_store(run_id: &str) -> String {
        keys::dynamic_run_store(run_id)
    }

    /// Raises the limit of open descriptors if it might not be enough for so many connections. Returns the soft
    /// limit that was there before, if it was raised.
    #[pyfunction]
    fn make_room(connections: u64) -> Option<u64> {
        rallypoint::cli::make_room(connections)
    }

    /// Which of the nodes of its job this one is, and the variable that says so.
    #[pyfunction]
    fn node_rank(py: Python<'_>) -> PyResult<Option<(u32, String)>> {
        rallypoint::cli::node_rank().or_raise(py)
    }

    /// Where the nodes meet in torchrun's static form, and the variable that says so.
    #[pyfunction]
    fn master(py: Python<'_>) -> PyResult<Option<(String, String)>> {
        rallypoint::cli::master().or_raise(py)
    }

    /// Runs the `rallypoint` command, and returns its exit code. Scripts run under this Python.
    #[pyfunction]
    fn main(py: Python<'_>, arguments: Vec<OsString>, python: Option<String>) -> u8 {
        py.detach(|| rallypoint::cli::exit_code(arguments, python))
    }
}
