//! Converts instants to numbers and timestamps, and durations to text.

use humantime::{Rfc3339Timestamp, TimestampError};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::fmt::{self, Debug, Display};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

const LAST_WRITABLE: Duration = Duration::new(253_402_300_799, 999_999_999);

/// The time since 1970. Zero for instants before 1970.
pub fn duration_since_1970(wall: SystemTime) -> Duration {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Seconds since 1970. 0 for instants before 1970.
pub fn since_1970(wall: SystemTime) -> f64 {
    duration_since_1970(wall).as_secs_f64()
}

/// Whole seconds since 1970. 0 for instants before 1970.
pub fn whole_seconds_since_1970(wall: SystemTime) -> u64 {
    duration_since_1970(wall).as_secs()
}

/// Formats an instant as RFC 3339 in UTC with seconds. A wrong clock must not end a thread, so an
/// instant before 1970 or after 9999 is replaced by the nearest valid one.
#[expect(
    clippy::disallowed_methods,
    reason = "the instant is one that it writes"
)]
pub fn rfc3339_seconds(at: SystemTime) -> Rfc3339Timestamp {
    humantime::format_rfc3339_seconds(writable(at))
}

/// Formats an instant as RFC 3339 in UTC with milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "the instant is one that it writes"
)]
pub fn rfc3339_millis(at: SystemTime) -> Rfc3339Timestamp {
    humantime::format_rfc3339_millis(writable(at))
}

/// Formats an instant as RFC 3339 in UTC with nanoseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "the instant is one that it writes"
)]
pub fn rfc3339_nanos(at: SystemTime) -> Rfc3339Timestamp {
    humantime::format_rfc3339_nanos(writable(at))
}

/// The nearest instant that `humantime` can format. It panics for others.
fn writable(at: SystemTime) -> SystemTime {
    SystemTime::UNIX_EPOCH + duration_since_1970(at).min(LAST_WRITABLE)
}

/// The resolution of start times in records. A call that began right after another one may seem to
/// begin up to this much before the other one ended.
pub const RECORDED_RESOLUTION: Duration = Duration::from_millis(1);

/// A point in time, written as RFC 3339 in UTC. It has milliseconds, see [`RECORDED_RESOLUTION`],
/// or whole seconds. Timestamps are ordered by time. Two timestamps are equal if their texts are
/// equal.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tokengauge_core::time::Timestamp;
/// let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_001_999);
/// assert_eq!(Timestamp::from(at).to_string(), "1970-01-01T00:00:01.001Z");
/// assert_eq!(Timestamp::seconds(at).to_string(), "1970-01-01T00:00:01Z");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    time: SystemTime,
    precision: Precision,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    Seconds,
    Millis,
    /// Only in parsed timestamps.
    Nanos,
}

impl Timestamp {
    /// A timestamp with whole seconds.
    pub fn seconds(time: SystemTime) -> Timestamp {
        let since = Duration::from_secs(whole_seconds_since_1970(time));
        Timestamp {
            time: SystemTime::UNIX_EPOCH + since,
            precision: Precision::Seconds,
        }
    }

    /// The point in time.
    pub fn time(self) -> SystemTime {
        self.time
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        let since = duration_since_1970(time);
        let below = Duration::from_nanos(u64::from(since.subsec_nanos() % 1_000_000));
        Timestamp {
            time: SystemTime::UNIX_EPOCH + (since - below),
            precision: Precision::Millis,
        }
    }
}

impl Default for Timestamp {
    fn default() -> Timestamp {
        SystemTime::UNIX_EPOCH.into()
    }
}

/// Parses timestamps of all versions and keeps their precision.
impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Timestamp, TimestampError> {
        let precision = match text.len() {
            ..=20 => Precision::Seconds,
            21..=24 => Precision::Millis,
            _ => Precision::Nanos,
        };
        let time = humantime::parse_rfc3339(text)?;
        Ok(Timestamp { time, precision })
    }
}

impl Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.precision {
            Precision::Seconds => rfc3339_seconds(self.time),
            Precision::Millis => rfc3339_millis(self.time),
            Precision::Nanos => rfc3339_nanos(self.time),
        };
        Display::fmt(&text, f)
    }
}

impl Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

const UNITS: [(u128, &str); 7] = [
    (86_400_000_000_000, "d"),
    (3_600_000_000_000, "h"),
    (60_000_000_000, "m"),
    (1_000_000_000, "s"),
    (1_000_000, "ms"),
    (1_000, "us"),
    (1, "ns"),
];

/// Formats a duration in the syntax of the configuration, with days as the largest unit. Months and
/// years are not whole numbers of days.
///
/// ```
/// use std::time::Duration;
/// use tokengauge_core::time::span_text;
/// let text = |milliseconds: u64| span_text(Duration::from_millis(milliseconds));
/// assert_eq!([text(0), text(1_500), text(90_000_000)], ["0s", "1s 500ms", "1day 1h"]);
/// assert_eq!(text(400 * 86_400_000), "400days");
/// ```
pub fn span_text(span: Duration) -> String {
    let mut left = span.as_nanos();
    let mut parts = Vec::new();
    for (length, unit) in UNITS {
        let count = left / length;
        left %= length;
        match (count, unit) {
            (0, _) => {}
            (1, "d") => parts.push("1day".to_owned()),
            (_, "d") => parts.push(format!("{count}days")),
            _ => parts.push(format!("{count}{unit}")),
        }
    }
    if parts.is_empty() {
        return "0s".to_owned();
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_no_text_has_is_written_as_the_nearest() {
        let year = Duration::from_secs(365 * 86_400);
        let (early, late) = (
            SystemTime::UNIX_EPOCH - year,
            SystemTime::UNIX_EPOCH + year * 9_000,
        );
        assert_eq!(
            rfc3339_millis(early).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
        assert_eq!(rfc3339_seconds(late).to_string(), "9999-12-31T23:59:59Z");
        let usual = SystemTime::UNIX_EPOCH + Duration::from_nanos(1);
        assert_eq!(
            rfc3339_nanos(usual).to_string(),
            "1970-01-01T00:00:00.000000001Z"
        );
    }

    #[test]
    fn a_timestamp_is_written_as_it_was_read() {
        let texts = [
            "1970-01-01T00:00:00Z",
            "2026-01-31T09:30:00.000Z",
            "2026-01-31T09:30:00.001Z",
            "2026-01-31T09:30:00.000000001Z",
            "9999-12-31T23:59:59.999Z",
        ];
        let read = texts.map(|text| {
            let timestamp: Timestamp = serde_json::from_value(text.into()).expect(text);
            assert_eq!(serde_json::to_value(timestamp).expect(text), text);
            timestamp
        });
        assert!(read[1] < read[3] && read[3] < read[2], "{read:?}");
        for text in ["", "2026-01-31", "2026-01-31T09:30:00+01:00"] {
            text.parse::<Timestamp>().expect_err(text);
        }
    }
}
