//! Signal dispositions: signals that this process inherited as ignored, and signals that a child handles.

use std::fs;

use rustix::process::{Pid, Signal};

/// Whether this process ignores the signal.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    has(&status, "SigIgn:", signal)
}

/// Whether a process handles, ignores or blocks a signal, so that it does not die of it.
pub(super) fn is_expected(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    ["SigCgt:", "SigIgn:", "SigBlk:"].into_iter().any(|set| has(&status, set, signal))
}

/// Whether a signal is in one of the sets of a process's status.
pub(super) fn has(status: &str, set: &str, signal: Signal) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or_default();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_looked_up_in_its_set() {
        let status = "Name:\tx\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000010002\n";
        for (set, signal, expected) in [
            ("SigIgn:", Signal::INT, true),
            ("SigIgn:", Signal::CHILD, true),
            ("SigIgn:", Signal::TERM, false),
            ("SigBlk:", Signal::HUP, true),
            ("SigCgt:", Signal::HUP, false),
        ] {
            assert_eq!(has(status, set, signal), expected, "{set} {signal:?}");
        }
    }
}
