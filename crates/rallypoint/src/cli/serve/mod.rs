//! `rallypoint serve`.

mod embedded;
mod etcd;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use futures_util::future::BoxFuture;
use thiserror::Error as ThisError;
use tokio::signal::unix::{SignalKind, signal};

use self::embedded::Embedded;
use super::AnyError;
use super::descriptors::raise_descriptor_limit;
use crate::etcd_server::MAX_MEMBERS;

pub(super) const AFTER_HELP: &str = "\
Examples:
  In memory, for a job on this host:
    rallypoint serve
  On disk, for other hosts, with a password (any etcd client can use it):
    rallypoint serve --listen 0.0.0.0:2379 --data-dir /var/lib/rallypoint \\
        --user root --password-file secret
    etcdctl --endpoints head:2379 --user root get --prefix /
  With a page of the runs for browsers, metrics for Prometheus, and health for probes:
    rallypoint serve --http 0.0.0.0:9480
  On a free port, written to a file for a script:
    rallypoint serve --listen 127.0.0.1:0 --ready-file address
  A real etcd, which ends with this command; and a cluster of three, to try out the loss of a member:
    rallypoint serve --engine etcd
    rallypoint serve --engine etcd --members 3 --data-dir trial";

#[derive(Args)]
pub(super) struct Serve {
    /// Server implementation
    #[arg(long, default_value = "embedded")]
    engine: EngineKind,
    /// Number of cluster members, with --engine etcd; all but the first use free ports
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = members)]
    members: usize,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    embedded: Embedded,
}

/// Options of every engine.
#[derive(Args)]
struct Common {
    /// Address to listen on; port 0 picks a free port. With --engine etcd, clients on other hosts that read the
    /// member list need an address of this host here: for 0.0.0.0, etcd advertises 127.0.0.1
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:2379", value_parser = address)]
    listen: SocketAddr,
    /// Write the address to this file once the server answers; several addresses are separated by commas
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Stop at end of file on standard input, so that the server does not outlive the program that started it
    #[arg(long)]
    stop_at_eof: bool,
    /// Directory for data [default: in memory; with --engine etcd, a temporary directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EngineKind {
    /// Rallypoint's own server, in this process
    Embedded,
    /// A real etcd as a child process: TORCHELASTIC_ETCD_BINARY_PATH, or beside this program, or in PATH
    Etcd,
}

#[derive(Debug, ThisError)]
enum ServeCommandError {
    #[error("cannot write --ready-file {path}")]
    ReadyFile { path: PathBuf, source: std::io::Error },
}

/// Parses what `--listen` takes.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "give an IP address and a port, such as 127.0.0.1:2379, or 0.0.0.0:2379 for all interfaces"
            .to_owned()
    })
}

/// Parses what `--members` takes.
fn members(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(members) if (1..=MAX_MEMBERS).contains(&members) => Ok(members),
        _ => Err(format!("give a whole number from 1 to {MAX_MEMBERS}, best 3")),
    }
}

/// Refuses options that the chosen engine does not have.
pub(super) fn check(given: &ArgMatches) -> Result<(), String> {
    let typed = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let engine = given.get_one::<EngineKind>("engine");
    if engine != Some(&EngineKind::Etcd) {
        let alone = typed("members");
        return if alone { Err("--members wants --engine etcd".to_owned()) } else { Ok(()) };
    }
    let only_ours = Embedded::augment_args(clap::Command::new(""));
    let refused: Vec<String> = only_ours
        .get_arguments()
        .filter(|argument| typed(argument.get_id().as_str()))
        .filter_map(|argument| Some(format!("--{}", argument.get_long()?)))
        .collect();
    match refused.as_slice() {
        [] => Ok(()),
        refused => Err(format!("with --engine etcd there is no {}", refused.join(", no "))),
    }
}

impl Serve {
    pub(super) fn run(self) -> Result<(), AnyError> {
        raise_descriptor_limit(None);
        let ready_file = self.common.ready_file.clone();
        let serving: BoxFuture<'static, _> = match self.engine {
            EngineKind::Embedded => {
                let options = self.embedded.options(self.common.data_dir.clone())?;
                Box::pin(embedded::serve(options, self.embedded.http, self.common))
            }
            EngineKind::Etcd => Box::pin(etcd::serve(self.members, self.common)),
        };
        // A script that waits for the file must not find the one of an earlier server.
        let remove = || ready_file.as_deref().map(fs::remove_file);
        let _ = remove();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        // On a runtime thread, like the tasks that it wakes: a wake-up from outside the runtime costs more.
        let done = runtime.block_on(runtime.spawn(serving));
        let _ = remove();
        done.unwrap_or_else(|join| std::panic::resume_unwind(join.into_panic()))
    }
}

impl Common {
    /// Reports the address: from now on clients are served.
    fn announce(&self, scheme: &str, addresses: &[String]) -> Result<(), ServeCommandError> {
        let urls: Vec<String> =
            addresses.iter().map(|address| format!("{scheme}://{address}")).collect();
        // The reader may be gone.
        let _ = writeln!(std::io::stdout(), "listening on {}", urls.join(","));
        let Some(path) = &self.ready_file else { return Ok(()) };
        // Write and rename, so that a reader never sees a part of the file.
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".tmp");
        fs::write(&unfinished, format!("{}\n", addresses.join(",")))
            .and_then(|()| fs::rename(&unfinished, path))
            .map_err(|source| ServeCommandError::ReadyFile { path: path.clone(), source })
    }
}

/// Ready at the first SIGINT or SIGTERM, or at the end of standard input. The second signal has its default action,
/// for a user who does not want to wait for the drain.
fn shutdown(at_eof: bool) -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        let mut next = async move || {
            tokio::select! {
                _ = interrupt.recv() => 130,
                _ = terminate.recv() => 143,
            }
        };
        tokio::select! {
            _ = next() => {}
            () = end_of_input(), if at_eof => {}
        }
        tokio::spawn(async move {
            let code = next().await;
            #[expect(clippy::exit, reason = "asked twice, and this is the command itself")]
            std::process::exit(code);
        });
    })
}

/// Waits for the end of standard input, on a thread of its own: a read there cannot be cancelled.
async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}
