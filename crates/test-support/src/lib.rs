#![doc = include_str!("../README.md")]
#![allow(
    missing_docs,
    reason = "the tests' own: what a name says is not said again"
)]

pub mod agent;
pub mod canned;
pub mod certificates;
pub mod connection;
pub mod http_client;
pub mod meter;
pub mod otlp;
pub mod proxy;
pub mod recorder;
pub mod records;
pub mod sim;
pub mod upstream;
pub mod wire;

use std::time::{Duration, Instant};

/// What another process or a background thread is waited for; nothing takes longer unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a task or a socket of this process is waited for; nothing takes longer unless it hangs.
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
