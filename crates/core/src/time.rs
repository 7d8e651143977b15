//! Instants as numbers.

use std::time::{Duration, SystemTime};

/// The time since 1970; none before.
pub fn duration_since_1970(wall: SystemTime) -> Duration {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Seconds since 1970; 0 before.
pub fn since_1970(wall: SystemTime) -> f64 {
    duration_since_1970(wall).as_secs_f64()
}

/// Whole seconds since 1970; 0 before.
pub fn whole_seconds_since_1970(wall: SystemTime) -> u64 {
    duration_since_1970(wall).as_secs()
}

/// How exact the starts of calls are in records. A call that began right after another one may seem to begin by less
/// than this before its end.
pub const RECORDED_RESOLUTION: Duration = Duration::from_millis(1);

/// The instant as records write it: whole milliseconds, see [`RECORDED_RESOLUTION`].
///
/// ```
/// use std::time::{Duration, SystemTime};
/// let at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_999);
/// let written = SystemTime::UNIX_EPOCH + Duration::from_millis(1);
/// assert_eq!(tokengauge_core::time::whole_milliseconds(at), written);
/// ```
pub fn whole_milliseconds(wall: SystemTime) -> SystemTime {
    let below = duration_since_1970(wall).as_nanos() % RECORDED_RESOLUTION.as_nanos();
    wall - Duration::from_nanos(u64::try_from(below).unwrap_or(0))
}
