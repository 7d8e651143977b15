//! Converts sums to the rows of answers, for the ledger and for a warehouse.

use crate::ledger::aggregates::Sums;
use crate::ledger::row::{BANDS, timestamp};
use crate::query::{Band, GroupRow, LatencyRow, Point, SeriesMetric, SpeedRow, TokenSums};
use crate::sketch::Sketch;

/// The API's row for a group; `names` are the values of the group's dimensions.
pub(crate) fn group_row(names: Vec<Option<String>>, sums: &Sums) -> GroupRow {
    let usd = sums.cost_nano.map(|nano| nano as f64 / 1e9);
    let of_generations = sums.generation_nano.filter(|_| sums.priced_output > 0);
    let per_million =
        of_generations.map(|nano| nano as f64 / 1e9 * 1e6 / sums.priced_output as f64);
    GroupRow {
        name: names.first().cloned().flatten(),
        names,
        calls: count(sums.calls),
        errors: count(sums.errors),
        tps: SpeedRow {
            p50: sums.tps.quantile(0.5),
            p10: sums.tps.quantile(0.1),
            p5: sums.tps.quantile(0.05),
            p1: sums.tps.quantile(0.01),
            mean: mean_speed(sums),
            calls: sums.bands.iter().copied().map(count).sum(),
        },
        tps_reported: SpeedRow {
            p50: sums.reported.quantile(0.5),
            p10: sums.reported.quantile(0.1),
            p5: sums.reported.quantile(0.05),
            p1: sums.reported.quantile(0.01),
            mean: speed(sums.reported_millitokens, sums.reported_us).map(|milli| milli / 1e3),
            calls: sums.reported.len(),
        },
        ttft: LatencyRow {
            p50: sums.ttft.quantile(0.5),
            p95: sums.ttft.quantile(0.95),
            p99: sums.ttft.quantile(0.99),
            calls: sums.ttft.len(),
            share: (sums.waited_us > 0).then(|| sums.ttft_us as f64 / sums.waited_us as f64),
        },
        tokens: tokens(sums),
        cost_usd: usd,
        unpriced_calls: count(sums.unpriced),
        usd_per_million_output: per_million,
        requests_per_second: None,
        prompt: sums.prompt.known(),
        scores: Vec::new(),
        bands: bands(sums),
    }
}

pub(crate) fn count(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

pub(crate) fn tokens(sums: &Sums) -> TokenSums {
    TokenSums {
        input: sums.input.map(count),
        cached_input: sums.cached_input.map(count),
        output: sums.output.map(count),
        reasoning: sums.reasoning.map(count),
    }
}

pub(crate) fn mean_speed(sums: &Sums) -> Option<f64> {
    speed(sums.decode_tokens, sums.decode_us)
}

fn speed(tokens: i64, us: i64) -> Option<f64> {
    (us > 0).then(|| tokens as f64 * 1e6 / us as f64)
}

fn bands(sums: &Sums) -> Vec<Band> {
    let from = std::iter::once(0.0).chain(BANDS);
    let to = BANDS.into_iter().map(Some).chain([None]);
    let edges = from.zip(to).zip(sums.bands);
    edges
        .map(|((from, to), calls)| Band {
            from,
            to,
            calls: count(calls),
        })
        .collect()
}

impl SeriesMetric {
    pub(crate) fn sketch(self, sums: &Sums) -> &Sketch {
        match self {
            SeriesMetric::Tps => &sums.tps,
            SeriesMetric::Ttft => &sums.ttft,
        }
    }
}

/// The point of a time series that begins at `at`, in seconds since 1970.
pub(crate) fn point(
    at: i64,
    step: i64,
    metric: SeriesMetric,
    sums: &Sums,
    tokens: Option<(f64, f64)>,
) -> Point {
    let sketch = metric.sketch(sums);
    Point {
        at: timestamp(at * 1000),
        calls: count(sums.calls),
        in_flight: 0,
        errors: count(sums.errors),
        requests_per_second: sums.calls as f64 / step as f64,
        p10: sketch.quantile(0.1),
        p50: sketch.quantile(0.5),
        p90: sketch.quantile(0.9),
        p99: sketch.quantile(0.99),
        counts: Vec::new(),
        tokens_per_second: tokens.map(|(all, _)| all),
        spread_tokens_per_second: tokens.map(|(_, spread)| spread),
    }
}
