//! The input for the figures of a trial: plain numbers, in seconds since the measurement began.

use crate::lag::Lag;
use crate::load::Trace;
use std::time::{Duration, Instant};
use tokengauge_core::call::{Outcome, TpsUnavailable};
use tokengauge_core::finished::FinishedCall;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub seconds: f64,
    pub interval: f64,
    /// Tokens of all streams in each interval of the measurement.
    pub tokens: Vec<f64>,
    /// All calls that have ended, including calls that do not count, in the order of their starts.
    pub calls: Vec<Call>,
    pub lag: Lag,
    /// The number of calls that began during the measurement as scheduled.
    pub begun: usize,
    /// An open loop exceeded the maximum number of calls in flight.
    pub overloaded: bool,
    pub interrupted: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    pub trace: u128,
    /// The scheduled start.
    pub begun: f64,
    pub ended: f64,
    pub ttft: Option<f64>,
    /// Tokens after the first chunk, and their decode seconds.
    pub decode: Option<(u64, f64)>,
    pub no_tps: Option<TpsUnavailable>,
    /// Reported ÷ normalised output tokens.
    pub token_ratio: Option<f64>,
    /// Reported input tokens, or counted ones if none were reported.
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cost_usd: Option<f64>,
    /// Latencies between tokens, each with the number of tokens that had it.
    pub inter_token: Vec<(f64, u32)>,
    /// Gaps of more than a second between tokens: end and length.
    pub stalls: Vec<(f64, f64)>,
    pub failed: Option<String>,
}

impl Call {
    pub fn began_within(&self, from: f64, to: f64) -> bool {
        (from..to).contains(&self.begun)
    }

    pub fn tps(&self) -> Option<f64> {
        let (tokens, seconds) = self.decode?;
        (seconds > 0.0).then(|| tokens as f64 / seconds)
    }

    pub fn latency(&self) -> f64 {
        self.ended - self.begun
    }
}

impl Observed {
    pub fn of(trace: &Trace) -> Observed {
        let interval = trace.interval.as_secs_f64();
        let before = trace.measure_from.duration_since(trace.began);
        let first = (before.as_secs_f64() / interval).round() as usize;
        let measured = trace.measure_to.duration_since(trace.measure_from);
        let intervals = (measured.as_secs_f64() / interval).floor() as usize;
        let tokens_of = |number: usize| trace.tokens.get(number).copied().unwrap_or_default();
        let tokens = (first..first + intervals).map(|number| tokens_of(number) as f64);
        let since = |at| seconds_since(trace.measure_from, at);
        let mut calls: Vec<_> = trace
            .calls
            .iter()
            .map(|finished| of_call(finished, since))
            .collect();
        calls.sort_by(|left, right| left.begun.total_cmp(&right.begun));
        Observed {
            seconds: measured.as_secs_f64(),
            interval,
            tokens: tokens.collect(),
            calls,
            lag: trace.delays.between(trace.measure_from, trace.measure_to),
            begun: trace.begun,
            overloaded: trace.overloaded,
            interrupted: trace.interrupted,
        }
    }

    pub fn between(&self, from: f64, to: f64) -> impl Iterator<Item = &Call> + Clone {
        let calls = self.calls.iter();
        calls.filter(move |call| call.began_within(from, to))
    }

    pub fn mean_in_flight(&self, from: f64, to: f64) -> f64 {
        let busy = |call: &Call| (call.ended.min(to) - call.begun.max(from)).max(0.0);
        self.calls.iter().map(busy).sum::<f64>() / (to - from)
    }
}

fn of_call(finished: &FinishedCall, since: impl Fn(Instant) -> f64) -> Call {
    let record = &finished.record;
    let normalised = record.tokens.normalised;
    let ratio = record.tokens.reported.output.zip(normalised.output);
    let token_ratio = ratio
        .filter(|(_, counted)| *counted > 0)
        .map(|(reported, counted)| reported as f64 / counted as f64);
    let inter_token = finished.inter_token.as_deref();
    let stalls = finished.timestamps.stalls.iter();
    Call {
        trace: finished.trace_id.unwrap_or_default(),
        begun: since(finished.timestamps.received),
        ended: since(finished.ended),
        ttft: record.seconds.ttft,
        decode: finished.decode,
        no_tps: record.tps.unavailable,
        token_ratio,
        input: record.tokens.reported.input.or(normalised.input),
        output: normalised.output,
        cost_usd: record.cost_usd,
        inter_token: inter_token.map_or_else(Vec::new, |latencies| latencies.classes().collect()),
        stalls: stalls
            .map(|(ended, gap)| (since(*ended), gap.as_secs_f64()))
            .collect(),
        failed: failure(finished),
    }
}

fn failure(finished: &FinishedCall) -> Option<String> {
    let record = &finished.record;
    let outcome = match record.outcome {
        Outcome::Complete if record.tokens.normalised.output.unwrap_or_default() == 0 => {
            return Some("no text".to_owned());
        }
        Outcome::Complete => return None,
        // Only the end of the trial cancels calls.
        Outcome::ClientCancelled => return Some("not ended in time".to_owned()),
        outcome => outcome.as_str(),
    };
    let kind = record.error_type.clone();
    let status = record
        .status
        .filter(|_| record.outcome == Outcome::HttpError);
    let detail = kind.or(status.map(|status| status.to_string()));
    Some(detail.map_or(outcome.to_owned(), |detail| format!("{outcome} {detail}")))
}

/// Returns the seconds from `from` to `at`, negative if `at` is earlier.
fn seconds_since(from: Instant, at: Instant) -> f64 {
    match at.checked_duration_since(from) {
        Some(after) => after.as_secs_f64(),
        None => -from.saturating_duration_since(at).as_secs_f64(),
    }
}

/// Rounds the length of a phase up to whole intervals, so that an interval begins with the measurement.
pub fn whole_intervals(phase: Duration, interval: Duration) -> Duration {
    let count = phase.as_secs_f64() / interval.as_secs_f64();
    interval.mul_f64((count - 1e-9).ceil().max(0.0))
}
