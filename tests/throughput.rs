//! Throughput of all streams, compared with calls whose tokens and instants are known.

use crate::ledger_retention::tidy;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokengauge_core::observer::{End, MAX_MEASURE_DELAY, ObservedCall};
use tokengauge_core::throughput::{RateFilter, Rates};
use tokengauge_store::history::{ThroughputHistory, knee};
use tokengauge_store::ledger::{LedgerDatabase, Limits, Reader};
use tokengauge_store::query::Dimension;
use tokengauge_store::query::{CapacityPoint, Filter, SeriesMetric};
use tokengauge_test_support::meter::{Bench, DONE, finish, started_at, words};

const DELAY: u64 = MAX_MEASURE_DELAY.as_millis() as u64;

#[derive(Default)]
struct CallScript {
    steps: BTreeMap<(u64, usize, u64), ScriptStep>,
    calls: usize,
}

enum ScriptStep {
    Begin,
    Head(&'static str),
    Chunk(String),
    End,
}

impl CallScript {
    fn at(&mut self, millis: u64, call: usize, step: ScriptStep) {
        let turn = self.steps.len() as u64;
        self.steps.insert((millis, call, turn), step);
    }

    /// A stream that begins at `begin`. Its first chunk arrives at `first` and the others in steps of `gap`, all with
    /// `tokens` tokens. Its body ends `tail` later.
    fn stream(
        &mut self,
        begin: u64,
        first: u64,
        gap: u64,
        chunks: u64,
        tokens: usize,
        tail: u64,
    ) -> u64 {
        let call = self.calls;
        self.calls += 1;
        self.at(begin, call, ScriptStep::Begin);
        self.at(begin, call, ScriptStep::Head("text/event-stream"));
        let mut at = first;
        for chunk in 0..chunks {
            at = first + chunk * gap;
            self.at(at, call, ScriptStep::Chunk(words(tokens)));
        }
        let end = at + tail;
        self.at(end, call, ScriptStep::Chunk(finish(None) + DONE));
        self.at(end, call, ScriptStep::End);
        end
    }

    /// An answer in one piece, `took` after its request.
    fn whole(&mut self, begin: u64, took: u64, tokens: usize) -> u64 {
        let call = self.calls;
        self.calls += 1;
        self.at(begin, call, ScriptStep::Begin);
        let body = format!(
            r#"{{"model":"m-1","choices":[{{"index":0,"message":{{"content":"{}"}},"finish_reason":"stop"}}]}}"#,
            " word".repeat(tokens)
        );
        self.at(begin + took, call, ScriptStep::Head("application/json"));
        self.at(begin + took, call, ScriptStep::Chunk(body));
        self.at(begin + took, call, ScriptStep::End);
        begin + took
    }

    /// Plays everything, and calls `look` once a second like a running proxy.
    fn run(self, bench: &Bench, until: u64, mut look: impl FnMut(&Bench, u64)) {
        let mut calls: BTreeMap<usize, Arc<dyn ObservedCall>> = BTreeMap::new();
        let mut next = 1000;
        for ((millis, call, _), step) in self.steps {
            while next <= millis {
                look(bench, next);
                next += 1000;
            }
            match step {
                ScriptStep::Begin => {
                    let begun = bench.begin_with("/v1/chat/completions", &[], |mut start| {
                        start.received = bench.at(millis);
                        start.started_at = started_at() + Duration::from_millis(millis);
                        start
                    });
                    begun.connected(bench.at(millis), true);
                    begun.sent(bench.at(millis));
                    calls.insert(call, begun);
                }
                ScriptStep::Head(content_type) => {
                    let headers = tokengauge_test_support::meter::header_map(&[(
                        "content-type",
                        content_type,
                    )]);
                    calls[&call].head(bench.at(millis), http::StatusCode::OK, &headers);
                }
                ScriptStep::Chunk(bytes) => bench.chunk(&*calls[&call], millis, bytes),
                ScriptStep::End => {
                    calls
                        .remove(&call)
                        .expect("it runs")
                        .ended(bench.at(millis), End::Complete);
                    // The background thread works in real time, while simulated time stands still here.
                    let _ = bench.meter.flush(tokengauge_test_support::TIMEOUT);
                }
            }
        }
        while next <= until {
            look(bench, next);
            next += 1000;
        }
    }
}

fn rates(bench: &Bench, millis: u64) -> Rates {
    let throughput = bench.meter.throughput();
    throughput.rates(bench.at(millis), &RateFilter::default())
}

fn near(is: f64, should: f64, share: f64) -> bool {
    (is - should).abs() <= share * should
}

fn history(bench: &Bench, play: CallScript, until: u64) -> Arc<ThroughputHistory> {
    let history = ThroughputHistory::new();
    play.run(bench, until, |bench, millis| {
        history.take(bench.tick(millis))
    });
    history
}

fn by_second(history: &ThroughputHistory) -> BTreeMap<u64, (f64, f64)> {
    let origin = started_at().duration_since(SystemTime::UNIX_EPOCH);
    let origin = origin.expect("after 1970").as_secs();
    let seconds = history.seconds(&RateFilter::default()).into_iter();
    seconds
        .map(|(second, streamed, spread)| (second - origin, (streamed, spread)))
        .collect()
}

#[test]
fn the_speed_of_many_streams_is_their_sum() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    for stream in 0..1_500 {
        // Ten tokens a second each, at different times within the second.
        play.stream(0, 500 + stream % 1000, 1000, 20, 10, 0);
    }
    let mut now = Vec::new();
    play.run(&bench, 17_000, |bench, millis| {
        if (12_000 + DELAY..19_000).contains(&millis) {
            let streams = bench.meter.streams(bench.at(millis), 20_000);
            let sum: f64 = streams.iter().filter_map(|stream| stream.tps).sum();
            now.push((rates(bench, millis).now, sum));
        }
    });
    assert!(!now.is_empty());
    for (now, of_streams) in now {
        assert!(near(now, 15_000.0, 0.01), "{now}");
        assert!(near(of_streams, 15_000.0, 0.01), "{of_streams}");
    }
}

#[test]
fn a_slow_stream_has_its_speed_and_one_that_stalls_falls_to_nothing() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    play.stream(0, 1000, 2500, 13, 5, 60_000);
    let mut speeds = BTreeMap::new();
    play.run(&bench, 50_000, |bench, millis| {
        let streams = bench.meter.streams(bench.at(millis), 10);
        speeds.insert(millis / 1000, streams.first().and_then(|stream| stream.tps));
    });
    assert_eq!(speeds[&2], None, "the second chunk has not come");
    for second in 8..=31 {
        let speed = speeds[&second].expect("a speed");
        assert!(near(speed, 2.0, 0.01), "{speed} after {second} s");
    }
    assert!(
        speeds[&36].expect("a speed") < 2.0,
        "a stall shows while it lasts"
    );
    assert_eq!(speeds[&41], Some(0.0));
}

#[test]
fn tokens_are_in_the_second_in_which_they_came() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    for stream in 0..12 {
        play.stream(0, 1000 + stream * 4, 50, 600, 1, 0);
    }
    let history = history(&bench, play, 40_000);
    let seconds = by_second(&history);
    assert_eq!(
        seconds.values().map(|(streamed, _)| streamed).sum::<f64>(),
        7_200.0
    );
    for second in 2..=30 {
        let (streamed, spread) = seconds[&second];
        // A token or two of a stream are delayed until they are certain.
        assert!(near(streamed, 240.0, 0.06), "{streamed} in second {second}");
        assert_eq!(spread, 0.0);
    }
    assert!(!seconds.contains_key(&0));
}

#[test]
fn whole_answers_are_spread_over_their_time_and_kept_apart() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    for _ in 0..10 {
        play.whole(2_000, 40_000, 1_000);
    }
    let mut seen = BTreeMap::new();
    let history = ThroughputHistory::new();
    play.run(&bench, 60_000, |bench, millis| {
        history.take(bench.tick(millis));
        seen.insert(
            millis / 1000,
            (rates(bench, millis), bench.meter.stats(bench.at(millis))),
        );
    });
    let seconds = by_second(&history);
    for second in 2..42 {
        let (streamed, spread) = seconds[&second];
        assert!(
            streamed == 0.0 && near(spread, 250.0, 0.05),
            "{spread} in {second}"
        );
    }
    assert_eq!(
        seconds.values().map(|(_, spread)| spread).sum::<f64>(),
        10_000.0
    );
    let (rates, figures) = &seen[&45];
    assert!(
        near(rates.now, 250.0, 0.02) && near(rates.peak, 250.0, 0.02),
        "{rates:?}"
    );
    assert_eq!(rates.spread.now, rates.now, "all of it is of whole answers");
    // Scraped gauges cannot correct the past.
    let scraped: Vec<_> = figures.throughput.values().collect();
    assert!(
        scraped
            .iter()
            .all(|rates| rates.now == 0.0 && rates.peak == 0.0),
        "{scraped:?}"
    );
    let rows = history.rows(None);
    let [point] = rows[0].points.as_slice() else {
        panic!("one concurrency: {rows:?}");
    };
    assert_eq!(point.concurrency, 10);
    assert!(near(point.system_tps, 250.0, 0.03), "{point:?}");
}

#[test]
fn a_stream_that_was_held_back_is_spread_as_a_whole_answer_is() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    let call = 20_000;
    play.stream(0, call, 1, 20, 50, 0);
    let history = history(&bench, play, 40_000);
    assert_eq!(
        bench.newest().tps.unavailable,
        Some(tokengauge_core::call::TpsUnavailable::Buffered)
    );
    let seconds = by_second(&history);
    let sums = seconds
        .values()
        .fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    assert_eq!(sums, (0.0, 1_000.0));
    assert!(
        (0..20).all(|second| near(seconds[&second].1, 50.0, 0.05)),
        "{seconds:?}"
    );
    let point = history.rows(None)[0].points[0];
    assert!(
        point.concurrency == 1 && near(point.system_tps, 50.0, 0.03),
        "{point:?}"
    );
    assert_eq!(point.request_tps, None, "nobody knows how fast it streams");
}

/// Gap between tokens of the simulated engine, whose throughput grows up to the knee and then stays constant.
fn engine_gap(concurrency: u64) -> f64 {
    const KNEE: f64 = 8.0;
    let streams = concurrency as f64;
    let slower = 1.0 + 0.1 * (streams.min(KNEE) - 1.0) / KNEE;
    20.0 * slower * (streams / KNEE).max(1.0)
}

/// Plays streams without a break at each of these concurrencies. Returns the tokens per second by concurrency and the
/// knee of the capacity curve.
fn curve(length: impl Fn(u64) -> u64, tail: u64) -> (BTreeMap<u32, CapacityPoint>, u32) {
    let bench = Bench::default();
    let mut play = CallScript::default();
    let mut from = 0;
    for concurrency in [1, 2, 4, 6, 8, 10, 12, 16] {
        let gap = engine_gap(concurrency);
        let mut last = from;
        for stream in 0..concurrency {
            let mut at = from;
            let mut number = stream * 7919;
            while at < from + 12_000 {
                // All streams end at once, so all have the speed of this concurrency.
                let left = ((from + 12_000 - at) as f64 / gap) as u64;
                let chunks = length(number).min(left.max(1));
                number += 1;
                let call = play.calls;
                play.calls += 1;
                play.at(at, call, ScriptStep::Begin);
                play.at(at, call, ScriptStep::Head("text/event-stream"));
                let mut end = at;
                for chunk in 1..=chunks {
                    end = at + (chunk as f64 * gap) as u64;
                    play.at(end, call, ScriptStep::Chunk(words(1)));
                }
                play.at(end + tail, call, ScriptStep::Chunk(finish(None) + DONE));
                play.at(end + tail, call, ScriptStep::End);
                // The agent starts its next call when the last token has arrived.
                at = end;
            }
            last = last.max(at);
        }
        from = last + 5_000;
    }
    let until = from + 20_000;
    let rows = history(&bench, play, until).rows(None);
    let knee = knee(&rows[0].points).unwrap_or_else(|reason| panic!("{reason}: {rows:?}"));
    let points = rows[0].points.iter();
    (
        points.map(|point| (point.concurrency, *point)).collect(),
        knee.concurrency,
    )
}

fn check_curve(name: &str, (points, knee): (BTreeMap<u32, CapacityPoint>, u32)) {
    assert!(
        (6..=10).contains(&knee),
        "{name}: knee at {knee} of 8: {points:?}"
    );
    for concurrency in [1, 2, 4, 6, 8, 10, 12, 16] {
        let should = concurrency as f64 * 1000.0 / engine_gap(concurrency);
        let point = points[&(concurrency as u32)];
        assert!(
            near(point.system_tps, should, 0.03),
            "{name}: {should} at {point:?}"
        );
        let each = point.request_tps.expect("a speed");
        assert!(
            near(each, 1000.0 / engine_gap(concurrency), 0.03),
            "{name}: {point:?}"
        );
    }
}

#[test]
fn the_capacity_curve_is_the_engines_whatever_the_calls_are_like() {
    check_curve("equal lengths", curve(|_| 100, 0));
    check_curve(
        "random lengths",
        curve(|number| 30 + number * 7_351 % 190, 0),
    );
    check_curve("short calls", curve(|_| 8, 0));
    check_curve("tails", curve(|_| 100, 2_000));
}

#[test]
fn short_calls_with_breaks_between_them_keep_their_tokens() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    for call in 0..40 {
        // 24 tokens in 0.2 seconds, then nothing for 0.3 seconds.
        play.stream(call * 500, call * 500 + 10, 8, 24, 1, 6);
    }
    let history = history(&bench, play, 40_000);
    let point = history.rows(None)[0].points[0];
    let tokens = point.system_tps * 40.0 * 0.194;
    assert!(
        point.concurrency == 1 && near(tokens, 960.0, 0.03),
        "{point:?}"
    );
}

#[test]
fn a_ledger_has_the_same_history_and_includes_late_tokens() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    play.stream(0, 1000, 100, 300, 2, 0);
    play.whole(5_000, 30_000, 600);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ledger.sqlite");
    let mut ledger = LedgerDatabase::open(&path).expect("opens");
    let history = ThroughputHistory::new();
    play.run(&bench, 60_000, |bench, millis| {
        let tick = bench.tick(millis);
        ledger.take(&tick).expect("kept");
        history.take(tick);
    });
    let reader = Reader::new(&path, std::time::Instant::now);
    let filter = Filter {
        since: Some(started_at()),
        until: Some(started_at() + Duration::from_secs(60)),
        ..Filter::default()
    };
    for step in [1, 10, 60] {
        let step = Duration::from_secs(step);
        let kept = reader
            .timeseries(&filter, SeriesMetric::Tps, step)
            .expect("an answer");
        let seconds = history.seconds(&RateFilter::default());
        let none = std::iter::empty();
        let should =
            tokengauge_store::history::timeseries(none, SeriesMetric::Tps, step, Some(&seconds));
        let rates = |series: &tokengauge_store::query::Timeseries| {
            let points = series
                .points
                .iter()
                .filter(|point| point.tokens_per_second.unwrap_or(0.0) > 0.0);
            let rates = points.map(|p| (p.at, p.tokens_per_second, p.spread_tokens_per_second));
            rates.collect::<Vec<_>>()
        };
        assert_eq!(rates(&kept), rates(&should), "{step:?}");
        assert!(!rates(&kept).is_empty());
    }
    let model = |name: &str| Filter {
        names: [(Dimension::Model, Some(name.to_owned()))].into(),
        ..filter.clone()
    };
    let minute = Duration::from_secs(60);
    let sum = |filter: &Filter| -> f64 {
        let series = reader
            .timeseries(filter, SeriesMetric::Tps, minute)
            .expect("an answer");
        series
            .points
            .iter()
            .filter_map(|point| point.tokens_per_second)
            .sum::<f64>()
            * 60.0
    };
    assert_eq!(
        (sum(&model("m-1")).round(), sum(&model("other"))),
        (1_200.0, 0.0)
    );
    // Data older than the retention of seconds and minutes is kept by the hour.
    let days = 20 * 86_400_000;
    let limits = Limits {
        age: Duration::from_secs(30 * 86_400),
        bytes: 1 << 30,
    };
    let now = 1_700_000_000_000 + days;
    tidy(&mut ledger, now, &limits);
    let hours = reader.timeseries(&filter, SeriesMetric::Tps, Duration::from_secs(3600));
    let hours = hours.expect("an answer").points;
    let tokens: f64 = hours
        .iter()
        .filter_map(|point| point.tokens_per_second)
        .sum();
    assert_eq!((tokens * 3600.0).round(), 1_200.0);
    let seconds = reader.timeseries(&filter, SeriesMetric::Tps, Duration::from_secs(1));
    let seconds = seconds.expect("an answer").points;
    assert!(
        seconds
            .iter()
            .all(|point| point.tokens_per_second.is_none()),
        "unknown, not zero"
    );
}

#[test]
fn whole_answers_one_after_the_other_are_one_stream() {
    let bench = Bench::default();
    let mut play = CallScript::default();
    let mut at = 100;
    for _ in 0..30 {
        at = play.whole(at, 1_220, 60) + 7;
    }
    let history = history(&bench, play, 60_000);
    let rows = history.rows(None);
    let [point] = rows[0].points.as_slice() else {
        panic!("one concurrency: {rows:?}");
    };
    let tokens = point.system_tps;
    assert!(
        point.concurrency == 1 && near(tokens, 60.0 / 1.22, 0.02),
        "{point:?}"
    );
}

/// Figures of one load while the wall clock is changed by `step` seconds 20 s after the start: rates of each second,
/// scraped rates of streams, history, and highest throughput of each concurrency.
struct Stepped {
    rates: Vec<Rates>,
    scraped: Vec<Vec<Rates>>,
    history: Arc<ThroughputHistory>,
}

/// When the wall clock is changed, in milliseconds.
const STEP_AT: u64 = 20_000;

fn stepped(step: i64) -> Stepped {
    let bench = Bench::default();
    let mut play = CallScript::default();
    for stream in 0..5 {
        play.stream(0, 1_000 + stream * 20, 100, 300, 1, 0);
    }
    play.whole(12_000, 16_000, 100);
    let history = ThroughputHistory::new();
    let (mut rates_seen, mut scraped) = (Vec::new(), Vec::new());
    play.run(&bench, 120_000, |bench, millis| {
        let step = if millis < STEP_AT { 0 } else { step };
        let at = started_at() + Duration::from_millis(millis);
        let wall = if step < 0 {
            at - Duration::from_secs(step.unsigned_abs())
        } else {
            at + Duration::from_secs(step.unsigned_abs())
        };
        history.take(bench.meter.tick(bench.at(millis), wall));
        rates_seen.push(rates(bench, millis));
        let streamed = bench.meter.throughput().streamed(bench.at(millis));
        scraped.push(streamed.into_values().collect());
    });
    Stepped {
        rates: rates_seen,
        scraped,
        history,
    }
}

#[test]
fn setting_the_wall_clock_moves_no_token_and_changes_no_rate() {
    let still = stepped(0);
    let sum = |of: &Stepped| -> f64 {
        let seconds = of.history.seconds(&RateFilter::default());
        seconds.iter().map(|(_, one, other)| one + other).sum()
    };
    assert_eq!(sum(&still), 1_600.0);
    let last = still.rates.last().expect("a rate");
    assert!(near(last.peak, 56.0, 0.02), "{last:?}");
    for step in [3, 60, 3_600, -3, -60, -3_600] {
        let of = stepped(step);
        assert_eq!(sum(&of), 1_600.0, "tokens after {step} s");
        assert_eq!(of.rates, still.rates, "rates after {step} s");
        assert_eq!(of.scraped, still.scraped, "scraped rates after {step} s");
        let (is, should) = (of.history.rows(None), still.history.rows(None));
        assert_eq!(is[0].points, should[0].points, "capacity after {step} s");
    }
}

#[test]
fn tokens_lie_where_the_wall_clock_was_when_they_came() {
    let step_at = STEP_AT / 1_000;
    let still = by_second(&stepped(0).history);
    let ahead = by_second(&stepped(60).history);
    let moved = |second: &u64| {
        let by = if *second < step_at { 0 } else { 60 };
        second + by
    };
    let should: BTreeMap<_, _> = still.iter().map(|(at, of)| (moved(at), *of)).collect();
    assert_eq!(ahead, should);
    // The clock shows these seconds twice, and both times have tokens.
    let behind = by_second(&stepped(-3).history);
    let twice = behind[&(step_at - 2)];
    let should = [still[&(step_at - 2)], still[&(step_at + 1)]];
    assert_eq!(
        twice,
        (should[0].0 + should[1].0, should[0].1 + should[1].1)
    );
}
