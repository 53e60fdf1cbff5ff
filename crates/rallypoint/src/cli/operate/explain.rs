//! `rallypoint explain`: a run in sentences.

use clap::Args;
use rallypoint_core::status::explain;
use serde_json::json;

use super::server::ServerArgs;
use super::status::known;
use super::{block_on, print, text};
use crate::cli::AnyError;
use crate::util::clock::display_time;

/// The text after the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
Says in what state the run is and since when, what it waits for and which nodes are missing, why
its last rounds began, which failure was the last, and what would help.

Examples:
  rallypoint explain --rdzv-endpoint head:29400 job-7
  rallypoint explain --rdzv-endpoint head:29400 job-7 --json

Exit codes: 0 done; 1 the server has no such run, or does not answer; 2 the command line is
wrong.";

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Run id
    #[arg(value_name = "RUN")]
    run_id: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON: docs/reference/status.md has the fields
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<(), AnyError> {
        block_on(async {
            let server = self.server.connect(Some(&self.run_id)).await?;
            let status = server.status(&self.run_id).await?;
            let sentences = explain(&status, display_time());
            match self.json {
                false => print(&text::sentences(&sentences))?,
                true => {
                    let run = &self.run_id;
                    let told = json!({ "format": 1, "run": run, "sentences": sentences });
                    print(&format!("{told}\n"))?;
                }
            }
            known(&status)
        })
    }
}
