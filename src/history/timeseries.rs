//! Calls over time.

use super::past::Past;
use super::quantile::{quantile, sorted};
use super::time::written as instant;
use super::totals;
use crate::ledger::{Point, SeriesMetric, Timeseries};
use crate::slo::since_1970;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// Points of a time series at most: the newest.
pub const MAX_POINTS: usize = 1000;

/// What began within one step.
#[derive(Default)]
struct Step {
    calls: u64,
    values: Vec<f64>,
    tokens: u64,
}

/// The points of `calls` by their start, in steps of whole `step`s since 1970, from the
/// first call to the last.
pub fn timeseries<'a>(
    calls: impl Iterator<Item = Past<'a>>,
    metric: SeriesMetric,
    step: Duration,
) -> Timeseries {
    let width = step.as_secs().max(1);
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    for past in calls {
        let number = since_1970(past.started) as u64 / width;
        let step = steps.entry(number).or_default();
        step.calls += 1;
        step.values.extend(match metric {
            SeriesMetric::Tps => past.record.tps.output,
            SeriesMetric::Ttft => past.record.seconds.ttft,
        });
        step.tokens += totals::tokens(past.record).output.unwrap_or(0);
    }
    let first = steps.first_key_value().map_or(0, |(first, _)| *first);
    let end = steps.last_key_value().map_or(0, |(last, _)| *last + 1);
    let from = first.max(end.saturating_sub(MAX_POINTS as u64));
    let points = (from..end).map(|number| {
        let step = steps.remove(&number).unwrap_or_default();
        point(number * width, step, width)
    });
    Timeseries {
        step: width,
        points: points.collect(),
    }
}

fn point(at: u64, step: Step, width: u64) -> Point {
    let values = sorted(step.values);
    Point {
        at: instant(UNIX_EPOCH + Duration::from_secs(at)),
        calls: step.calls,
        p10: quantile(&values, 0.1),
        p50: quantile(&values, 0.5),
        p90: quantile(&values, 0.9),
        p99: quantile(&values, 0.99),
        tokens_per_second: Some(step.tokens as f64 / width as f64),
    }
}
