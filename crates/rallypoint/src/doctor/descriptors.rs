//! The limit of open descriptors, against what a job may need on one node.

use super::finding::Finding;

const CHECK: &str = "descriptors";

/// Descriptors that a process has open besides connections.
const BESIDES: u64 = 64;

/// What helps.
pub(crate) const REMEDY: &str =
    "raise the hard limit (`ulimit -Hn`, LimitNOFILE= of systemd, `--ulimit nofile=` of docker)";

/// The connections of a node that runs the server and has rank 0: each node has one to both, and each worker one to
/// the store of rank 0.
pub(crate) fn connections(nodes: usize, local_workers: u32) -> u64 {
    let of_a_node = u64::from(local_workers) + 2;
    u64::try_from(nodes).unwrap_or(u64::MAX).saturating_mul(of_a_node)
}

/// The descriptors that a process with this number of connections needs.
pub(crate) fn needed(connections: u64) -> u64 {
    connections.saturating_add(BESIDES)
}

/// Whether the hard limit suffices, if this node runs the server or has rank 0. The launcher raises the soft one.
pub(super) fn judge(
    hard_limit: Option<u64>,
    nodes: usize,
    local_workers: u32,
    serves: bool,
) -> Finding {
    let needed = needed(connections(nodes, local_workers));
    let what = format!(
        "--nnodes {nodes} and --nproc-per-node {local_workers} need up to {needed} open descriptors on one node"
    );
    match hard_limit {
        None => Finding::ok(CHECK, format!("{what}, and there is no limit.")),
        Some(limit) if limit >= needed => {
            Finding::ok(CHECK, format!("{what}, and the hard limit is {limit}."))
        }
        Some(limit) => {
            let message = format!("{what}, and the hard limit is {limit}.");
            let remedy = format!("On this node, {REMEDY}");
            match serves {
                true => Finding::fail(CHECK, message + " This host runs the server.", remedy),
                false => Finding::warn(
                    CHECK,
                    message + " It is too low if this node has rank 0.",
                    remedy,
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn the_limit_should_suffice_for_a_connection_of_each_worker() {
        for (limit, nodes, workers, serves, verdict) in [
            (None, 4096, 8, true, Verdict::Ok),
            (Some(1024), 64, 8, true, Verdict::Ok),
            (Some(704), 64, 8, true, Verdict::Ok),
            (Some(703), 64, 8, true, Verdict::Fail),
            (Some(703), 64, 8, false, Verdict::Warn),
            (Some(u64::MAX), usize::MAX, u32::MAX, true, Verdict::Ok),
        ] {
            let found = judge(limit, nodes, workers, serves);
            assert_eq!(found.verdict, verdict, "{}", found.message);
        }
    }
}
