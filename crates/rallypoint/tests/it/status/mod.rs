//! The operator's commands as their users see them: real launchers, real servers, and `rallypoint status`, `explain`,
//! `close`, `reopen` and `evict` as processes.

mod changing;
pub(crate) mod documented;
mod leases;
mod looking;
mod secured;

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::launch::{Job, until, wait};
use crate::support::{Embedded, Etcd, Version};

/// A server, of ours or a real etcd.
pub struct Server {
    address: String,
    _ours: Option<Embedded>,
    _etcd: Option<Etcd>,
}

impl Server {
    pub fn ours() -> Self {
        let server = wait(Embedded::memory());
        Self { address: server.address(), _ours: Some(server), _etcd: None }
    }

    pub fn etcd() -> Self {
        let server = wait(Etcd::start(Version::V3_5));
        Self { address: server.address(), _ours: None, _etcd: Some(server) }
    }

    /// A job at this server, in which nothing happens by time.
    pub fn job(&self, nnodes: &str) -> Job {
        let conf = "is_host=false,lease_ttl=30,last_call_timeout=1";
        Job::with_conf(&self.address, nnodes, conf)
    }

    /// Runs a command of the operator, without a terminal.
    pub fn says(&self, words: &[&str]) -> Said {
        said(&self.command(words, &[]))
    }

    pub fn command(&self, words: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|(name, value)| format!("{name}={value}"));
        let program = env!("CARGO_BIN_EXE_rallypoint").to_owned();
        let (command, rest) = words.split_first().unwrap();
        let endpoint = ["--rdzv-endpoint", &self.address].map(str::to_owned);
        let line = ["env".to_owned(), "USER=ali".to_owned()].into_iter().chain(variables);
        let line = line.chain([program, (*command).to_owned()]).chain(endpoint);
        line.chain(rest.iter().map(ToString::to_string)).collect()
    }

    /// The status of the job, as JSON.
    pub fn status(&self) -> Value {
        let said = self.says(&["status", "job", "--json"]);
        let mut status: Value =
            serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        status["runs"][0].take()
    }

    /// Waits until the status of the job is like this.
    pub fn until(&self, what: &str, like: impl Fn(&Value) -> bool) -> Value {
        until(what, || Some(self.status()).filter(&like))
    }

    /// What `rallypoint explain` says of the job.
    pub fn explained(&self) -> String {
        let said = self.says(&["explain", "job"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        said.stdout
    }
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn said(line: &[String]) -> Said {
    let output = Command::new(&line[0]).args(&line[1..]).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The states of the nodes, sorted.
pub fn states(status: &Value) -> Vec<String> {
    let nodes = status["nodes"].as_array().unwrap();
    let mut states: Vec<String> =
        nodes.iter().map(|node| node["state"].as_str().unwrap().to_owned()).collect();
    states.sort();
    states
}
