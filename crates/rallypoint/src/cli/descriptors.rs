//! The limit on this process's connections, and a warning if it is too low.

use std::sync::Once;

use rustix::process::{Resource, getrlimit};

use crate::doctor::descriptors::{REMEDY, needed};
use crate::log_target::CLI;
use crate::process;

/// The factor on the known number of connections: a worker may have several to the store.
const AT_MOST: u64 = 4;

/// Raises the limit of open descriptors to the hard limit, and warns once if that is too low for this number of
/// connections.
pub(super) fn raise_descriptor_limit(connections: Option<u64>) {
    static SAID: Once = Once::new();
    match process::raise_descriptor_limit() {
        Err(error) => {
            tracing::warn!(target: CLI, %error, "the limit of open descriptors stays as it is")
        }
        Ok(Some(limit)) if connections.is_some_and(|connections| limit < needed(connections)) => {
            let needed = connections.map_or(0, needed);
            SAID.call_once(|| {
                tracing::warn!(
                    target: CLI,
                    limit,
                    needed,
                    "too few descriptors may be open if this node runs the server: {REMEDY}"
                );
            });
        }
        Ok(_) => {}
    }
}

/// Raises the limit of a process whose children inherit it, only if it might be too low for this number of connections.
/// Returns the former soft limit, if it was raised, so that the caller can restore it in children.
pub fn make_room(connections: u64) -> Option<u64> {
    let soft = getrlimit(Resource::Nofile).current?;
    if needed(connections.saturating_mul(AT_MOST)) <= soft {
        return None;
    }
    raise_descriptor_limit(Some(connections));
    (getrlimit(Resource::Nofile).current != Some(soft)).then_some(soft)
}
