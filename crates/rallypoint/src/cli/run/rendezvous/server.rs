//! Whether this host runs the server, by what the launcher was told.

use super::place::Origin;
use super::{Known, Notes};
use crate::cli::run::error::RunError;
use crate::embedded::{Question, ServerPlacement};
use crate::rendezvous::Endpoint;

/// Decides it for a backend that brings its server. `is_host` is what the user says.
pub(super) fn server_placement(
    known: &Known<'_>,
    endpoints: &[Endpoint],
    origin: Origin,
    is_host: Option<bool>,
    notes: &mut Notes,
) -> Result<ServerPlacement, RunError> {
    let [endpoint] = endpoints else {
        if is_host == Some(true) {
            return Err(RunError::Conflict {
                first: "is_host=true".to_owned(),
                second: "an --rdzv-endpoint of several hosts".to_owned(),
                fix: "several hosts are an etcd that is there already; name this host alone",
            });
        }
        return Ok(ServerPlacement::Elsewhere);
    };
    // A node that is alone has rank 0.
    let rank = known.node_rank.or_else(|| (known.nodes.max == 1).then_some(0));
    if let (Origin::Static, Some(rank)) = (origin, rank)
        && rank as usize >= known.nodes.max
    {
        let fix = format!("give a rank below the number of nodes, which is {}", known.nodes.max);
        return Err(RunError::invalid("--node-rank", rank.to_string(), fix));
    }
    let told = match (is_host, origin, rank) {
        (Some(told), ..) => Some(told),
        (None, Origin::Static | Origin::Scheduler, Some(rank)) => Some(rank == 0),
        _ => None,
    };
    let question = Question {
        endpoint,
        told,
        max_nodes: known.nodes.max,
        local_addr: known.options.local_addr.as_deref(),
        host: &known.host.here,
    };
    let (server, warning) = question.decide();
    notes.warnings.extend(warning);
    Ok(server)
}
