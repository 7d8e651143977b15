//! The only place in the proxy that reads the clock.

use std::time::Instant;

/// The current instant.
pub(super) fn now() -> Instant {
    Instant::now()
}
