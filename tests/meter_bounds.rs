//! Memory bounds of measuring, the effect of a panic, and the release of memory.

use bytes::Bytes;
use http::StatusCode;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokengauge_config::Measure;
use tokengauge_core::call::{Channel, Outcome, TpsUnavailable};
use tokengauge_core::observer::End;
use tokengauge_meter::settings;
use tokengauge_meter::{FinishedCall, Meter, RecentCalls, Stream, Subscriber, TokenObserver};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::meter::{Bench, DONE, finish, header_map, words};

/// Counts the tokens of each channel, or panics if `panics` is set.
#[derive(Default)]
struct TokenCounter {
    counted: Arc<Mutex<Vec<(Channel, u64)>>>,
    models: Mutex<Vec<Option<String>>>,
    panics: bool,
}

struct TokenCounterCall {
    counted: Arc<Mutex<Vec<(Channel, u64)>>>,
    panics: bool,
}

impl Subscriber for TokenCounter {
    fn watch(&self, stream: &Stream<'_>) -> Option<Box<dyn TokenObserver>> {
        self.models
            .lock()
            .expect("models")
            .push(stream.model.map(str::to_owned));
        Some(Box::new(TokenCounterCall {
            counted: Arc::clone(&self.counted),
            panics: self.panics,
        }))
    }

    fn finished(&self, _: &Arc<FinishedCall>) {}
}

impl TokenObserver for TokenCounterCall {
    fn tokens(&mut self, _: Instant, channel: Channel, tokens: u64) {
        assert!(!self.panics, "a panic behind the tap");
        self.counted
            .lock()
            .expect("counted")
            .push((channel, tokens));
    }
}

#[test]
fn tokens_are_reported_live_and_add_up_to_the_record() {
    let live = Arc::new(TokenCounter::default());
    let bench = Bench::new(
        Measure::default(),
        vec![Arc::clone(&live) as Arc<dyn Subscriber>],
    );
    // After the first call, the model's name is known not to be an alias.
    let first = bench.chat();
    bench.chunk(&*first, 100, words(3) + &finish(None) + DONE);
    bench.end(&*first, 200, End::Complete);
    live.counted.lock().expect("counted").clear();
    live.models.lock().expect("models").clear();
    let call = bench.chat();
    for chunk in 0..10 {
        bench.chunk(&*call, 100 + chunk * 10, words(3));
    }
    let sum = || -> u64 {
        live.counted
            .lock()
            .expect("counted")
            .iter()
            .map(|(_, tokens)| tokens)
            .sum()
    };
    let before = sum();
    assert!((27..=30).contains(&before), "while it runs: {before}");
    bench.chunk(&*call, 300, finish(None) + DONE);
    let record = bench.end(&*call, 400, End::Complete);
    assert_eq!(Some(sum()), record.tokens.normalised.output);
    assert_eq!(
        *live.models.lock().expect("models"),
        [Some("m-1".to_owned())]
    );
}

#[test]
fn a_panic_behind_the_tap_costs_one_call_its_measurement_and_is_counted() {
    let live = Arc::new(TokenCounter {
        panics: true,
        ..TokenCounter::default()
    });
    let bench = Bench::new(Measure::default(), vec![live as Arc<dyn Subscriber>]);
    let call = bench.chat();
    for chunk in 0..10 {
        bench.chunk(&*call, 100 + chunk * 10, words(8));
    }
    bench.chunk(&*call, 300, finish(Some(80)) + DONE);
    let record = bench.end(&*call, 400, End::Complete);
    assert_eq!(record.tps.unavailable, Some(TpsUnavailable::Unparsed));
    assert_eq!(record.tokens.normalised.output, None);
    assert_eq!(record.outcome, Outcome::Complete);
    assert!(bench.meter.stats(Instant::now()).panics > 0);
    assert_eq!(bench.meter.streams(bench.start, 10), []);
}

#[test]
fn a_body_over_the_bound_is_lagged_and_its_memory_given_back() {
    let measure = Measure {
        body_bytes: 100_000,
        ..Measure::default()
    };
    let bench = Bench::new(measure, Vec::new());
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(&*call, b"{}");
    bench.answer(&*call, 200, "application/json");
    for chunk in 0..20 {
        bench.chunk(&*call, 100 + chunk, vec![b' '; 10_000]);
    }
    let record = bench.end(&*call, 400, End::Complete);
    assert_eq!(record.tps.unavailable, Some(TpsUnavailable::Lagged));
    assert_eq!(
        (record.streamed, record.bytes.response),
        (Some(false), 200_000)
    );
    let figures = bench.meter.stats(Instant::now());
    assert!(figures.skipped_bodies > 0 && figures.lagged_chunks > 0);
    assert_eq!(figures.held_bytes, 0);
}

#[test]
fn all_calls_together_hold_no_more_than_the_memory_they_are_given() {
    let measure = Measure {
        memory_bytes: 1 << 20,
        ..Measure::default()
    };
    let bench = Bench::new(measure, Vec::new());
    let calls: Vec<_> = (0..50)
        .map(|_| bench.begin("/v1/chat/completions", &[]))
        .collect();
    for call in &calls {
        call.request_chunk(&Bytes::from(vec![b' '; 100_000]));
        assert!(bench.meter.stats(Instant::now()).held_bytes <= 1 << 20);
    }
    assert!(bench.meter.stats(Instant::now()).skipped_bodies >= 40);
    calls
        .iter()
        .for_each(|call| call.ended(bench.at(10), End::ClientCancelled));
    drop(calls);
    assert_eq!(bench.finished_calls().len(), 50);
    assert_eq!(bench.meter.stats(Instant::now()).held_bytes, 0);
}

#[test]
fn an_event_without_end_is_held_within_the_memory_and_no_longer() {
    let measure = Measure {
        memory_bytes: 1 << 20,
        ..Measure::default()
    };
    let bench = Bench::new(measure, Vec::new());
    let call = bench.chat();
    bench.chunk(&*call, 100, "data: {\"choices\":\"");
    for chunk in 0..40 {
        bench.chunk(&*call, 101 + chunk, vec![b'x'; 50_000]);
        assert!(bench.meter.stats(Instant::now()).held_bytes <= 1 << 20);
    }
    let record = bench.end(&*call, 400, End::ClientCancelled);
    assert_eq!(record.tps.unavailable, Some(TpsUnavailable::Lagged));
    assert_eq!(bench.meter.stats(Instant::now()).held_bytes, 0);
}

/// The bytes that a call holds before and after the provider reports its input tokens, and the calls that are not
/// analyzed.
fn held_for_the_prompt(measure: Measure, prompt: &str) -> ([usize; 2], u64) {
    let bench = Bench::new(measure, Vec::new());
    let held = || bench.meter.stats(Instant::now()).held_bytes;
    let call = bench.begin("/v1/chat/completions", &[]);
    let body = serde_json::json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": prompt}]});
    bench.send(&*call, body.to_string().as_bytes());
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 100, words(1));
    let before = held();
    bench.chunk(&*call, 200, finish(Some(1)));
    let reported = held();
    bench.chunk(&*call, 300, DONE);
    let record = bench.end(&*call, 400, End::Complete);
    assert_eq!(
        (record.tokens.reported.input, record.tokens.normalised.input),
        (Some(7), None)
    );
    assert_eq!(held(), 0);
    let analysis = bench.meter.analysis();
    let is_analyzed = analysis.counts.held_bytes > 0;
    assert_eq!(
        (record.prompt.is_some(), record.prompt_blocks),
        (is_analyzed, None)
    );
    ([before, reported], analysis.skipped)
}

#[test]
fn the_prompt_is_freed_when_the_provider_reports_its_tokens_unless_it_is_analyzed() {
    let off = settings::Analysis {
        enabled: false,
        ..settings::Analysis::default()
    };
    let without = Measure {
        analysis: off,
        ..Measure::default()
    };
    let ([before, reported], skipped) = held_for_the_prompt(without, "Hi");
    assert!(before > 0 && reported == 0 && skipped == 0);
    let ([before, reported], skipped) = held_for_the_prompt(Measure::default(), "Hi");
    assert!(before > 0 && reported == before && skipped == 0);
    let short = Measure {
        memory_bytes: 100_000,
        ..Measure::default()
    };
    let ([before, reported], skipped) = held_for_the_prompt(short, &"word ".repeat(11_000));
    assert!(before > 50_000 && reported == 0 && skipped == 1);
}

#[test]
fn a_long_prompt_is_read_and_counted_in_the_background() {
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    let prompt = " word".repeat(50_000);
    let body = format!(
        "{{\"messages\":[{{\"role\":\"user\",\"content\":\"{prompt}\"}}],\"model\":\"far-behind\",\"stream\":true}}"
    );
    bench.send(&*call, body.as_bytes());
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 100, words(40) + DONE);
    let record = bench.end(&*call, 400, End::Complete);
    assert_eq!(record.model_requested.as_deref(), Some("far-behind"));
    assert_eq!(record.tokens.normalised.input, Some(50_000));
    assert_eq!(bench.meter.stats(Instant::now()).held_bytes, 0);
}

#[test]
fn a_compressed_stream_in_bulk_is_read_later_with_the_instants_of_its_chunks() {
    let mut random = 1_u64;
    let mut padding = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        format!(
            ": {random:016x}{:016x}\n\n",
            random.rotate_left(29) ^ 0x5bd1_e995
        )
    };
    let events = (0..30_000).map(|n| padding() + &words(1 + n % 3));
    let plain: String = events.collect::<String>() + &finish(None) + DONE;
    let body = tokengauge_test_support::wire::encode::encode("gzip", plain.as_bytes());
    assert!(body.len() > 5 * 70_000, "{} bytes are no bulk", body.len());
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(&*call, b"{}");
    let headers = header_map(&[
        ("content-type", "text/event-stream"),
        ("content-encoding", "gzip"),
    ]);
    call.head(bench.at(50), StatusCode::OK, &headers);
    for (chunk, piece) in body.chunks(70_000).enumerate() {
        bench.chunk(&*call, 1000 + chunk as u64 * 1000, piece);
    }
    assert!(bench.meter.stats(Instant::now()).held_bytes >= body.len());
    let record = bench.end(&*call, 900_000, End::Complete);
    assert_eq!(record.tokens.normalised.output, Some(60_000));
    assert_eq!(record.seconds.ttft, Some(1.0));
    assert_eq!(record.seconds.longest_gap, Some(1.0));
    assert_eq!(bench.meter.stats(Instant::now()).held_bytes, 0);
}

struct BlockedSubscriber {
    begun: SyncSender<()>,
    release: Mutex<Receiver<()>>,
}

impl Subscriber for BlockedSubscriber {
    fn finished(&self, _: &Arc<FinishedCall>) {
        let _ = self.begun.try_send(());
        let _ = self.release.lock().expect("release").recv();
    }
}

#[test]
fn subscribers_that_are_too_slow_lose_calls_and_nothing_waits() {
    let (begun, running) = sync_channel(1);
    let (release, held) = channel();
    let slow = BlockedSubscriber {
        begun,
        release: Mutex::new(held),
    };
    let bench = Bench::new(Measure::default(), vec![Arc::new(slow)]);
    let end = || {
        bench
            .begin("/v1/models", &[])
            .ended(bench.at(1), End::Complete)
    };
    end();
    running
        .recv_timeout(TIMEOUT)
        .expect("the subscriber is held");
    let calls = 9_000;
    (0..calls).for_each(|_| end());
    let dropped = bench.meter.stats(Instant::now()).dropped_calls;
    assert_eq!(dropped, calls - 8192);
    drop(release);
    assert_eq!(bench.finished_calls().len() as u64, 1 + calls - dropped);
}

#[test]
fn the_ring_of_recent_calls_keeps_the_newest() {
    let ring = RecentCalls::new(3);
    let meter = Meter::new(
        Measure::default(),
        vec![Arc::clone(&ring) as Arc<dyn Subscriber>],
    );
    let bench = Bench {
        meter,
        ..Bench::default()
    };
    for millis in 1..=5 {
        bench
            .begin("/v1/models", &[])
            .ended(bench.at(millis), End::Complete);
    }
    assert!(bench.meter.flush(TIMEOUT));
    let durations: Vec<_> = ring
        .newest(10)
        .iter()
        .map(|f| f.record.seconds.duration)
        .collect();
    assert_eq!(durations, [Some(0.005), Some(0.004), Some(0.003)]);
    assert_eq!(ring.newest(1).len(), 1);
}

#[test]
fn streams_in_flight_return_to_zero_however_calls_end() {
    let bench = Bench::default();
    let in_flight = || {
        bench
            .meter
            .stats(Instant::now())
            .in_flight
            .first()
            .map_or(0, |lane| lane.2)
    };
    let calls: Vec<_> = (0..3).map(|_| bench.chat()).collect();
    assert_eq!(
        (in_flight(), bench.meter.streams(bench.start, 10).len()),
        (3, 3)
    );
    calls[0].ended(bench.at(100), End::Complete);
    calls[1].ended(bench.at(100), End::UpstreamReset);
    drop(calls);
    let concurrency: Vec<_> = bench
        .finished_calls()
        .iter()
        .map(|finished_call| finished_call.concurrency)
        .collect();
    assert_eq!(
        (in_flight(), bench.meter.streams(bench.start, 10).len()),
        (0, 0)
    );
    assert_eq!(concurrency.iter().max(), Some(&3));
}
