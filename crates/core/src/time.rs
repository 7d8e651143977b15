//! Instants as numbers.

use std::time::SystemTime;

/// Seconds since 1970; 0 before.
pub fn since_1970(wall: SystemTime) -> f64 {
    let since = wall.duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
