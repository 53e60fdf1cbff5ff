//! Checks of this host, and of the way to the server and to the other nodes of its job.
//!
//! `rallypoint doctor` runs all of them before a job, or beside one. A launcher that waits for its server, or
//! for a group, says what the same code finds. Each check measures first, within a time limit, and then decides: the decisions are pure
//! functions of what was measured, with a table of their cases.
//!
//! - `obstacle`, `place`, `way`: why no server answers; the host of an endpoint, and whether it is this one; both for a
//!   launcher that waits.
//! - `finding`: the result of a check.
//! - `host_name`, `endpoint`, `server`, `foreign`, `clock`, `address`, `dial_back`, `peers`, `descriptors`, `disk`, `devices`: the
//!   checks.
//! - `checks`: all of them at once.

mod obstacle;
mod place;
mod way;

#[cfg(feature = "cli")]
mod address;
#[cfg(feature = "cli")]
mod checks;
#[cfg(feature = "cli")]
mod clock;
#[cfg(feature = "cli")]
pub(crate) mod descriptors;
#[cfg(feature = "cli")]
mod devices;
#[cfg(feature = "cli")]
mod dial_back;
#[cfg(feature = "cli")]
mod disk;
#[cfg(feature = "cli")]
mod endpoint;
#[cfg(feature = "cli")]
mod finding;
#[cfg(feature = "cli")]
mod foreign;
#[cfg(feature = "cli")]
mod host_name;
#[cfg(feature = "cli")]
mod peers;
#[cfg(feature = "cli")]
mod server;

#[cfg(feature = "cli")]
pub(crate) use self::checks::{CheckedNode, run_checks, troubles_while_waiting};
#[cfg(feature = "cli")]
pub(crate) use self::devices::Devices;
#[cfg(feature = "cli")]
pub(crate) use self::disk::Directory;
#[cfg(feature = "cli")]
pub(crate) use self::finding::{Finding, Verdict};
pub(crate) use self::obstacle::Obstacle;
#[cfg(feature = "cli")]
pub(crate) use self::place::within_time;
pub(crate) use self::way::way;
