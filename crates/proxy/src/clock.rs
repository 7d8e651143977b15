//! The clock.

use std::time::Instant;

/// Reads the clock. Nothing else in the proxy does.
pub(super) fn now() -> Instant {
    Instant::now()
}
