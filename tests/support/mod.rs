//! Real sockets around a forwarder: raw upstreams, raw agents, a recording observer.
pub mod agent;
pub mod proxy;
pub mod recorder;
pub mod upstream;

use std::time::{Duration, Instant};

/// Nothing in these tests takes longer unless it hangs.
pub const SOON: Duration = Duration::from_secs(10);

/// Waits for something that another task is about to do.
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits, but not for ever.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}

/// Where one byte string begins in another.
pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
