//! `rallypoint status`: the runs of a server, or the nodes of a run.

use std::collections::BTreeMap;

use clap::Args;
use rallypoint_core::kv::LeaseId;
use rallypoint_core::status::{LeaseMargin, RunStatus};
use serde_json::json;

use super::server::{RunServer, ServerArgs};
use super::{block_on, print, text, watch};
use crate::cli::AnyError;
use crate::runs::{RunView, is_known};
use crate::util::clock::display_time;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
Without RUN, one line for each run of the server: its state, its nodes (3/4 +1 spare: three of
four, one more stands by), the restarts left, and a reason in one phrase. With RUN, a line for
each node, for members that are lost, and for nodes that are missing. `rallypoint explain RUN`
says the same in sentences, with what would help.

Examples:
  rallypoint status --rdzv-endpoint head:29400
  rallypoint status --rdzv-endpoint head:29400 job-7 --watch
  rallypoint status --rdzv-endpoint etcd1:2379,etcd2:2379 --rdzv-conf user=ops,password_file=/etc/etcd.password --json

Looking changes nothing on the server. RALLYPOINT_SECRET is the secret of a job that has one.

Exit codes: 0 done; 1 the server has no such run, or does not answer; 2 the command line is
wrong.";

#[derive(Debug, Args)]
pub(crate) struct StatusCommand {
    /// Run id; without it, all runs of the server
    #[arg(value_name = "RUN")]
    run_id: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    /// Follow changes until interrupted: redraws a terminal, and otherwise prints again after each change
    #[arg(long)]
    watch: bool,
    /// Print JSON: docs/reference/status.md has the fields
    #[arg(long)]
    json: bool,
}

impl StatusCommand {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        block_on(async {
            let run = self.run_id.as_deref();
            let server = self.server.connect(run).await?;
            if self.watch {
                return watch::follow(&server, run, self.json).await;
            }
            let view = View::read(&server, run).await?;
            print(&view.show(self.json)?)?;
            view.known()
        })
    }
}

/// What is shown: all runs, or one.
pub(super) enum View {
    Runs(Vec<RunStatus>),
    Run(Box<RunView>),
}

impl View {
    pub(super) async fn read(server: &RunServer, run: Option<&str>) -> Result<Self, AnyError> {
        Ok(match run {
            Some(run) => Self::Run(Box::new(server.run(run).await?)),
            None => Self::Runs(server.statuses().await?),
        })
    }

    /// The leases of the nodes that are shown.
    pub(super) fn leases(&self) -> Vec<LeaseId> {
        match self {
            Self::Run(run) => run.leases(),
            Self::Runs(_) => Vec::new(),
        }
    }

    /// Takes margins that were read later.
    pub(super) fn set_margins(&mut self, margins: &BTreeMap<LeaseId, LeaseMargin>) {
        if let Self::Run(run) = self {
            run.set_margins(margins);
        }
    }

    /// The text, or one line of JSON.
    pub(super) fn show(&self, json: bool) -> Result<String, AnyError> {
        let now = display_time();
        Ok(match (self, json) {
            (Self::Runs(runs), false) => text::runs(runs, now),
            (Self::Run(run), false) => text::run(&run.status, now),
            (Self::Runs(runs), true) => format!("{}\n", json!({ "format": 1, "runs": runs })),
            (Self::Run(run), true) => {
                format!("{}\n", json!({ "format": 1, "runs": [run.status] }))
            }
        })
    }

    /// A run that the server does not know is an error.
    fn known(&self) -> Result<(), AnyError> {
        match self {
            Self::Run(run) => known(&run.status),
            Self::Runs(_) => Ok(()),
        }
    }
}

/// A run that the server does not know is an error.
pub(super) fn known(run: &RunStatus) -> Result<(), AnyError> {
    if !is_known(run) {
        let run = &run.run;
        return Err(format!(
            "the server has no run {run:?}; without a run, rallypoint status lists all of them"
        )
        .into());
    }
    Ok(())
}
