//! How many connections this process may have, and whether that is enough.

use std::sync::Once;

use rustix::process::{Resource, getrlimit};

use crate::log_target::CLI;
use crate::process;

/// What a process has open besides connections.
const BESIDES: u64 = 64;

/// How many times the connections that are known of may come: a worker may have several to the store.
const AT_MOST: u64 = 4;

/// Raises the limit of open descriptors as far as it goes, and says so once if it is not enough for so many
/// connections.
pub(super) fn raise_descriptor_limit(connections: Option<u64>) {
    static SAID: Once = Once::new();
    match process::raise_descriptor_limit() {
        Err(error) => {
            tracing::warn!(target: CLI, %error, "the limit of open descriptors stays as it is")
        }
        Ok(Some(limit))
            if connections.is_some_and(|needed| limit < needed.saturating_add(BESIDES)) =>
        {
            let needed = connections.map_or(0, |needed| needed.saturating_add(BESIDES));
            SAID.call_once(|| {
                tracing::warn!(
                    target: CLI,
                    limit,
                    needed,
                    "too few descriptors may be open if this node serves the others: raise the hard limit \
                     (`ulimit -Hn`, LimitNOFILE= of systemd, `--ulimit nofile=` of docker)"
                );
            });
        }
        Ok(_) => {}
    }
}

/// The same for a process whose children get its limit, unless it sees to it that they do not: only if the limit
/// might not be enough. Returns the soft limit that was there before, if it was raised.
pub fn make_room(connections: u64) -> Option<u64> {
    let soft = getrlimit(Resource::Nofile).current?;
    if connections.saturating_mul(AT_MOST).saturating_add(BESIDES) <= soft {
        return None;
    }
    raise_descriptor_limit(Some(connections));
    (getrlimit(Resource::Nofile).current != Some(soft)).then_some(soft)
}
