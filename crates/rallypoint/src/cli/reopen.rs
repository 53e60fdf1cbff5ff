//! `rallypoint reopen`: opens a closed run again.

use std::io::Write;

use clap::Args;

use super::AnyError;
use crate::config::RALLYPOINT_BACKEND;
use crate::embedded::{RendezvousConfig, ThisHost};
use crate::launch::job::SECRET;
use crate::rendezvous::{
    EtcdRendezvousHandler, PASSWORD, RendezvousHandler, RendezvousParameters, add_password,
    parse_config,
};

/// The text after the options in `--help`.
pub(super) const AFTER_HELP: &str = "\
A closed run refuses nodes for two hours. This command opens it again, so that nodes can join; round numbers continue
from the last round. `rallypoint run --reopen` does the same when a job starts.

Examples:
  rallypoint reopen --rdzv-endpoint head:29400 job-7
  rallypoint reopen --rdzv-endpoint etcd1:2379,etcd2:2379 --rdzv-conf user=ops,password_file=/etc/etcd.password job-7

Exit codes: 0 the run is open again; 1 it was not closed, or no server answers; 2 the command line is wrong.";

/// The time limit for reaching a server, in seconds.
const PATIENCE: &str = "10";

#[derive(Debug, Args)]
pub(super) struct Reopen {
    /// Run id
    #[arg(value_name = "RUN")]
    run_id: String,
    /// Rendezvous server: one host, on port 29400 by default, or the members of an etcd cluster, on port 2379
    #[arg(long, value_name = "HOST[:PORT],...")]
    rdzv_endpoint: String,
    /// Backend options, as for rallypoint run
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "", hide_default_value = true)]
    rdzv_conf: String,
}

impl Reopen {
    pub(super) fn run(self) -> Result<(), AnyError> {
        let Self { run_id, rdzv_endpoint, rdzv_conf } = self;
        let mut parameters =
            RendezvousParameters::new(RALLYPOINT_BACKEND, rdzv_endpoint, &run_id, 1, 1)?;
        parameters.config = parse_config(&rdzv_conf)?;
        add_password(&mut parameters.config, std::env::var(PASSWORD).ok());
        parameters.config.insert("is_host".to_owned(), "false".to_owned());
        parameters.config.entry("timeout".to_owned()).or_insert_with(|| PATIENCE.to_owned());
        let secret = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
        let config =
            RendezvousConfig::from_parameters(parameters, &ThisHost::look(), secret.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let reopened = runtime.block_on(async {
            let handler = EtcdRendezvousHandler::from_parameters(&config.parameters).await?;
            let reopened = handler.reopen().await?;
            handler.leave().await;
            Ok::<bool, AnyError>(reopened)
        })?;
        if !reopened {
            return Err(format!("run {run_id:?} is not over, so there is nothing to open").into());
        }
        writeln!(std::io::stdout(), "run {run_id:?} is open again")?;
        Ok(())
    }
}
