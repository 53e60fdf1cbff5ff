//! `rallypoint close`: ends a run for all of its nodes.

use clap::Args;
use rallypoint_core::agent::{Operation, OperatorAction};
use rallypoint_core::rendezvous::documents::RunOutcome;
use rallypoint_core::rendezvous::{Operator, OperatorStep};

use super::confirm::{author, confirm};
use super::server::ServerArgs;
use super::status::known;
use super::{block_on, print, text};
use crate::cli::AnyError;
use crate::util::clock::display_time;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
All nodes of the run stop their workers and exit with 1, and say who closed the run and why. For
two hours no node can join it, unless `rallypoint reopen` opens it again.

Examples:
  rallypoint close --rdzv-endpoint head:29400 job-7 --reason 'the learning rate is wrong'
  rallypoint close --rdzv-endpoint head:29400 job-7 --reason 'maintenance of rack 2' --yes

Asks on a terminal before it does anything; without a terminal it needs --yes.

Exit codes: 0 the run is closed; 1 there is no such run, it was closed before, or no server
answers; 2 the command line is wrong.";

#[derive(Debug, Args)]
pub(crate) struct Close {
    /// Run id
    #[arg(value_name = "RUN")]
    run_id: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Why, in words: every node of the run says it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Close {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        let Self { run_id, server, reason, yes } = self;
        block_on(async {
            let server = server.connect(Some(&run_id)).await?;
            let status = server.status(&run_id).await?;
            known(&status)?;
            let nodes = match status.nodes.len() {
                1 => "1 node".to_owned(),
                nodes => format!("{nodes} nodes"),
            };
            confirm(&format!("Close run {run_id:?}, and stop the workers of {nodes}?"), yes)?;
            let (keys, by, at) = (server.keys(&run_id), author(), Some(display_time()));
            let operator = Operator::new(&keys, by.clone(), at);
            let close = |found: &_| operator.close(found, RunOutcome::Failed, &reason);
            match server.operate(&operator, close).await? {
                None => {}
                Some(OperatorStep::Closed(closed)) => {
                    let by = text::printable(&closed.by.to_string());
                    return Err(format!("run {run_id:?} was closed before, by {by}").into());
                }
                Some(OperatorStep::Unreadable(error)) => return Err(error.into()),
                Some(_) => return Err(format!("the server has no run {run_id:?}").into()),
            }
            let (operation, round) = (Operation::Close, status.round);
            let action = OperatorAction { operation, by, reason, round, at };
            server.record(&keys, &action).await?;
            print(&format!("run {run_id:?} is closed\n"))
        })
    }
}
