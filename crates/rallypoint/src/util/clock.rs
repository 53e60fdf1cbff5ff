//! The clock of leases and fencing deadlines, which all processes of a host share; and the time of day, for display.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rallypoint_core::kv::Time;
use rallypoint_core::rendezvous::documents::DisplayTime;
use rustix::time::{ClockId, clock_gettime};

/// The current time on a clock that cannot be set and that runs while the host is suspended. All processes of a host
/// share it, so that one can pass a deadline to another.
pub(crate) fn boot_time() -> Time {
    // Other systems have no such clock, and the monotonic clock comes nearest. On Linux the monotonic clock
    // stands still while the host is suspended, and the server's clock does not.
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let now = clock_gettime(CLOCK);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The time of day. Documents hold it for people to read, and nothing compares it (invariant A5).
pub(crate) fn display_time() -> DisplayTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    DisplayTime::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
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
