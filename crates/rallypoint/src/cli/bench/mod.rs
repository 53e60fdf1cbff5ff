//! `rallypoint bench`.

mod observed;
mod rendezvous;
mod scale;
mod store;
mod succession;

use std::io::Write;
use std::process::Stdio;

use clap::Subcommand;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::AnyError;
use super::descriptors::raise_descriptor_limit;
use crate::client::{Client, ClientOptions};

#[derive(Subcommand)]
pub(super) enum Bench {
    /// Time for many nodes to form a group
    #[command(after_help = rendezvous::AFTER_HELP)]
    Rendezvous(rendezvous::RendezvousBench),
    /// Cost of a group of any size, without a network
    #[command(after_help = scale::AFTER_HELP)]
    Scale(scale::ScaleBench),
    /// Latency of the calls of a store on etcd
    #[command(after_help = store::AFTER_HELP)]
    Store(store::StoreBench),
}

impl Bench {
    pub(super) fn run(self) -> Result<(), AnyError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        raise_descriptor_limit(None);
        match self {
            Self::Rendezvous(bench) => runtime.block_on(bench.run()),
            Self::Scale(bench) => bench.run(),
            Self::Store(bench) => runtime.block_on(bench.run()),
        }
    }
}

/// The servers of a benchmark.
struct BenchTarget {
    /// The servers, separated by commas.
    endpoint: String,
    _own: Option<Child>,
}

impl BenchTarget {
    /// The servers of an endpoint, or a new one in a process of its own: a descriptor limit that
    /// suffices for the clients need not suffice for both sides.
    async fn find(endpoint: Option<&str>) -> Result<Self, AnyError> {
        if let Some(endpoint) = endpoint {
            // A node would wait for a server that is not up yet; a benchmark fails at once.
            Client::connect(ClientOptions::new(endpoint.split(','))).await?.status().await?;
            return Ok(Self { endpoint: endpoint.to_owned(), _own: None });
        }
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--stop-at-eof"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("the server has no output")?;
        let line = BufReader::new(output).lines().next_line().await?.unwrap_or_default();
        let address = line.strip_prefix("listening on http://");
        let endpoint = address.ok_or("the server did not start")?.to_owned();
        Ok(Self { endpoint, _own: Some(process) })
    }
}

fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
