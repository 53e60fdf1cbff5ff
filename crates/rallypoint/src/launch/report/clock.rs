//! The wall-clock time, for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time as `2026-11-16 05:08:31 UTC`. A time before 1970 is shown as the start of 1970.
pub(super) fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day, this number of days after the start of 1970.
fn date(days: u64) -> (u64, u64, u64) {
    const IN_400_YEARS: u64 = 146_097;
    // Years that begin in March have the odd day at their end. 719,468 days before 1970 one of them began,
    // and with it a cycle of 400 years.
    let days = days + 719_468;
    let day = days % IN_400_YEARS;
    // Without the odd days: one in 4 years, none in 100, one in 400.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months of 31, 30, 31, 30 and 31 days have 153.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = days / IN_400_YEARS * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01 00:00:00 UTC");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut last = date(0);
        for days in 1..=200_000 {
            let (year, month, day) = date(days);
            let is_leap = year % 4 == 0 && year % 100 != 0 || year % 400 == 0;
            let lengths =
                [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            let length = |month: u64| lengths[month as usize - 1];
            let expected = match last {
                (year, 12, 31) => (year + 1, 1, 1),
                (year, month, day) if day == length(month) => (year, month + 1, 1),
                (year, month, day) => (year, month, day + 1),
            };
            assert_eq!((year, month, day), expected);
            last = expected;
        }
    }
}
