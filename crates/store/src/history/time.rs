//! Parses times and durations in queries.

use std::time::{Duration, SystemTime};

/// Parses RFC 3339 in UTC, or a duration before `now`.
pub fn instant(text: &str, now: SystemTime) -> Option<SystemTime> {
    let ago = duration(text).and_then(|ago| now.checked_sub(ago));
    ago.or_else(|| humantime::parse_rfc3339(text).ok())
}

/// Parses a whole number of seconds, minutes, hours, days or weeks, with at most six digits.
pub fn duration(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let digits = &text[..text.len() - 1];
    let sound = digits.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|number| sound && *number > 0)?;
    Some(Duration::from_secs(number * seconds))
}
