//! A launcher's agent: one node's policy between its rendezvous and its local workers.
//!
//! - [`Agent`]: the state machine. It decides; its driver runs the processes and talks to the other nodes.
//! - [`RestartBudget`]: the restarts that the job has used, in a document that all nodes share.
//! - [`membership_events`]: what a node's view of its group and run means for its agent. [`must_stop`] and
//!   [`num_nodes_waiting`] are the same for an agent that only needs to know whether its workers must stop.
//! - [`collateral`]: whether workers failed because of a lost peer.
//! - [`placement`]: the workers' ranks, assigned as torchrun assigns them.
//! - [`environment`]: the environment variables of a worker.
//! - [`placeholders`]: placeholders in the arguments of a worker's program.
//! - [`error_file`]: the file in which a worker explains its failure.
//! - [`run_at_end`]: whether a node that ends may close the run.
//! - [`HangPolicy`], [`stacks`]: workers that make no progress, and where the workers of all nodes are.
//! - [`NodeOutcome`]: how the node's part in the job ended, and the exit code. [`NodeExit`] says so to operators.
//!
//! # States
//!
//! ```text
//!             Begin                                          rendezvous failed
//!               |            .-------------------------------------------------------------.
//!               v            |                                                             |
//!   .---> Rendezvous --------'         ranks assigned          all exited 0                v
//!   |           | group formed       .-----------> Running ---------------> AtBarrier -> Finished
//!   |           v                    |             |    |                                  ^
//!   |        Placing ----------------'  new node,  |    | failure, lost peer or session,   |
//!   |           |                       notice > 0 |    | run closed, signal               |
//!   |<----------' the group changed                v    v                                  |
//!   |                                       Noticing -> Stopping --------------------------'
//!   |                                                      |  signal, run closed, no restart left
//!   '------------------------------------------------------'
//!      no worker is left: the group changed, or the budget allows a restart
//! ```
//!
//! Workers exist in `Running`, `Noticing` and `Stopping` only, and none of them is left before the next
//! rendezvous begins. A signal to the launcher ends every state; where workers exist, by way of `Stopping`.
//!
//! # Policy
//!
//! - **A worker fails**: the other workers of this node are stopped at once, and the node asks for one restart. The
//!   budget belongs to the job, and a round costs at most one restart, however many nodes fail in it. If the budget is
//!   exhausted, or the worker's exit code marks the failure as non-retryable
//!   ([`AgentSettings::no_restart_exit_code`]), the run is closed with host, rank and exit code.
//!   Restarts back off: from the second short life in a row on, a node whose workers failed pauses before the
//!   next rendezvous ([`AgentSettings::restart_backoff`]), and its peers wait for it there.
//!   An event that excuses the failure ends the pause, and so does every event that ends the job.
//! - **The group changes**: the workers are stopped and the node rejoins the rendezvous; no restart is used. A new
//!   node can wait, so the workers are notified before it joins ([`AgentSettings::notice`]), and an exit within the
//!   notice is no failure. Other changes cannot wait: a lost peer, a group that started the next round, a
//!   peer whose workers failed.
//! - **The session is lost**: the workers are dead before another node may take this node's rank. Then the node
//!   rejoins as a new node; no restart is used.
//! - **A later round forms without this node**: its workers are killed at once, because another node may have its rank.
//! - **A failure and a lost peer together**: workers fail when a peer dies, often a moment before the loss is
//!   detected. So a lost peer excuses a failure of the same round until the next group forms: the
//!   restart is refunded. And a refusal, which would end the job, waits [`AgentSettings::settle`] for such
//!   an event; a granted restart waits for nothing.
//! - **All workers exited with 0**: the node waits at the exit barrier, since its peers may need the store that it
//!   hosts. It does not rejoin: if its peers start another round meanwhile, they do so without it, as
//!   with torchrun, whose agent has nothing left to restart.
//!   When all nodes are done it closes the run as succeeded. It does the same when
//!   [`AgentSettings::exit_barrier`] has passed: leaving instead would look like a lost member to its peers.
//! - **The run is closed**: as failed, the workers are stopped. As succeeded, they may finish; no
//!   further group will form.
//! - **SIGTERM, with a notice**: the workers of all nodes are told how much time is left. When it has passed, or the
//!   workers have exited, this node stops its workers and leaves; its peers form a group without it.
//! - **Any other signal**: the workers get the same signal, and the node leaves without closing the run. A second
//!   signal kills.
//! - **The preflight command fails**, before the first rendezvous or before one that a failure of this node's workers
//!   caused: the node leaves, and its peers form a group without it.
//! - **An operator evicts this node**: its workers are stopped, and the node leaves without closing the run. Until it
//!   has, no other node takes its place.
//! - **No worker of this node makes progress** for [`HangPolicy::after`]: this node asks all nodes of the group for the
//!   stacks of their workers, by the document of the restart budget. Each node publishes its stacks in the round's
//!   store, and rank 0 reports which ranks are where. A hang is reported once; the next one needs progress first.
//!   The node whose report is in force says once that the hang is over, and a node that stays silent then reports the
//!   next one.
//!   With [`OnHang::Restart`] and odd nodes ([`stacks::OddNodes`]), rank 0 asks for a restart of the job and evicts
//!   them; or restarts them too, if fewer nodes than the job needs would be left. It is one restart of the
//!   budget, which no lost peer excuses; if none is left, the run is closed.
//! - **This node cannot continue** (no ranks, no start, workers that survive SIGKILL): it leaves. A local error
//!   never closes the job for the other nodes.
//!
//! # Exit codes
//!
//! | code | when |
//! |---|---|
//! | 0 | the workers of this node succeeded; or it was a spare; or the job finished without it |
//! | 1 | the job failed, here or elsewhere; or this node could not continue |
//! | 69 ([`UNFIT`]) | the preflight command failed, and the node did not join |
//! | 75 ([`SERVER_LOST`]) | the node had a group, and no server has answered since |
//! | 78, or [`AgentSettings::no_restart_exit_code`] | a worker failed with a non-retryable exit code; on every node that was stopped for it |
//! | 77 | an operator evicted this node, or a hang was its fault |
//! | 128 + n | signal n stopped the launcher |
//!
//! A wrong command line is 2, but that is before there is an agent. torchrun exits with 1 in all of
//! the last five cases; separate codes let a scheduler tell them apart.
//!
//! # Driving the agent
//!
//! Give it [`AgentInput::Begin`], then everything that happens; execute its outputs in order; wake it at
//! [`Agent::next_wake`]. [`AgentOutput::Rendezvous`] and [`AgentOutput::Leave`] cancel the request in
//! progress. [`AgentOutput::Finish`] comes once, and last, and later inputs have no effect. Inputs carry their
//! round or their attempt, and a late input is ignored. Events of the rendezvous (a group, a change, a
//! lost session, a closed run) must be given in the order in which they happened.

mod backoff;
pub mod collateral;
mod ending;
pub mod environment;
pub mod error_file;
mod events;
mod failure;
mod hang;
mod messages;
mod node_exit;
mod operator;
mod outcome;
pub mod placeholders;
pub mod placement;
mod restarts;
pub mod stacks;
mod state;
mod why;

pub use self::backoff::RestartBackoff;
pub use self::ending::{RunAtEnd, run_at_end};
pub use self::events::{KnownGroup, membership_events, must_stop, num_nodes_waiting};
pub use self::failure::{Exit, FailureOutput, WorkerFailure, signal_name};
pub use self::hang::{
    HangChange, HangFinding, HangOver, HangPolicy, HangRequest, HangRestart, HangWatch, OnHang,
};
pub use self::messages::{
    AgentInput, AgentOutput, AgentSettings, EXIT_BARRIER, Exited, GroupChange, NoGroup, NodeGroup,
    SIGKILL, SIGTERM, Start,
};
pub use self::node_exit::NodeExit;
pub use self::operator::{Operation, OperatorAction};
pub use self::outcome::{
    CloseReason, NodeError, NodeOutcome, PeersAtExit, RunClosure, RunResult, SERVER_LOST, UNFIT,
};
pub use self::restarts::{Departure, RestartAnswer, RestartBudget, RestartVerdict, RoundFailure};
pub use self::state::Agent;
pub use self::why::Why;
