//! `rallypoint reopen`: begins a run anew that is over.

use std::io::Write;

use clap::Args;

use super::AnyError;
use super::run::secret::VARIABLE;
use crate::embedded::{RALLYPOINT_BACKEND, RendezvousConfig, ThisHost};
use crate::rendezvous::{
    EtcdRendezvousHandler, PASSWORD, RendezvousHandler, RendezvousParameters, add_password,
    parse_config,
};

/// What follows the options.
pub(super) const AFTER_HELP: &str = "\
A run that is over refuses nodes of its name for two hours. After this, they meet in it again; its rounds go on from
the last. `rallypoint run --reopen` does the same for a job that begins.

Examples:
  rallypoint reopen --rdzv-endpoint head:29400 job-7
  rallypoint reopen --rdzv-endpoint etcd1:2379,etcd2:2379 --rdzv-conf user=ops,password_file=/etc/etcd.password job-7

Exit codes: 0 the run is open again; 1 it was not over, or no server answers; 2 the command line is wrong.";

/// Seconds for which a server may be late.
const PATIENCE: &str = "10";

#[derive(Debug, Args)]
pub(super) struct Reopen {
    /// The name of the run
    #[arg(value_name = "RUN")]
    run_id: String,
    /// Its server: one host, at port 29400 unless given; or the members of an etcd, at port 2379
    #[arg(long, value_name = "HOST[:DEFAULT_PORT],...")]
    rdzv_endpoint: String,
    /// Options of the backend, as for rallypoint run
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
        let secret = std::env::var(VARIABLE).ok().filter(|secret| !secret.is_empty());
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
