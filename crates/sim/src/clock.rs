//! The clock of the runtime, which a test can stop and move.

use std::time::Instant;

pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
