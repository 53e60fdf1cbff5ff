//! The doctor's checks of this host, run by a launcher that has waited long for its first group.

use std::future::Future;
use std::time::Duration;

use tokio::time::sleep;

use super::job::{JobSpec, LogDirectory};
use crate::doctor::{CheckedNode, Directory, Finding, troubles_while_waiting, within_time};
use crate::embedded::{ThisHost, runtime_directory};
use crate::log_target::LAUNCH;
use crate::util::blocking::blocking;

/// Most groups have formed by then.
const AFTER: Duration = Duration::from_secs(20);

/// The checks of a thousand launchers that were started together are spread over some seconds: each asks the server to
/// connect to its host.
const SPREAD_PER_NODE: Duration = Duration::from_millis(5);

/// What the doctor checks for this job, without the devices.
pub(crate) fn node_of(job: &JobSpec, host: ThisHost) -> CheckedNode {
    let logs = match &job.logs.directory {
        LogDirectory::At(path) => Some(path.clone()),
        LogDirectory::Temporary | LogDirectory::Nowhere => None,
    };
    let logs = logs.map(|path| Directory { used_for: "log files", path, named_by: "--log-dir" });
    let temporary = Directory {
        used_for: "temporary files, and log files without --log-dir",
        path: std::env::temp_dir(),
        named_by: "TMPDIR",
    };
    let runtime = Directory {
        used_for: "notes of the server",
        path: runtime_directory(),
        named_by: "XDG_RUNTIME_DIR",
    };
    let mut directories: Vec<Directory> = logs.into_iter().chain([temporary]).collect();
    if directories.iter().all(|directory| directory.path != runtime.path) {
        directories.push(runtime);
    }
    CheckedNode {
        host,
        has_run_id: true,
        local_workers: job.agent.local_workers,
        rendezvous: job.rendezvous.clone(),
        devices: None,
        directories,
        asks_peers: true,
    }
}

/// Waits, and then checks this host. Returns what deserves a look. Dropping the future ends the checks.
pub(super) fn later(job: &JobSpec) -> impl Future<Output = Vec<Finding>> + Send + 'static {
    let job = job.clone();
    async move {
        let nodes = u32::try_from(job.rendezvous.parameters.max_nodes).unwrap_or(u32::MAX);
        sleep(AFTER + SPREAD_PER_NODE.saturating_mul(nodes).mul_f64(fastrand::f64())).await;
        let host = blocking(|| within_time(ThisHost::look())).await;
        // The launcher itself tells of the other nodes that it does not reach.
        let node = CheckedNode { asks_peers: false, ..node_of(&job, host) };
        troubles_while_waiting(&node).await
    }
}

/// Logs the findings, and names their checks for those who see only what the node waits for; nothing if all is well.
pub(super) fn report(findings: &[Finding]) -> Option<String> {
    for Finding { message, remedy, .. } in findings {
        let remedy = remedy.as_ref().map(|remedy| format!(" {remedy}.")).unwrap_or_default();
        tracing::warn!(target: LAUNCH, "while this node waits: {message}{remedy}");
    }
    let mut checks: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
    checks.dedup();
    (!checks.is_empty()).then(|| format!("rallypoint doctor warns of {}", checks.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_each_check_once() {
        let found = |check| Finding::warn(check, "It is low.", "Raise it");
        assert_eq!(report(&[]), None);
        let report = report(&[found("disk"), found("disk"), found("descriptors")]);
        assert_eq!(report.as_deref(), Some("rallypoint doctor warns of disk, descriptors"));
    }
}
