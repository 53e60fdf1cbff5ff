//! A launcher's agent: one node's policy between its rendezvous and its local workers.
//!
//! - [`Agent`]: the machine. It decides; whoever drives it runs the processes and talks to the others.
//! - [`Budget`]: how many restarts the whole job has used, as a document that all nodes share.
//! - [`placement`]: which workers have which ranks, as torchrun gives them.
//! - [`environment`]: what a worker finds in its environment.
//! - [`error_file`]: what a worker leaves behind when it fails.
//! - [`Ending`]: how it ends, and with which exit code.
//!
//! # The states
//!
//! ```text
//!             Begin                                          rendezvous failed
//!               |            .-------------------------------------------------------------.
//!               v            |                                                             |
//!   .------> Meeting --------'         ranks assigned          all exited 0                v
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
//! meeting begins. A signal to the launcher ends every state; where there are workers, by way of `Stopping`.
//!
//! # The policy
//!
//! - **A worker fails**: the others of this node are stopped at once, and one restart is asked for. The
//!   budget is the job's, and a round costs at most one, however many nodes fail in it. If it is used up,
//!   or the worker's exit code says that a restart is no use
//!   ([`Settings::no_restart_exit_code`]), the run is closed with host, rank and exit code.
//!   Workers that live only shortly are not started again at once for ever: from the second time on, the nodes whose
//!   workers failed pause before they meet again ([`Settings::restart_delay`]), and the others wait for them there.
//!   What would excuse the failure ends the pause, and so does everything that ends the job.
//! - **The group changes**: the workers are stopped and the node meets again; no restart is used. A new
//!   node can wait, so its coming is told to the workers first ([`Settings::notice`]), and however they
//!   exit in that time is no failure. The others cannot wait: a lost peer, a group that has gone ahead, a
//!   peer whose workers failed.
//! - **The session is lost**: the workers are dead before others may take this node's place. Then it meets
//!   again, as a new node; no restart is used.
//! - **A later round goes on without this node**: its workers are killed at once, for others may have its place.
//! - **A failure and a lost peer together**: workers fail when a peer dies, often a moment before the news
//!   of it. So news of a lost peer excuses a failure of the same round until the next group forms: the
//!   restart is given back. And a refusal, which would end the job, waits [`Settings::settle`] for such
//!   news; a restart that is granted waits for nothing.
//! - **All workers exited with 0**: the node waits at the exit barrier, since others may need what it
//!   hosts. It is done, and does not come back: if the others meet again meanwhile, they do so without it.
//!   So is it with torchrun, whose agent has nothing left to restart.
//!   When all are done it closes the run as done, and so it does when it has waited long enough
//!   ([`Settings::exit_barrier`]): were it to leave instead, the others would be disturbed by the loss of
//!   a member.
//! - **The run is closed**: as failed, the workers are stopped. As done, they are let finish; only no
//!   further group will form.
//! - **SIGTERM, with a notice**: the workers of all nodes are told how long they have. When the time is over, or they
//!   are gone, those of this node are stopped and it leaves; the others meet again without it.
//! - **Any other signal**: the workers get the same one, and the node leaves without closing the run. A second
//!   signal kills.
//! - **This node cannot go on** (no ranks, no start, workers that do not die): it leaves. A local error
//!   never closes the job for the others.
//!
//! # Exit codes
//!
//! | code | when |
//! |---|---|
//! | 0 | the workers of this node succeeded; or it was a spare; or the job was done without it |
//! | 1 | the job failed, here or elsewhere; or this node could not go on |
//! | 78, or what [`Settings::no_restart_exit_code`] says | a worker said that a restart is no use; on every node that was stopped for it |
//! | 128 + n | the launcher was told to stop by signal n |
//!
//! A command line that cannot be read is 2, but that is before there is an agent. torchrun says 1 for all of
//! the last three; a scheduler can make more of these.
//!
//! # Driving the machine
//!
//! Give it [`Input::Begin`], then everything that happens; do what its outputs say, in order; wake it when
//! [`Agent::next_wake`] says so. [`Output::Meet`] and [`Output::Leave`] call off whatever is still waited
//! for. [`Output::Finish`] comes once, and last, and nothing is made of inputs after it. Inputs carry their
//! round or their attempt, and one that comes late is ignored. News of the rendezvous (a group, a change, a
//! lost session, a closed run) must be given in the order in which it happened.

mod budget;
pub mod collateral;
mod ending;
pub mod environment;
pub mod error_file;
mod failure;
mod haste;
mod interface;
mod machine;
mod news;
pub mod placement;
mod why;

pub use self::budget::{Answer, Budget, Charge, Departure, Verdict};
pub use self::ending::{Closed, Closing, Ending, Others, Outcome, Trouble};
pub use self::failure::{Exit, Failure, signal_name};
pub use self::haste::RestartDelay;
pub use self::interface::{
    Change, EXIT_BARRIER, Exited, Group, Input, NoGroup, Output, SIGKILL, SIGTERM, Settings, Start,
};
pub use self::machine::Agent;
pub use self::news::{Membership, must_stop, news};
pub use self::why::Why;
