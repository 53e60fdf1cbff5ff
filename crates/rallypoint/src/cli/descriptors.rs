//! How many connections this process may have, and whether that is enough.

use crate::process;

/// What a process has open besides connections.
const BESIDES: u64 = 64;

/// Raises the limit of open descriptors as far as it goes, and says so if it is not enough for so many connections.
pub(super) fn raise_descriptor_limit(connections: Option<u64>) {
    match process::raise_descriptor_limit() {
        Err(error) => tracing::warn!(%error, "the limit of open descriptors stays as it is"),
        Ok(Some(limit))
            if connections.is_some_and(|needed| limit < needed.saturating_add(BESIDES)) =>
        {
            let needed = connections.map_or(0, |needed| needed.saturating_add(BESIDES));
            tracing::warn!(
                limit,
                needed,
                "too few descriptors may be open if this node serves the others: raise the hard limit \
                 (`ulimit -Hn`, LimitNOFILE= of systemd, `--ulimit nofile=` of docker)"
            );
        }
        Ok(_) => {}
    }
}
