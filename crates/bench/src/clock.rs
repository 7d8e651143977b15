//! The clock of the runtime, which tests can pause and advance.

use std::time::Instant;

pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
