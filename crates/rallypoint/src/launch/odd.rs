//! The node that is to blame for a hang, as the agent of another launcher tells it: in the words of `rallypoint run`, but
//! without its options.

use rallypoint_core::agent::OnHang;
use rallypoint_core::agent::stacks::OddNodes;

use super::hangs;
use crate::log_target::LAUNCH;

/// Logs which nodes are to blame for a hang, and what helps: nothing follows by itself.
pub(crate) fn log_odd_of_foreign(odd: &OddNodes, run_id: &str) {
    // The words for a job that restarts name no option.
    hangs::log_odd(odd, OnHang::Restart { min_nodes: 0 }, run_id);
    if let Some(node) = odd.nodes.first() {
        tracing::warn!(
            target: LAUNCH,
            "`rallypoint evict {run_id} {}` lets the job go on without it", node.id
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rallypoint_core::agent::stacks::OddNode;

    use super::super::console::Console;
    use super::*;

    fn said(odd: &OddNodes) -> String {
        let (console, _, error) = Console::shown(false);
        let console = Arc::new(console);
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(console.clone()).finish();
        tracing::subscriber::with_default(log, || log_odd_of_foreign(odd, "job7"));
        console.flush();
        error.text()
    }

    #[test]
    fn the_odd_node_is_named_with_the_command_that_evicts_it() {
        let nodes = vec![OddNode { id: "gpu5-1-a".into(), host: "gpu5".into() }];
        let said = said(&OddNodes { nodes, reason: "3 of 4 ranks are elsewhere".into() });
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].ends_with("the odd node is gpu5: 3 of 4 ranks are elsewhere"), "{said}");
        let evict = "`rallypoint evict job7 gpu5-1-a` lets the job go on without it";
        assert!(lines[1].ends_with(evict), "{said}");
        assert!(!said.contains("--on-hang"), "torchrun has no such option: {said}");
    }

    #[test]
    fn a_hang_that_nobody_is_to_blame_for_says_why() {
        let reason = "all ranks are at the same place".to_owned();
        let said = said(&OddNodes { nodes: Vec::new(), reason });
        let words =
            "no node is to blame, and the job stays as it is: all ranks are at the same place\n";
        assert!(said.ends_with(words) && said.lines().count() == 1, "{said}");
    }
}
