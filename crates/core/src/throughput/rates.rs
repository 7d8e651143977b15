//! Tokens per second of all streams, now and over the last minutes.

use super::ring::READ;
use super::{RateKey, RateSeries, Throughput};
use crate::observer::MAX_MEASURE_DELAY;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// The window of the current rate, in seconds.
const WINDOW: u64 = 10;
/// The window of the peak and the mean, in seconds.
const PEAK_WINDOW: u64 = 300;

/// Selects series of tokens. Absent parts match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateFilter {
    /// The route.
    pub route: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The workload.
    pub workload: Option<String>,
}

impl RateFilter {
    /// Whether it selects the tokens of `key`.
    pub fn matches(&self, key: &RateKey) -> bool {
        let is = |wanted: &Option<String>, name: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| name == Some(wanted))
        };
        is(&self.route, Some(&key.route))
            && is(&self.upstream, Some(&key.upstream))
            && is(&self.model, Some(&key.model))
            && is(&self.workload, key.workload.as_deref())
    }
}

/// Tokens per second of all streams together, whole answers spread over the time in which they
/// were generated. Up to the last whole second of which everything is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Throughput")]
pub struct Rates {
    /// Over the last 10 seconds.
    pub now: f64,
    /// The largest over 10 seconds on end within the last 5 minutes.
    pub peak: f64,
    /// Over the last 5 minutes, or since the first call where that is less.
    pub sustained: f64,
    /// What of them is of whole answers, of which nothing is known before they end.
    pub spread: SpreadRates,
}

/// Tokens per second of whole answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "SpreadThroughput")]
pub struct SpreadRates {
    /// Over the last 10 seconds.
    pub now: f64,
    /// Over the last 5 minutes, or since the first call where that is less.
    pub sustained: f64,
}

impl Throughput {
    /// The throughput of everything that `filter` selects; the peak is that of the sum.
    pub fn rates(&self, now: Instant, filter: &RateFilter) -> Rates {
        let all = self.all();
        let selected: Vec<_> = all
            .iter()
            .filter(|series| filter.matches(&series.key))
            .collect();
        let end = self.measured_until(now);
        let first = self.begun().max(end.saturating_sub(PEAK_WINDOW));
        let of = |second, of: fn(&RateSeries, u64) -> u64| -> u64 {
            selected.iter().map(|series| of(series, second)).sum()
        };
        let sums: Vec<_> = (first..end)
            .map(|second| {
                (
                    of(second, RateSeries::streamed),
                    of(second, RateSeries::spread),
                )
            })
            .collect();
        rates(&sums)
    }

    /// Tokens of some seconds, in seconds since 1970, of the series that are selected. Those of whole
    /// answers are known when they end.
    pub fn sum(&self, seconds: Range<u64>, selected: impl Fn(&RateKey) -> bool) -> u64 {
        let series = self.all();
        let series = series.iter().filter(|series| selected(&series.key));
        let of = |series: &Arc<RateSeries>| -> u64 {
            let seconds = seconds.clone();
            seconds
                .map(|at| series.streamed(at) + series.spread(at))
                .sum()
        };
        series.map(of).sum()
    }

    /// The throughput of streams alone, by key: a scrape cannot correct what it has read before.
    pub fn streamed(&self, now: Instant) -> BTreeMap<RateKey, Rates> {
        let end = self.measured_until(now);
        let first = self.begun().max(end.saturating_sub(PEAK_WINDOW));
        let of = |series: &Arc<RateSeries>| {
            let sums: Vec<_> = (first..end).map(|at| (series.streamed(at), 0)).collect();
            (series.key.clone(), rates(&sums))
        };
        self.all().iter().map(of).collect()
    }

    /// The second of the first call.
    fn begun(&self) -> u64 {
        let first = self.origin.get();
        first.map_or(0, |(at, _)| self.second(*at))
    }

    /// The second up to which everything is measured.
    pub(super) fn measured_until(&self, now: Instant) -> u64 {
        let measured = now.checked_sub(MAX_MEASURE_DELAY).unwrap_or(now);
        self.second(measured)
    }
}

impl RateSeries {
    pub(super) fn streamed(&self, second: u64) -> u64 {
        self.streamed.of(second)
    }

    /// Tokens of whole answers that were generated in a second.
    pub(super) fn spread(&self, second: u64) -> u64 {
        self.spread.get().map_or(0, |ring| ring.of(second))
    }
}

/// The rates of streamed and spread tokens by second, the oldest first.
fn rates(seconds: &[(u64, u64)]) -> Rates {
    let both = |part: &[(u64, u64)]| part.iter().map(|(one, other)| one + other).sum::<u64>();
    let spread = |part: &[(u64, u64)]| part.iter().map(|(_, spread)| spread).sum::<u64>() as f64;
    let window = WINDOW as usize;
    let last = &seconds[seconds.len().saturating_sub(window)..];
    let peak = seconds.windows(window.min(seconds.len()).max(1)).map(both);
    let of_all = seconds.len().max(1) as f64;
    Rates {
        now: both(last) as f64 / WINDOW as f64,
        peak: peak.max().unwrap_or(0) as f64 / WINDOW as f64,
        sustained: both(seconds) as f64 / of_all,
        spread: SpreadRates {
            now: spread(last) / WINDOW as f64,
            sustained: spread(seconds) / of_all,
        },
    }
}

const _: () = assert!(PEAK_WINDOW + MAX_MEASURE_DELAY.as_secs() < READ);

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(parts: &[(usize, u64)]) -> Vec<(u64, u64)> {
        let seconds = parts.iter();
        let seconds = seconds.flat_map(|(count, tokens)| vec![(*tokens, 0); *count]);
        seconds.collect()
    }

    #[test]
    fn now_is_that_of_the_last_ten_seconds_and_the_peak_of_the_best_ten() {
        let rates = rates(&seconds(&[(200, 0), (5, 40), (5, 20), (85, 0), (5, 10)]));
        assert_eq!((rates.now, rates.peak), (5.0, 30.0));
        assert_eq!(rates.sustained, 350.0 / 300.0, "idle seconds count");
    }

    #[test]
    fn without_tokens_or_seconds_it_is_nothing() {
        assert_eq!(rates(&seconds(&[(300, 0)])), Rates::default());
        assert_eq!(rates(&[]), Rates::default());
    }

    #[test]
    fn whole_answers_are_part_of_it_and_told_apart() {
        let mut all = seconds(&[(300, 10)]);
        all[295..].fill((10, 30));
        let rates = rates(&all);
        assert_eq!((rates.now, rates.spread.now), (25.0, 15.0));
        assert_eq!(rates.spread.sustained, 0.5);
    }
}
