//! Figures of a run, which are the columns of the tables.

use crate::results::{Percentiles, RunResult};

pub struct Metric {
    /// The title of the metric in tables, with the unit.
    pub title: &'static str,
    pub decimals: usize,
    /// Whether a ratio to another peer's figure is meaningful.
    pub ratio: bool,
    pub of: fn(&RunResult) -> Option<f64>,
}

macro_rules! metrics {
    ($($name:ident: $title:literal, $decimals:literal, $ratio:literal, $of:expr;)*) => {
        $(pub static $name: Metric = Metric {
            title: $title, decimals: $decimals, ratio: $ratio, of: $of,
        };)*
    };
}

metrics! {
    CALLS_PER_SECOND: "calls/s", 0, true, |run| Some(run.calls as f64 / run.seconds);
    CPU_PER_CALL: "CPU µs/call", 2, true, |run| per(run.cpu_seconds, run.calls);
    FIRST_P50: "TTFT p50 µs", 1, true, |run| at(run.first_token, 0);
    FIRST_P99: "TTFT p99 µs", 1, true, |run| at(run.first_token, 1);
    FIRST_P999: "TTFT p99.9 µs", 1, true, |run| at(run.first_token, 2);
    CHUNK_P50: "chunk p50 µs", 1, true, |run| at(run.chunk, 0);
    CHUNK_P99: "chunk p99 µs", 1, true, |run| at(run.chunk, 1);
    CHUNK_P999: "chunk p99.9 µs", 1, true, |run| at(run.chunk, 2);
    CPU_PER_EVENT: "CPU µs/event", 2, true, |run| per(run.cpu_seconds, run.events);
    EVENTS_PER_CORE: "events/s·core", 0, true, |run| Some(1e6 / per(run.cpu_seconds, run.events)?);
    EVENTS_PER_SECOND: "events/s", 0, true, |run| Some(run.events as f64 / run.seconds);
    MEGABYTES_PER_SECOND: "MB/s", 1, true, |run| Some(run.bytes as f64 / 1e6 / run.seconds);
    CPU_PER_MEGABYTE: "CPU ms/MB", 3, true, |run| {
        (run.bytes > 0).then_some(run.cpu_seconds? * 1e9 / run.bytes as f64)
    };
    BUSY: "of a core %", 0, false, |run| Some(100.0 * run.busy()?);
    KB_PER_STREAM: "KB/stream", 1, true, |run| {
        run.cpu_seconds?;
        Some((run.busy_kb - run.idle_kb) / run.open.max(1) as f64)
    };
    IDLE_MB: "idle MB", 1, true, |run| run.cpu_seconds.map(|_| run.idle_kb / 1024.0);
    BUSY_MB: "busy MB", 1, true, |run| run.cpu_seconds.map(|_| run.busy_kb / 1024.0);
    OPEN: "open", 0, false, |run| Some(run.open as f64);
    DELIVERED: "delivered %", 1, false, |run| Some(100.0 * run.delivered()?);
    SCRAPE_P50: "scrape p50 ms", 2, false, |run| Some(at(run.scrape, 0)? / 1000.0);
    SCRAPE_P99: "scrape p99 ms", 2, false, |run| Some(at(run.scrape, 1)? / 1000.0);
    SCRAPE_KB: "scrape KB", 0, false, |run| {
        run.scrape.map(|_| run.scrape_bytes as f64 / 1000.0)
    };
}

fn at(percentiles: Option<Percentiles>, share: usize) -> Option<f64> {
    percentiles.map(|percentiles| percentiles[share])
}

/// Microseconds of CPU time for each; `None` without a peer or for a number of 0.
fn per(cpu_seconds: Option<f64>, number: u64) -> Option<f64> {
    let seconds = cpu_seconds.filter(|_| number > 0)?;
    Some(seconds * 1e6 / number as f64)
}
