//! The clock that leases and deadlines of fencing are counted on, in every process of a host alike.

use std::time::Duration;

use rallypoint_core::kv::Time;
use rustix::time::{ClockId, clock_gettime};

/// This moment, on a clock that nobody can set and that goes on while the machine is suspended. It is the same in
/// all processes of a host, so one may tell another when something must have happened.
pub(crate) fn boot_time() -> Time {
    // Elsewhere the monotonic clock is the nearest there is; on Linux it stands still in a suspended
    // machine, while the server's does not.
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs() {
        let before = boot_time();
        std::thread::sleep(Duration::from_millis(2));
        assert!(boot_time() - before >= Duration::from_millis(2));
    }
}
