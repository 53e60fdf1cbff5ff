//! The compiled half of the Python package `rallypoint`.
//!
//! - `runtime`: the tokio runtime of the process, and how Python waits for its futures.
//! - `rendezvous`, `store`, `client`, `backend`, `server`, `etcd_server`: the library's types in Python.
//! - `guard`: the guard of workers that another launcher starts.
//! - `errors`: conversion of errors to Python exceptions.
//! - `arguments`: conversion of Python arguments.
//! - `log`: the queue of log records to Python's `logging`.
//!
//! Every call that blocks lets other Python threads run, and ends at Ctrl-C. Objects that were made before a fork
//! cannot be used in the child.

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

/// The compiled half of the package. Its public names are in `rallypoint`.
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

    /// Raises the limit of open descriptors if it may be too low for this number of connections. Returns the former
    /// soft limit if it was raised.
    #[pyfunction]
    fn make_room(connections: u64) -> Option<u64> {
        rallypoint::cli::make_room(connections)
    }

    /// The index of this node in its job, and the environment variable that has it.
    #[pyfunction]
    fn node_rank(py: Python<'_>) -> PyResult<Option<(u32, String)>> {
        rallypoint::cli::node_rank().or_raise(py)
    }

    /// The address of torchrun's static rendezvous, and the environment variable that has it.
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
