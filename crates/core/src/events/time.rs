//! Wall-clock time in words.

/// A time in milliseconds since 1970 as RFC 3339 writes it, in UTC.
///
/// ```
/// use rallypoint_core::events::rfc3339;
/// assert_eq!(rfc3339(951_782_400_007), "2000-02-29T00:00:00.007Z");
/// ```
pub fn rfc3339(unix_millis: u64) -> String {
    let (days, of_day) = (unix_millis / 86_400_000, unix_millis % 86_400_000);
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, milli) = (of_day / 1_000 % 60, of_day % 1_000);
    // The Gregorian calendar repeats every 400 years. A year that begins in March has its leap day at its end.
    let since_march_0000 = days + 719_468;
    let (era, of_era) = (since_march_0000 / 146_097, since_march_0000 % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The time in milliseconds since 1970 of a text that [`rfc3339`] wrote; `None` for other texts.
///
/// ```
/// use rallypoint_core::events::unix_millis;
/// assert_eq!(unix_millis("2000-02-29T00:00:00.007Z"), Some(951_782_400_007));
/// assert_eq!(unix_millis("yesterday"), None);
/// ```
pub fn unix_millis(text: &str) -> Option<u64> {
    let mut numbers = text.strip_suffix('Z')?.split(['-', 'T', ':', '.']).map(str::parse::<u64>);
    let mut next = |limit: u64| numbers.next()?.ok().filter(|number| *number <= limit);
    let (year, month, day) = (next(9_999)?, next(12)?.checked_sub(1)?, next(31)?.checked_sub(1)?);
    let (hour, minute, second, milli) = (next(23)?, next(59)?, next(59)?, next(999)?);
    // A year that begins in March, as above.
    let (year, month) = (year.checked_sub(u64::from(month < 2))?, (month + 10) % 12);
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(719_468)?;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000 + milli)
}

#[cfg(test)]
mod tests {
    use super::{rfc3339, unix_millis};

    #[test]
    fn a_time_is_read_as_it_was_written() {
        for day in 0..60_000 {
            let time = day * 86_400_000 + day * 7_919 % 86_400_000;
            assert_eq!(unix_millis(&rfc3339(time)), Some(time));
        }
        for wrong in ["", "Z", "1969-12-31T00:00:00.000Z", "2026-13-01T00:00:00.000Z", "2026-01-01"]
        {
            assert_eq!(unix_millis(wrong), None, "{wrong}");
        }
        assert_eq!(unix_millis("2026-00-01T00:00:00.000Z"), None);
        assert_eq!(unix_millis("99999999999999999999-01-01T00:00:00.000Z"), None);
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (789, "1972-02-29"),
            (10_957, "2000-01-01"),
            (20_454, "2026-01-01"),
            (20_818, "2026-12-31"),
            (47_541, "2100-03-01"),
        ] {
            assert_eq!(rfc3339(days * 86_400_000), format!("{date}T00:00:00.000Z"));
        }
        assert_eq!(rfc3339(86_399_999), "1970-01-01T23:59:59.999Z");
        assert!(rfc3339(u64::MAX).ends_with('Z'), "no time panics");
    }
}
