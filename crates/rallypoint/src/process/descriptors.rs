//! The limit of open descriptors: raised for this process, unchanged for its children.
//!
//! Every node of a job is a connection to its server, and every worker one to rank 0's store, so the usual soft limit
//! of 1,024 is soon reached. A child does not get the raised one: programs that use `select` cannot live with
//! descriptors above 1,023.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before it was raised: empty until it is, `None` if there was no soft limit.
static BEFORE: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of open descriptors to the hard limit. Children get the former soft limit.
///
/// Returns the new limit, or `None` without a limit.
///
/// # Errors
/// The system call failed.
pub fn raise_descriptor_limit() -> io::Result<Option<u64>> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
        // A second call finds the raised limit, which must not replace the former one.
        BEFORE.get_or_init(|| current);
    }
    Ok(maximum)
}

/// The soft limit of a child, if it differs from the limit of this process.
pub(super) fn of_children() -> Option<u64> {
    BEFORE.get().copied().flatten()
}

/// Sets the soft limit of this process, which is about to become another program.
pub(super) fn lower_to(soft: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Best effort: most programs work with the higher limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum });
}
