//! `rallypoint reopen`: opens a closed run again.

use clap::Args;
use rallypoint_core::agent::{Operation, OperatorAction};
use rallypoint_core::rendezvous::{Operator, OperatorStep};

use super::confirm::{author, confirm};
use super::server::ServerArgs;
use super::{block_on, print};
use crate::cli::AnyError;
use crate::util::clock::display_time;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
A closed run refuses nodes for two hours. This command opens it again, so that nodes can join;
round numbers continue from the last round. `rallypoint run --reopen` does the same when a job
starts.

Examples:
  rallypoint reopen --rdzv-endpoint head:29400 job-7
  rallypoint reopen --rdzv-endpoint etcd1:2379,etcd2:2379 --rdzv-conf user=ops,password_file=/etc/etcd.password job-7

Asks on a terminal before it does anything; without a terminal it needs --yes.

Exit codes: 0 the run is open again; 1 it was not closed, or no server answers; 2 the command
line is wrong.";

#[derive(Debug, Args)]
pub(crate) struct Reopen {
    /// Run id
    #[arg(value_name = "RUN")]
    run_id: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Reopen {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        let Self { run_id, server, yes } = self;
        block_on(async {
            let server = server.connect(Some(&run_id)).await?;
            let (keys, by, at) = (server.keys(&run_id), author(), Some(display_time()));
            let operator = Operator::new(&keys, by.clone(), at);
            let found = server.client.txn(operator.read()).await?;
            if let OperatorStep::Send(_) = operator.reopen(&found) {
                confirm(&format!("Open run {run_id:?} again?"), yes)?;
            }
            match server.operate(&operator, |found| operator.reopen(found)).await? {
                None => {}
                Some(OperatorStep::Unreadable(error)) => return Err(error.into()),
                Some(_) => {
                    let not = format!("run {run_id:?} is not over, so there is nothing to open");
                    return Err(not.into());
                }
            }
            let round = server.status(&run_id).await?.round;
            let (operation, reason) = (Operation::Reopen, String::new());
            server.record(&keys, &OperatorAction { operation, by, reason, round, at }).await?;
            print(&format!("run {run_id:?} is open again\n"))
        })
    }
}
