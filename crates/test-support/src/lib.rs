#![doc = include_str!("../README.md")]

pub mod agent;
mod analysis;
pub mod canned;
pub mod certificates;
pub mod connection;
pub mod http_client;
pub mod meter;
pub mod otlp;
pub mod port;
pub mod proxy;
pub mod recorder;
pub mod records;
pub mod sim;
pub mod skip;
pub mod upstream;
pub mod wire;

use std::time::{Duration, Instant};

/// How long tests wait for another process or a background thread.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// How long tests wait for a task or a socket of this process.
pub const SOON: Duration = Duration::from_secs(10);

/// Waits until `done` returns true. Panics after [`SOON`].
pub async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
