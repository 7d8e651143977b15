//! The period of a budget, in the UTC calendar.

use std::time::Duration;
use tokengauge_core::time::span_text;

const DAY: u64 = 24 * 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// Whole spans since 1970. A day begins at midnight UTC.
    Every(Duration),
    Month,
}

impl Period {
    pub fn bounds(self, now: u64) -> (u64, u64) {
        match self {
            Period::Every(span) => {
                let span = span.as_secs().max(1);
                let start = now - now % span;
                (start, start + span)
            }
            Period::Month => {
                let (year, month) = month_of(now / DAY);
                let next = if month == 12 {
                    (year + 1, 1)
                } else {
                    (year, month + 1)
                };
                (
                    first_day(year, month) * DAY,
                    first_day(next.0, next.1) * DAY,
                )
            }
        }
    }

    pub fn in_words(self) -> String {
        match self {
            Period::Every(span) => span_text(span),
            Period::Month => "month".to_owned(),
        }
    }
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn first_day(year: u64, month: u64) -> u64 {
    let years: u64 = (1970..year).map(|year| 365 + u64::from(leap(year))).sum();
    let months: u64 = (1..month).map(|month| days_in(year, month)).sum();
    years + months
}

fn month_of(day: u64) -> (u64, u64) {
    // This estimate is at most one year too early.
    let mut year = (1970 + day / 366).max(1970);
    while first_day(year + 1, 1) <= day {
        year += 1;
    }
    let mut month = 1;
    while month < 12 && first_day(year, month + 1) <= day {
        month += 1;
    }
    (year, month)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        let time = humantime::parse_rfc3339(text).expect("a time");
        let since = time.duration_since(std::time::UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    }

    #[test]
    fn a_day_is_one_of_utc_and_a_month_one_of_the_calendar() {
        let day = Period::Every(Duration::from_secs(DAY));
        let now = at("2026-11-21T13:14:15Z");
        assert_eq!(
            day.bounds(now),
            (at("2026-11-21T00:00:00Z"), at("2026-11-22T00:00:00Z"))
        );
        for (now, start, end) in [
            (
                "2026-11-21T13:14:15Z",
                "2026-11-01T00:00:00Z",
                "2026-12-01T00:00:00Z",
            ),
            (
                "2026-12-31T23:59:59Z",
                "2026-12-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
            ),
            (
                "2028-02-29T00:00:00Z",
                "2028-02-01T00:00:00Z",
                "2028-03-01T00:00:00Z",
            ),
            (
                "2027-01-01T00:00:00Z",
                "2027-01-01T00:00:00Z",
                "2027-02-01T00:00:00Z",
            ),
            (
                "1970-01-01T00:00:00Z",
                "1970-01-01T00:00:00Z",
                "1970-02-01T00:00:00Z",
            ),
        ] {
            assert_eq!(Period::Month.bounds(at(now)), (at(start), at(end)), "{now}");
        }
    }
}
