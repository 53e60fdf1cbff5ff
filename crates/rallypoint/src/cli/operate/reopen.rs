//! `rallypoint reopen`: opens a closed run again, or lets a run go on without a quorum of its last group.

use clap::Args;
use rallypoint_core::agent::{Operation, OperatorAction};
use rallypoint_core::rendezvous::{Operator, OperatorStep};
use rallypoint_core::status::RunStatus;

use super::confirm::{author, confirm};
use super::server::ServerArgs;
use super::text::printable;
use super::{block_on, print};
use crate::cli::AnyError;
use crate::util::clock::display_time;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
A closed run refuses nodes for two hours. This command opens it again, so that nodes can join;
round numbers continue from the last round. `rallypoint run --reopen` does the same when a job
starts.

Where hosts succeed each other as servers (--rdzv-endpoint a,b,c), a group forms only with more than
half of the last one. A run that has lost more waits. If you know that the missing nodes are gone,
--force lets the group form without them. If they still run somewhere, there are two groups then,
which may overwrite each other's checkpoints. The command does not wait for leases less: workers of
the last group have stopped by the time that a new one forms, where clocks go right.

Examples:
  rallypoint reopen --rdzv-endpoint head:29400 job-7
  rallypoint reopen --rdzv-endpoint a,b,c --force --reason 'rack 2 has burnt' job-7
  rallypoint reopen --rdzv-endpoint etcd1:2379,etcd2:2379 --rdzv-conf user=ops,password_file=/etc/etcd.password job-7

Asks on a terminal before it does anything; without a terminal it needs --yes.

Exit codes: 0 the run is open again, or goes on; 1 it was not closed and, with --force, does not
wait for a quorum, or no server answers; 2 the command line is wrong.";

#[derive(Debug, Args)]
pub(crate) struct Reopen {
    /// Run id
    #[arg(value_name = "RUN")]
    run_id: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Also let the run go on without a quorum of its last group
    #[arg(long)]
    force: bool,
    /// Why, in words: it is recorded with your name
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl Reopen {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        let Self { run_id, server, force, reason, yes } = self;
        block_on(async {
            let server = server.connect(Some(&run_id)).await?;
            let (keys, by, at) = (server.keys(&run_id), author(), Some(display_time()));
            let operator = Operator::new(&keys, by.clone(), at);
            let found = server.client.txn(operator.read()).await?;
            let lack = operator.lack(&found);
            let command = |found: &_| match force {
                true => operator.force(found, lack),
                false => operator.reopen(found),
            };
            let status = server.status(&run_id).await?;
            if let OperatorStep::Send(_) = command(&found) {
                confirm(&question(&run_id, &status), yes)?;
            }
            match server.operate(&operator, command).await? {
                None => {}
                Some(OperatorStep::Unreadable(error)) => return Err(error.into()),
                Some(OperatorStep::OtherLack) => {
                    return Err(format!(
                        "run {run_id:?} waits for another group now; `rallypoint explain` says for which. Nothing was changed"
                    )
                    .into());
                }
                Some(OperatorStep::NoRun) => {
                    return Err(format!("the server has no run {run_id:?}").into());
                }
                Some(_) => return Err(nothing_to_do(&run_id, &status, force).into()),
            }
            let (operation, done) = match status.lacks_quorum {
                None => (Operation::Reopen, "is open again"),
                Some(_) => (Operation::Overrule, "goes on without the rest of its last group"),
            };
            let round = status.round;
            server.record(&keys, &OperatorAction { operation, by, reason, round, at }).await?;
            print(&format!("run {run_id:?} {done}\n"))
        })
    }
}

/// What the operator is asked.
fn question(run_id: &str, status: &RunStatus) -> String {
    match &status.lacks_quorum {
        None => format!("Open run {run_id:?} again?"),
        Some(lack) => {
            let lack = printable(lack);
            format!(
                "Run {run_id:?} waits: {lack}. If the missing nodes still run somewhere, there are two groups then. \
                 Let it go on without them?"
            )
        }
    }
}

/// Why the command does nothing.
fn nothing_to_do(run_id: &str, status: &RunStatus, force: bool) -> String {
    match (&status.lacks_quorum, force) {
        (None, false) => format!("run {run_id:?} is not over, so there is nothing to open"),
        (None, true) => format!(
            "run {run_id:?} is not over and does not wait for a quorum of its last group, so there is nothing to force; \
             `rallypoint explain` says what it waits for"
        ),
        (Some(lack), _) => {
            let lack = printable(lack);
            format!(
                "run {run_id:?} is not over, but waits: {lack}. If the missing nodes are gone for good, --force lets it \
                 go on without them"
            )
        }
    }
}
