//! Unique random numbers: ids of nodes and of leases, and tokens.
//!
//! `fastrand` seeds itself with the time since the boot and the number of the thread, so that two hosts that
//! boot together may draw the same numbers. That is good enough for backoff, and not for ids.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A random number from the operating system.
pub(crate) fn number() -> u64 {
    let mut bytes = [0; 8];
    // A request of this size is served whole, or not at all if a signal arrives first.
    while let Err(error) = getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        // As in the standard library: every supported kernel has this call.
        assert!(error == Errno::INTR, "the operating system has no random numbers: {error}");
    }
    u64::from_ne_bytes(bytes)
}

/// A random id of a lease, which must be positive.
pub(crate) fn lease_id() -> i64 {
    i64::try_from(number() >> 1).unwrap_or(i64::MAX).max(1)
}

/// A token that cannot be guessed.
pub(crate) fn token() -> String {
    format!("{:032x}", name())
}

/// A random number of 128 bits, for names that any number of hosts draw at the same time.
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
