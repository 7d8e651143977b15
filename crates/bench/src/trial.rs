//! The figures of one trial, with intervals by the moving-block bootstrap.

use crate::metric::{Metric, Part};
use crate::observed::{Call, Observed};
use crate::steady::{Criteria, Steady, Withheld};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tokengauge_stats::bootstrap::{self, Options};
use tokengauge_stats::{Generator, seeded};

/// Above this number of observations fewer resamples are used, because sorting them takes a second.
const MANY: usize = 2_000;

/// A figure of a trial with its interval.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Figure {
    /// The value of the figure.
    pub value: f64,
    /// The lower end of the interval; `null` if it is unknown.
    pub lower: Option<f64>,
    /// The upper end of the interval; `null` if it is unknown.
    pub upper: Option<f64>,
}

/// The results of a trial.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct TrialResult {
    /// The number of the trial at this load, starting at 1.
    pub trial: u32,
    /// The start of the trial, in RFC 3339.
    pub started_at: String,
    /// The seconds from the start of the trial to the measurement.
    pub measured_after: f64,
    /// The seconds of the measurement.
    pub measured: f64,
    /// The seconds of the measurement until the run was steady (MSER-5); `null` if it never was.
    pub steady_after: Option<f64>,
    /// The number of calls that began in the steady part, or in the whole measurement if there is no steady part.
    pub calls: usize,
    /// The number of failed calls of the measurement.
    pub failed: usize,
    /// The mean number of calls in flight.
    pub in_flight: f64,
    /// The 95th percentile of the lag of the client, in seconds.
    pub client_lag: f64,
    /// The 99th percentile of the lag of the client, in seconds.
    #[serde(default)]
    pub client_lag_p99: f64,
    /// How long a CPU quota paused the client, in seconds of all CPUs together.
    #[serde(default)]
    pub client_throttled: f64,
    /// The number of calls without a speed, by reason.
    pub without_tps: BTreeMap<String, usize>,
    /// The figures of the trial, without withheld parts; `null` if all are withheld.
    pub figures: Option<BTreeMap<Metric, Figure>>,
    /// Why all figures, or a part of them, are withheld.
    pub withheld: Vec<Withheld>,
    /// The seconds of an interval of `timeline`.
    pub interval: f64,
    /// Output tokens per second of all streams, by interval, from the start of the trial.
    pub timeline: Vec<f64>,
    /// Calls that are pooled with other trials of this load.
    #[serde(skip)]
    #[schemars(skip)]
    pub sample: Sample,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Times to first token, each with the start of its call.
    pub ttft: Vec<(f64, f64)>,
    pub latency: Vec<f64>,
    pub tpot: Vec<f64>,
    /// Latencies between tokens, each with the number of tokens that had it.
    pub inter_token: Vec<(f64, u32)>,
    /// Output tokens, as reported if they were reported.
    pub output_tokens: f64,
    /// The cost of the tokens in US dollars, if all calls have a price.
    pub cost_usd: Option<f64>,
}

impl TrialResult {
    pub fn has(&self, part: Part) -> bool {
        self.figures.is_some() && !self.withheld.iter().any(|it| it.part == Some(part))
    }
}

impl Sample {
    pub fn of(observed: &Observed, steady: Steady) -> Sample {
        let calls = complete(observed, steady);
        let costs: Option<Vec<_>> = calls.iter().map(|call| call.cost_usd).collect();
        Sample {
            ttft: calls
                .iter()
                .filter_map(|call| Some((call.begun, call.ttft?)))
                .collect(),
            latency: calls.iter().map(|call| call.latency()).collect(),
            tpot: calls
                .iter()
                .filter_map(|call| Some(1.0 / call.tps()?))
                .collect(),
            inter_token: calls
                .iter()
                .flat_map(|call| call.inter_token.iter().copied())
                .collect(),
            output_tokens: calls.iter().filter_map(|call| reported_output(call)).sum(),
            cost_usd: costs
                .filter(|costs| !costs.is_empty())
                .map(|costs| costs.iter().sum()),
        }
    }
}

fn reported_output(call: &Call) -> Option<f64> {
    Some(call.output? as f64 * call.token_ratio.unwrap_or(1.0))
}

fn complete(observed: &Observed, steady: Steady) -> Vec<&Call> {
    let calls = observed.between(steady.from, steady.to);
    calls.filter(|call| call.failed.is_none()).collect()
}

pub fn figures(
    observed: &Observed,
    steady: Steady,
    criteria: &Criteria,
    seed: u64,
) -> BTreeMap<Metric, Figure> {
    let mut resampling = Resampling {
        confidence: criteria.confidence,
        random: seeded(seed),
    };
    let calls = complete(observed, steady);
    let mut found = of_throughput(observed, steady, &mut resampling);
    found.extend(of_times(&calls, &mut resampling));
    found.extend(of_speeds(&calls, &mut resampling));
    let known = found.into_iter();
    known
        .filter_map(|(metric, figure)| Some((metric, figure?)))
        .collect()
}

/// Figures by metric; `None` if the figure is unknown.
type Figures = Vec<(Metric, Option<Figure>)>;

fn of_throughput(observed: &Observed, steady: Steady, resampling: &mut Resampling) -> Figures {
    let intervals = (steady.from / observed.interval).round() as usize..observed.tokens.len();
    let per_second = |series: &[f64]| mean(series) / observed.interval;
    let tokens = &observed.tokens[intervals.clone()];
    let ended = ends(observed, intervals);
    vec![
        (Metric::OutputThroughput, resampling.of(tokens, per_second)),
        (Metric::RequestThroughput, resampling.of(&ended, per_second)),
    ]
}

fn of_times(calls: &[&Call], resampling: &mut Resampling) -> Figures {
    let values =
        |of: fn(&Call) -> Option<f64>| calls.iter().filter_map(|call| of(call)).collect::<Vec<_>>();
    let ttft = values(|call| call.ttft);
    let latency = values(|call| Some(call.latency()));
    let input = values(|call| Some(call.input? as f64));
    let output = values(|call| Some(call.output? as f64));
    vec![
        (Metric::TtftMean, resampling.of(&ttft, mean)),
        (Metric::TtftP50, resampling.of(&ttft, median)),
        (Metric::LatencyMean, resampling.of(&latency, mean)),
        (Metric::LatencyP50, resampling.of(&latency, median)),
        (Metric::InputTokens, resampling.of(&input, mean)),
        (Metric::OutputTokens, resampling.of(&output, mean)),
    ]
}

fn of_speeds(calls: &[&Call], resampling: &mut Resampling) -> Figures {
    let timed: Vec<_> = calls.iter().filter(|call| call.tps().is_some()).collect();
    let tps: Vec<_> = timed.iter().filter_map(|call| call.tps()).collect();
    let decode = |call: &Call| call.decode.map_or((0.0, 0.0), |(n, s)| (n as f64, s));
    let reported = |call: &Call| {
        (
            decode(call).0 * call.token_ratio.unwrap_or(1.0),
            decode(call).1,
        )
    };
    let parts =
        |of: &dyn Fn(&Call) -> (f64, f64)| timed.iter().map(|call| of(call)).collect::<Vec<_>>();
    let all_reported = timed.iter().all(|call| call.token_ratio.is_some());
    let latencies: Vec<_> = timed.iter().map(|call| &call.inter_token[..]).collect();
    vec![
        (Metric::TpsMean, resampling.ratio(&tps, &parts(&decode))),
        (Metric::TpsP50, resampling.of(&tps, median)),
        (
            Metric::ReportedTpsMean,
            resampling
                .ratio(&tps, &parts(&reported))
                .filter(|_| all_reported),
        ),
        (
            Metric::ItlMean,
            resampling.ratio(&tps, &parts(&|call| (decode(call).1, decode(call).0))),
        ),
        (
            Metric::ItlP50,
            resampling.weighted_quantile(&tps, &latencies, 0.5),
        ),
        (
            Metric::ItlP99,
            resampling.weighted_quantile(&tps, &latencies, 0.99),
        ),
    ]
}

fn ends(observed: &Observed, intervals: std::ops::Range<usize>) -> Vec<f64> {
    let mut counts = vec![0.0; intervals.len()];
    for call in observed.calls.iter().filter(|call| call.failed.is_none()) {
        let number = (call.ended / observed.interval).floor() - intervals.start as f64;
        if number >= 0.0
            && let Some(count) = counts.get_mut(number as usize)
        {
            *count += 1.0;
        }
    }
    counts
}

struct Resampling {
    confidence: f64,
    random: Generator,
}

impl Resampling {
    fn of(&mut self, series: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Option<Figure> {
        if series.is_empty() {
            return None;
        }
        let options = self.options(series.len());
        let value = statistic(series);
        let found = bootstrap::interval(series, statistic, options, &mut self.random).ok();
        Some(Figure {
            value,
            lower: found.map(|found| found.interval.lower),
            upper: found.map(|found| found.interval.upper),
        })
    }

    /// Returns the sum of the first parts over the sum of the second parts. The block length comes from `series`.
    fn ratio(&mut self, series: &[f64], parts: &[(f64, f64)]) -> Option<Figure> {
        self.of_numbers(series, |numbers| {
            let chosen = numbers.iter().map(|number| parts[*number as usize]);
            let sums = chosen.fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
            sums.0 / sums.1
        })
    }

    /// Returns a weighted quantile over calls, which are resampled whole.
    fn weighted_quantile(
        &mut self,
        series: &[f64],
        calls: &[&[(f64, u32)]],
        share: f64,
    ) -> Option<Figure> {
        let mut values: Vec<f64> = calls
            .iter()
            .flat_map(|call| call.iter())
            .map(|it| it.0)
            .collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        if values.is_empty() {
            return None;
        }
        let place = |value: f64| values.partition_point(|other| *other < value);
        let weights = |call: &&[(f64, u32)]| {
            let weights = call.iter();
            weights
                .map(|(value, weight)| (place(*value), u64::from(*weight)))
                .collect::<Vec<_>>()
        };
        let calls: Vec<_> = calls.iter().map(weights).collect();
        self.of_numbers(series, |numbers| {
            let mut counts = vec![0; values.len()];
            for (place, weight) in numbers.iter().flat_map(|number| &calls[*number as usize]) {
                counts[*place] += weight;
            }
            let wanted = share * counts.iter().sum::<u64>() as f64;
            let mut below = 0;
            let at = counts.iter().position(|count| {
                below += count;
                below as f64 >= wanted
            });
            values[at.unwrap_or(values.len() - 1)]
        })
    }

    /// Returns a statistic of calls, which are resampled by index. The block length comes from `series`.
    fn of_numbers(&mut self, series: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Option<Figure> {
        let numbers: Vec<_> = (0..series.len()).map(|number| number as f64).collect();
        if numbers.is_empty() {
            return None;
        }
        let options = Options {
            block: bootstrap::block_length(series).ok(),
            ..self.options(series.len())
        };
        let value = statistic(&numbers);
        let found = bootstrap::interval(&numbers, statistic, options, &mut self.random).ok();
        Some(Figure {
            value,
            lower: found.map(|found| found.interval.lower),
            upper: found.map(|found| found.interval.upper),
        })
    }

    fn options(&self, observations: usize) -> Options {
        Options {
            confidence: self.confidence,
            resamples: if observations > MANY { 500 } else { 2_000 },
            block: None,
        }
    }
}

/// Returns the mean. There must be at least one value.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the median. There must be at least one value.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns a quantile with linear interpolation. There must be at least one value.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    let place = share * (sorted.len() - 1) as f64;
    let (_, lower, rest) = sorted.select_nth_unstable_by(place as usize, f64::total_cmp);
    let lower = *lower;
    let next = rest.iter().copied().min_by(f64::total_cmp).unwrap_or(lower);
    lower + (next - lower) * place.fract()
}

pub fn weighted_quantile(values: &[(f64, u32)], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|left, right| left.0.total_cmp(&right.0));
    let all: u64 = sorted.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let wanted = share * all as f64;
    let mut below = 0.0;
    sorted.iter().find_map(|(value, weight)| {
        below += f64::from(*weight);
        (below >= wanted).then_some(*value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 400 calls of 64 tokens, one every 0.1 s: TTFT 0.1 to 0.3 s, then 63 tokens in 0.9 to 1.1 s.
    fn observed() -> Observed {
        let call = |number: u32| {
            let phase = f64::from(number * 37 % 101) / 100.0;
            let (ttft, decode) = (0.1 + 0.2 * phase, 0.9 + 0.2 * phase);
            let begun = f64::from(number) / 10.0;
            Call {
                begun,
                ended: begun + ttft + decode,
                ttft: Some(ttft),
                decode: Some((63, decode)),
                token_ratio: Some(1.25),
                output: Some(64),
                inter_token: vec![(0.01, 32), (0.02, 31)],
                ..Call::default()
            }
        };
        Observed {
            seconds: 40.0,
            interval: 0.5,
            tokens: (0..80)
                .map(|number| 300.0 + f64::from(number * 13 % 41))
                .collect(),
            calls: (0..400).map(call).collect(),
            ..Observed::default()
        }
    }

    #[test]
    fn figures_are_what_they_are_defined_as() {
        let observed = observed();
        let steady = Steady {
            from: 10.0,
            to: 40.0,
        };
        let found = figures(&observed, steady, &Criteria::default(), 1);
        let value = |metric| found[&metric].value;
        let near = |metric, wanted: f64, share: f64| {
            assert!(
                (value(metric) / wanted - 1.0).abs() < share,
                "{metric:?}: {}",
                value(metric)
            );
        };
        near(Metric::OutputThroughput, 640.0, 0.01);
        near(Metric::RequestThroughput, 10.0, 0.05);
        near(Metric::TtftMean, 0.2, 0.01);
        near(Metric::TtftP50, 0.2, 0.02);
        near(Metric::TpsMean, 63.0, 0.01);
        near(Metric::ReportedTpsMean, 63.0 * 1.25, 0.01);
        near(Metric::LatencyMean, 1.2, 0.01);
        assert_eq!((value(Metric::ItlP50), value(Metric::ItlP99)), (0.01, 0.02));
        assert!((value(Metric::ItlMean) * value(Metric::TpsMean) - 1.0).abs() < 1e-9);
        assert_eq!(value(Metric::OutputTokens), 64.0);
        assert!(!found.contains_key(&Metric::InputTokens), "nobody said");
        let throughput = found[&Metric::OutputThroughput];
        assert!(
            throughput.lower < Some(throughput.value) && throughput.upper > Some(throughput.value)
        );
    }

    #[test]
    fn quantiles_are_between_neighbours_and_by_weight() {
        assert_eq!(median(&[4.0, 1.0, 2.0]), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.9), 3.7);
        assert_eq!(quantile(&[7.0], 0.99), 7.0);
        assert_eq!(weighted_quantile(&[(2.0, 1), (1.0, 99)], 0.99), Some(1.0));
        assert_eq!(weighted_quantile(&[], 0.5), None);
    }
}
