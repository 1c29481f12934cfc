//! Times that people can read.

const NS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// `unix_ns` nanoseconds since 1970 as `YYYY-MM-DD HH:MM:SS.mmm` in UTC.
///
/// ```
/// assert_eq!(deepxtrace_artifact::utc(1_764_547_199_999_000_000), "2025-11-30 23:59:59.999");
/// ```
#[must_use]
pub fn utc(unix_ns: i64) -> String {
    let seconds = unix_ns.div_euclid(NS);
    let millis = unix_ns.rem_euclid(NS) / 1_000_000;
    let (year, month, day) = civil(seconds.div_euclid(DAY));
    let second = seconds.rem_euclid(DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{millis:03}")
}

/// Year, month and day of a day since 1970-01-01, by the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    // Counted from 1 March of year 0, so that the leap day is the last of its year and 400 years
    // are a cycle of 146,097 days.
    let days = days + 719_468;
    let cycle = days.div_euclid(146_097);
    let day = days.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Months from March have 31, 30, 31, 30, 31 days, and again.
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + cycle * 400 + carry, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values by `date -u -d @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00.000"),
            (-1, "1969-12-31 23:59:59.000"),
            (951_782_400, "2000-02-29 00:00:00.000"),
            (951_868_800, "2000-03-01 00:00:00.000"),
            (1_709_164_799, "2024-02-28 23:59:59.000"),
            (1_735_689_599, "2024-12-31 23:59:59.000"),
            (4_107_542_400, "2100-03-01 00:00:00.000"),
        ] {
            assert_eq!(utc(seconds * NS), text);
        }
    }

    /// Expected values by `date -u -d @SECONDS`.
    #[test]
    fn the_ends_of_the_range_are_dates_too() {
        assert_eq!(utc(i64::MIN), "1677-09-21 00:12:43.145");
        assert_eq!(utc(i64::MAX), "2262-04-11 23:47:16.854");
    }
}
