//! Memory of measuring: an open stream, a long stream, and many names.
#![cfg(target_os = "linux")]

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_config::Measure;
use tokengauge_core::observer::{End, ObservedCall};
use tokengauge_meter::{FinishedCall, RecentCalls, Subscriber};
use tokengauge_telemetry::export::process::figures;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::meter::{Bench, DONE, event, finish, words};

/// The allocator of the released binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const STREAMS: u64 = 5_000;
/// Bound for each stream, allocator included. The goal is 4 KB.
const BYTES: u64 = 4 * 1024;

/// Number of distinct models, sessions and users that the exporters get.
const NAMES: u64 = 1_000_000;
/// Memory that all names but the first hundred thousand may leave in use.
const LEFT_BEHIND: u64 = 4 << 20;

/// Tests run one at a time, because memory is counted for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn resident() -> u64 {
    figures().expect("Linux tells").resident_bytes
}

#[test]
fn an_open_stream_costs_little_memory() {
    let _alone = ALONE.lock();
    let bench = Bench::default();
    // The first stream initialises the tables.
    let first = bench.chat();
    bench.chunk(&*first, 100, words(50) + &finish(None) + DONE);
    bench.end(&*first, 200, End::Complete);
    let before = resident();
    let calls: Vec<_> = (0..STREAMS)
        .map(|_| {
            let call = bench.chat();
            bench.chunk(
                &*call,
                60,
                event("{\"role\":\"assistant\",\"content\":\"\"}"),
            );
            for chunk in 0..5 {
                bench.chunk(&*call, 100 + chunk * 20, words(3));
            }
            call
        })
        .collect();
    let each = (resident() - before) / STREAMS;
    println!("{each} bytes for each of {} open streams", calls.len());
    assert!(each <= BYTES, "{each} bytes");
}

#[test]
fn a_million_models_sessions_and_users_leave_series_and_memory_flat() {
    let _alone = ALONE.lock();
    let bench = Bench::default();
    let call = bench.chat();
    for chunk in 0..10 {
        bench.chunk(&*call, 100 + chunk * 20, words(4));
    }
    bench.chunk(&*call, 300, finish(Some(40)) + DONE);
    call.ended(bench.at(400), End::Complete);
    let template = FinishedCall::clone(&bench.finished_calls()[0]);
    let prometheus = Prometheus::new(&[], &Measure::default());
    let recent = RecentCalls::new(1_000);
    let subscribers: [Arc<dyn Subscriber>; 2] = [prometheus.clone(), recent.clone()];
    let flood = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let mut finished_call = template.clone();
            let record = &mut finished_call.record;
            record.model = Some(format!("model-{number}"));
            record.model_requested = Some(format!("asked-{number}"));
            record.session = Some(format!("session-{number}"));
            record.user = Some(format!("user-{number}"));
            record.agent = Some(format!("agent-{number}"));
            record.experiment = Some(format!("experiment-{number}"));
            record.trace_id = Some(format!("{:032x}", number + 1));
            let finished_call = Arc::new(finished_call);
            for subscriber in &subscribers {
                subscriber.finished(&finished_call);
            }
        }
    };
    let render = || {
        let now = Instant::now();
        prometheus.render(now, &bench.meter.stats(now), Format::OpenMetrics)
    };
    flood(0..NAMES / 10);
    let early = render().lines().count();
    let before = resident();
    flood(NAMES / 10..NAMES);
    let grown = resident().saturating_sub(before);
    let late = render();
    println!("{early} lines, {grown} bytes more");
    assert_eq!(early, late.lines().count());
    assert!(grown <= LEFT_BEHIND, "{grown} bytes");
    for private in ["session-", "user-", "agent-", "experiment-"] {
        assert!(!late.contains(private), "{private} became a label");
    }
    let (max, calls) = (
        Measure::default().max_models as u64,
        recent.newest(usize::MAX).len(),
    );
    assert_eq!(calls, 1_000);
    let collapsed = format!("tokengauge_series_collapsed_total {}", NAMES - max);
    assert!(late.lines().any(|line| line == collapsed), "{collapsed}");
}

/// Number of chunks of a long stream.
const CHUNKS: u64 = 100_000;
const CHUNKS_BYTES: u64 = 256 * 1024;

#[test]
fn a_hundred_thousand_chunks_hold_no_more_memory_than_a_thousand() {
    let _alone = ALONE.lock();
    let bench = Bench::default();
    // Texts, gaps and sizes differ, so that no cached value serves all of them.
    let texts: Vec<String> = (1..=20).map(words).collect();
    let stream = |chunks: std::ops::Range<u64>, call: &dyn ObservedCall| {
        for chunk in chunks {
            let text = &texts[(chunk * 7 % 20) as usize];
            bench.chunk(call, 100 + chunk * 20 + chunk % 13, text);
        }
    };
    let call = bench.chat();
    stream(0..1_000, &*call);
    let before = resident();
    stream(1_000..CHUNKS, &*call);
    let grown = resident().saturating_sub(before);
    println!("{grown} bytes more for {} chunks more", CHUNKS - 1_000);
    assert!(grown <= CHUNKS_BYTES, "{grown} bytes");

    let expected: u64 = (0..CHUNKS).map(|chunk| 1 + chunk * 7 % 20).sum();
    let end = 100 + CHUNKS * 20 + 100;
    bench.chunk(&*call, end, finish(None) + DONE);
    let record = bench.end(&*call, end + 1, End::Complete);
    let counted = record.tokens.normalised.output;
    assert_eq!(
        counted,
        Some(expected),
        "the last chunk counts as the first"
    );
}
