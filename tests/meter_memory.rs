//! What an open stream costs in memory while it is measured.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "it takes a part of it")]
mod meter_support;

use meter_support::{Bench, event, words};
use tokengauge::export::process::figures;

/// Streams that are open at once.
const STREAMS: u64 = 5_000;
/// What each may cost, allocator included. The goal is 4 KB.
const BYTES: u64 = 4 * 1024;

#[test]
fn an_open_stream_costs_little_memory() {
    let resident = || figures().expect("Linux tells").resident_bytes;
    let bench = Bench::default();
    // The first stream brings the tables in.
    let first = bench.chat();
    bench.frame(&*first, 100, words(50));
    let before = resident();
    let calls: Vec<_> = (0..STREAMS)
        .map(|_| {
            let call = bench.chat();
            bench.frame(
                &*call,
                60,
                event("{\"role\":\"assistant\",\"content\":\"\"}"),
            );
            for frame in 0..5 {
                bench.frame(&*call, 100 + frame * 20, words(3));
            }
            call
        })
        .collect();
    let each = (resident() - before) / STREAMS;
    println!("{each} bytes for each of {} open streams", calls.len());
    assert!(each <= BYTES, "{each} bytes");
}
