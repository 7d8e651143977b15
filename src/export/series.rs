//! The series of one upstream, route, model and workload, with handles held, so that
//! no chunk looks anything up.

use super::labels::{concurrency, context, status_class, streamed};
use super::names::{self, Metric};
use crate::call::{CallRecord, Channel, Outcome, TpsUnavailable, Usage};
use crate::meter::Finding;
use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::PrometheusRecorder;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static METADATA: Metadata<'static> = Metadata::new("tokengauge", Level::INFO, None);

/// The labels that tell series apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) upstream: Arc<str>,
    pub(crate) route: Arc<str>,
    pub(crate) model: Arc<str>,
    pub(crate) workload: Arc<str>,
}

impl Identity {
    /// In the order of the table.
    fn values(&self) -> [&Arc<str>; 4] {
        [&self.upstream, &self.route, &self.model, &self.workload]
    }
}

/// A key of `metric`, its labels being `values` in the order of the table.
fn key(metric: &Metric, values: &[&str]) -> Key {
    debug_assert_eq!(metric.labels.len(), values.len(), "{}", metric.name);
    let labels = metric.labels.iter().zip(values);
    let labels = labels.map(|(name, value)| Label::new(*name, (*value).to_owned()));
    Key::from_parts(metric.name, labels.collect::<Vec<_>>())
}

pub(crate) fn counter(recorder: &PrometheusRecorder, metric: &Metric, values: &[&str]) -> Counter {
    recorder.register_counter(&key(metric, values), &METADATA)
}

pub(crate) fn gauge(recorder: &PrometheusRecorder, metric: &Metric, values: &[&str]) -> Gauge {
    recorder.register_gauge(&key(metric, values), &METADATA)
}

pub(crate) fn histogram(
    recorder: &PrometheusRecorder,
    metric: &Metric,
    values: &[&str],
) -> Histogram {
    recorder.register_histogram(&key(metric, values), &METADATA)
}

/// A counter of fractions, which the `metrics` crate does not have.
#[derive(Debug, Default)]
struct Fraction(AtomicU64);

impl Fraction {
    fn add(&self, value: f64) {
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn value(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// The series of one upstream, route, model and workload.
pub(crate) struct Series {
    identity: Identity,
    output: [Counter; 3],
    stalls: Counter,
    decode_tokens: Counter,
    decode_seconds: Fraction,
    ttft_upstream: Histogram,
    first_answer: Histogram,
    inter_token: Histogram,
    per_token: Histogram,
    ratio: Histogram,
    now: Gauge,
    throughput: Throughput,
}

/// Outcomes that are certain to come sooner or later, with streamed and status: their
/// series exist before they do, or `rate()` misses the first.
const EXPECTED: [(Outcome, &str, &str); 8] = [
    (Outcome::Complete, "true", "2xx"),
    (Outcome::Complete, "false", "2xx"),
    (Outcome::ClientCancelled, "true", "2xx"),
    (Outcome::UpstreamReset, "true", "2xx"),
    (Outcome::HttpError, "false", "4xx"),
    (Outcome::HttpError, "false", "5xx"),
    (Outcome::Timeout, "false", "5xx"),
    (Outcome::Unreachable, "false", "5xx"),
];

impl Series {
    pub(crate) fn new(recorder: &PrometheusRecorder, identity: Identity) -> Series {
        let own = identity.values().map(|value| &**value);
        let output = ["answer", "reasoning", "tool_call"].map(|channel| {
            with(
                recorder,
                &names::TOKENS,
                own,
                &["output", channel, "counted"],
            )
        });
        for (outcome, streamed, status) in EXPECTED {
            let kind = [outcome.as_str(), streamed, status];
            with(recorder, &names::REQUESTS, own, &kind).increment(0);
        }
        let histogram = |metric| histogram(recorder, metric, &own);
        Series {
            output,
            stalls: counter(recorder, &names::STALLS, &own),
            decode_tokens: counter(recorder, &names::DECODE_TOKENS, &own),
            decode_seconds: Fraction::default(),
            ttft_upstream: histogram(&names::TIME_TO_FIRST_TOKEN_UPSTREAM),
            first_answer: histogram(&names::TIME_TO_FIRST_ANSWER),
            inter_token: histogram(&names::INTER_TOKEN_LATENCY),
            per_token: histogram(&names::TIME_PER_OUTPUT_TOKEN),
            ratio: histogram(&names::TOKEN_RATIO),
            now: gauge(recorder, &names::OUTPUT_TOKENS_PER_SECOND_NOW, &own),
            throughput: Throughput::default(),
            identity,
        }
    }

    /// Tokens came, `since` the start of the process.
    pub(crate) fn tokens(&self, since: Duration, channel: Channel, tokens: u64) {
        self.output[channel as usize].increment(tokens);
        self.throughput.add(since, tokens);
    }

    /// A call is over.
    pub(crate) fn finished(&self, recorder: &PrometheusRecorder, finding: &Finding) {
        let record = &finding.record;
        self.request(recorder, record);
        self.speed(recorder, finding);
        self.input_and_reported(
            recorder,
            &record.tokens.reported,
            record.tokens.normalised.input,
        );
        self.stalls.increment(record.stalls);
        let normalised = record.tokens.normalised.output.filter(|tokens| *tokens > 0);
        if record.outcome == Outcome::Complete
            && let (Some(reported), Some(normalised)) = (record.tokens.reported.output, normalised)
        {
            self.ratio.record(reported as f64 / normalised as f64);
        }
    }

    fn request(&self, recorder: &PrometheusRecorder, record: &CallRecord) {
        let own = self.own();
        let outcome = record.outcome.as_str();
        let status = status_class(record.status);
        let kind = [outcome, streamed(record.streamed), status];
        with(recorder, &names::REQUESTS, own, &kind).increment(1);
        if let Some(reason) = record.tps.unavailable {
            with(
                recorder,
                &names::TPS_UNAVAILABLE,
                own,
                &[TpsUnavailable::as_str(reason)],
            )
            .increment(1);
        }
        if let Some(duration) = record.seconds.duration {
            let mut values = own.to_vec();
            values.push(outcome);
            histogram(recorder, &names::REQUEST_DURATION, &values).record(duration);
        }
    }

    fn speed(&self, recorder: &PrometheusRecorder, finding: &Finding) {
        let record = &finding.record;
        let seconds = &record.seconds;
        if let Some(ttft) = seconds.ttft {
            let mut values = self.own().to_vec();
            values.push(context(record));
            histogram(recorder, &names::TIME_TO_FIRST_TOKEN, &values).record(ttft);
        }
        record_known(&self.ttft_upstream, seconds.ttft_upstream);
        record_known(&self.first_answer, seconds.first_answer);
        if let Some(speed) = record.tps.output {
            let mut values = self.own().to_vec();
            values.push(concurrency(finding.concurrency));
            histogram(recorder, &names::OUTPUT_TOKENS_PER_SECOND, &values).record(speed);
            self.per_token.record(1.0 / speed);
            let latencies = finding.inter_token.iter().flat_map(|kept| kept.classes());
            latencies.for_each(|(mean, tokens)| {
                self.inter_token.record_many(mean, tokens as usize);
            });
        }
        if let Some((tokens, seconds)) = finding.decode {
            self.decode_tokens.increment(tokens);
            self.decode_seconds.add(seconds);
        }
    }

    /// What is only known at the end: the prompt's tokens and what the provider told.
    fn input_and_reported(&self, recorder: &PrometheusRecorder, told: &Usage, ours: Option<u64>) {
        let add = |tokens: Option<u64>, kind: [&str; 3]| {
            if let Some(tokens) = tokens {
                with(recorder, &names::TOKENS, self.own(), &kind).increment(tokens);
            }
        };
        add(told.input, ["input", "any", "reported"]);
        add(ours, ["input", "any", "counted"]);
        add(told.cached_input, ["cached_input", "any", "reported"]);
        let rest = told
            .output
            .map(|all| all.saturating_sub(told.reasoning.unwrap_or(0)));
        add(rest, ["output", "any", "reported"]);
        add(told.reasoning, ["output", "reasoning", "reported"]);
    }

    /// Brings the gauges up to `since` the start of the process.
    pub(crate) fn refresh(&self, since: Duration) {
        self.now.set(self.throughput.per_second(since));
    }

    /// The line of the counter of fractions.
    pub(crate) fn render(&self, text: &mut String) {
        let labels = names::DECODE_SECONDS
            .labels
            .iter()
            .zip(self.identity.values());
        let labels: Vec<_> = labels
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let (name, value) = (names::DECODE_SECONDS.name, self.decode_seconds.value());
        let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
    }

    fn own(&self) -> [&str; 4] {
        self.identity.values().map(|value| &**value)
    }
}

fn with(recorder: &PrometheusRecorder, metric: &Metric, own: [&str; 4], more: &[&str]) -> Counter {
    let values: Vec<_> = own.iter().chain(more).copied().collect();
    counter(recorder, metric, &values)
}

fn record_known(histogram: &Histogram, value: Option<f64>) {
    if let Some(value) = value {
        histogram.record(value);
    }
}

/// A label's value as the text format wants it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Seconds that the current throughput is taken over.
const WINDOW: u64 = 10;
/// Slots of a second; more than the window, so that a slot is not read while it is
/// being taken over for a new second.
const SLOTS: usize = 16;

/// Tokens by second, for the last few. Each slot holds a second (upper half) and the
/// tokens that came in it (lower half).
#[derive(Debug, Default)]
struct Throughput {
    slots: [AtomicU64; SLOTS],
}

impl Throughput {
    fn add(&self, since: Duration, tokens: u64) {
        let second = u64::from(since.as_secs() as u32) + 1;
        let slot = &self.slots[(second % SLOTS as u64) as usize];
        let tokens = tokens.min(u64::from(u32::MAX));
        let add = |held: u64| {
            let fresh = held >> 32 != second;
            let before = if fresh { 0 } else { held & u64::from(u32::MAX) };
            Some((second << 32) | (before + tokens).min(u64::from(u32::MAX)))
        };
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Over the last 10 whole seconds.
    fn per_second(&self, since: Duration) -> f64 {
        let now = u64::from(since.as_secs() as u32) + 1;
        let held = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        let recent = held.filter(|held| (now.saturating_sub(WINDOW)..now).contains(&(held >> 32)));
        let tokens: u64 = recent.map(|held| held & u64::from(u32::MAX)).sum();
        tokens as f64 / WINDOW as f64
    }
}

/// Watches one generation for its series.
pub(crate) struct Watching {
    pub(crate) series: Arc<Series>,
    pub(crate) started: Instant,
}

impl crate::meter::Watch for Watching {
    fn tokens(&mut self, at: Instant, channel: Channel, tokens: u64) {
        let since = at.saturating_duration_since(self.started);
        self.series.tokens(since, channel, tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_that_of_the_last_ten_whole_seconds() {
        let throughput = Throughput::default();
        let at = Duration::from_secs_f64;
        for second in 0..30 {
            throughput.add(at(f64::from(second) + 0.2), 30);
            throughput.add(at(f64::from(second) + 0.7), 20);
        }
        assert_eq!(throughput.per_second(at(30.1)), 50.0);
        assert_eq!(throughput.per_second(at(35.0)), 25.0);
        assert_eq!(throughput.per_second(at(40.0)), 0.0);
    }

    #[test]
    fn a_counter_of_fractions_adds_them_up() {
        let fraction = Fraction::default();
        for _ in 0..8 {
            fraction.add(0.125);
        }
        assert_eq!(fraction.value(), 1.0);
    }
}
