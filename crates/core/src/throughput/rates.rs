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

// Seconds.
const WINDOW: u64 = 10;
const PEAK_WINDOW: u64 = 300;

/// Selects series of tokens. Absent fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateFilter {
    /// Name of the route.
    pub route: Option<String>,
    /// Name of the upstream.
    pub upstream: Option<String>,
    /// Name of the model.
    pub model: Option<String>,
    /// Name of the workload.
    pub workload: Option<String>,
}

impl RateFilter {
    /// Whether the filter selects the series with this key.
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

/// Tokens per second of all selected streams together, up to the last completely measured second.
/// Tokens of responses that were not streamed are spread over the time in which they were
/// generated.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "Throughput")]
pub struct Rates {
    /// Tokens per second over the last 10 seconds.
    pub now: f64,
    /// Highest 10-second average in the last 5 minutes.
    pub peak: f64,
    /// Tokens per second over the last 5 minutes, or since the first call if that is shorter.
    pub sustained: f64,
    /// The part of these rates from responses that were not streamed. It is only known after such a
    /// response ends.
    pub spread: SpreadRates,
}

/// Tokens per second of responses that were not streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "SpreadThroughput")]
pub struct SpreadRates {
    /// Tokens per second over the last 10 seconds.
    pub now: f64,
    /// Tokens per second over the last 5 minutes, or since the first call if that is shorter.
    pub sustained: f64,
}

impl Throughput {
    /// The rates of all series that `filter` selects, added up. The peak is the peak of the sum.
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

    /// The tokens of the selected series in a range of seconds since 1970. Tokens of responses that
    /// are not streamed appear when the response ends.
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

    /// The rates of streamed tokens only, by key. Other responses change past seconds, which a
    /// scrape cannot correct.
    pub fn streamed(&self, now: Instant) -> BTreeMap<RateKey, Rates> {
        let end = self.measured_until(now);
        let first = self.begun().max(end.saturating_sub(PEAK_WINDOW));
        let of = |series: &Arc<RateSeries>| {
            let sums: Vec<_> = (first..end).map(|at| (series.streamed(at), 0)).collect();
            (series.key.clone(), rates(&sums))
        };
        self.all().iter().map(of).collect()
    }

    fn begun(&self) -> u64 {
        let first = self.origin.get();
        first.map_or(0, |(at, _)| self.second(*at))
    }

    /// The second before which everything is measured.
    pub(super) fn measured_until(&self, now: Instant) -> u64 {
        let measured = now.checked_sub(MAX_MEASURE_DELAY).unwrap_or(now);
        self.second(measured)
    }
}

impl RateSeries {
    pub(super) fn streamed(&self, second: u64) -> u64 {
        self.streamed.of(second)
    }

    pub(super) fn spread(&self, second: u64) -> u64 {
        self.spread.get().map_or(0, |ring| ring.of(second))
    }
}

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
