//! The keys that the agents of a group use inside the store of its round.
//!
//! The names below `torchelastic/` are those of PyTorch's agent, and those below `rallypoint/` are our own.

/// The prefix of the barrier at which agents wait for each other before they exit.
pub const EXIT_BARRIER: &str = "torchelastic/agent/terminal_state";

/// The key at which a plugged-in agent finds whether the round begins.
pub const DECISION: &str = "rallypoint/decision";

/// The ports that the rank-0 node holds for the workers of the round.
pub const PORTS: &str = "rallypoint/ports";

/// The role, rank and number of workers of a node.
pub fn role_info(node_rank: u32) -> String {
    format!("torchelastic/role_info/{node_rank}")
}

/// The ranks that the rank-0 node assigned to the workers of a node.
pub fn assigned_ranks(node_rank: u32) -> String {
    format!("torchelastic/assigned_ranks/{node_rank}")
}

/// The arrival of a node at the [exit barrier](EXIT_BARRIER).
pub fn exit_barrier_done(node_rank: u32) -> String {
    format!("{EXIT_BARRIER}/done/{node_rank}")
}

/// The arrival of all nodes at the [exit barrier](EXIT_BARRIER).
pub fn exit_barrier_all_done() -> String {
    format!("{EXIT_BARRIER}/all_done")
}

/// The arrival of a plugged-in agent in the round.
pub fn arrived(node_rank: u32) -> String {
    format!("rallypoint/arrived/{node_rank}")
}

/// Where the workers of a node are, at a [hang](crate::agent::HangRequest) of the round.
pub fn stacks(hang: u64, node_rank: u32) -> String {
    format!("rallypoint/stacks/{hang}/{node_rank}")
}
