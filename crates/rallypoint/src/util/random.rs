//! Numbers that nobody else has: names of nodes and of leases.
//!
//! `fastrand` seeds itself with the time since the machine started and the number of the thread, so two hosts that
//! were switched on together may draw the same numbers. That is good enough for pauses, and not for names.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A number from the operating system's randomness.
pub(crate) fn number() -> u64 {
    let mut bytes = [0; 8];
    // So few bytes come all at once, or none where a signal came first.
    while let Err(error) = getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        // As in the standard library: no host that runs this has a kernel without.
        assert!(error == Errno::INTR, "the operating system has no random numbers: {error}");
    }
    u64::from_ne_bytes(bytes)
}

/// The id of a lease: they are positive.
pub(crate) fn lease_id() -> i64 {
    i64::try_from(number() >> 1).unwrap_or(i64::MAX).max(1)
}

/// A word that nobody can guess.
pub(crate) fn token() -> String {
    format!("{:032x}", name())
}

/// A number for what any number of hosts name at the same time.
pub(crate) fn name() -> u128 {
    u128::from(number()) << 64 | u128::from(number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_come_from_a_generator_that_could_agree_with_another() {
        let drawn = [0; 2].map(|_| {
            fastrand::seed(7);
            number()
        });
        assert_ne!(drawn[0], drawn[1]);
    }
}
