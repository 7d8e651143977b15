use super::quantile::{quantile, sorted};
use super::timed_call::TimedCall;
use crate::query::{Point, SeriesMetric, Timeseries};
use crate::sketch::{Sketch, histograms};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::call::{CallRecord, TpsUnavailable};
use tokengauge_core::throughput::{Generated, Steps};
use tokengauge_core::time::since_1970;

/// Maximum number of points of a time series; older points are left out.
pub const MAX_POINTS: usize = 1000;

#[derive(Default)]
struct Step {
    calls: u64,
    errors: u64,
    values: Vec<f64>,
}

/// The points of `calls` by their start, in steps on multiples of `step` since 1970, from the first
/// call to the last. `seconds` are streamed and spread tokens by second, if known; they may
/// continue after the last call's start. Otherwise the tokens of each call are spread evenly over
/// the time of its generation.
pub fn timeseries<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    metric: SeriesMetric,
    step: Duration,
    seconds: Option<&[(u64, f64, f64)]>,
) -> Timeseries {
    let width = step.as_secs().max(1);
    let mut steps: BTreeMap<u64, Step> = BTreeMap::new();
    let mut generated = Vec::new();
    for past in calls {
        let number = since_1970(past.started) as u64 / width;
        let step = steps.entry(number).or_default();
        step.calls += 1;
        step.errors += u64::from(past.failed());
        step.values.extend(match metric {
            SeriesMetric::Tps => past.record.tps.output,
            SeriesMetric::Ttft => past.record.seconds.ttft,
        });
        if seconds.is_none() {
            generated.extend(generated_by(&past));
        }
    }
    for call in &generated {
        steps.entry(call.to as u64 / width).or_default();
    }
    for (second, ..) in seconds.unwrap_or_default() {
        steps.entry(second / width).or_default();
    }
    let first = steps.first_key_value().map_or(0, |(first, _)| *first);
    let end = steps.last_key_value().map_or(0, |(last, _)| *last + 1);
    let from = first.max(end.saturating_sub(MAX_POINTS as u64));
    let mut tokens = Steps::new(from * width, width, (end - from) as usize);
    generated.iter().for_each(|call| tokens.add_call(call));
    for (second, streamed, spread) in seconds.unwrap_or_default() {
        tokens.add(*second, *streamed, *spread);
    }
    let steps: Vec<Step> = (from..end)
        .map(|number| steps.remove(&number).unwrap_or_default())
        .collect();
    let sketches: Vec<Sketch> = steps.iter().map(Step::sketch).collect();
    let (bounds, counts) = histograms(sketches.iter());
    let points = (from..end).zip(steps).zip(counts);
    let points = points.map(|((number, step), counts)| {
        let rate = tokens.rate((number - from) as usize);
        Point {
            counts,
            ..point(number * width, width, step, rate)
        }
    });
    Timeseries {
        step: width,
        points: points.collect(),
        bounds,
    }
}

impl Step {
    fn sketch(&self) -> Sketch {
        let mut sketch = Sketch::default();
        self.values.iter().for_each(|value| sketch.add(*value));
        sketch
    }
}

/// When a call generated its tokens, and how many; `None` without tokens.
fn generated_by(past: &TimedCall<'_>) -> Option<Generated> {
    let CallRecord {
        tokens,
        seconds,
        tps,
        streamed,
        ..
    } = past.record;
    let count = tokens.normalised.output.or(tokens.reported.output)?;
    let whole = *streamed == Some(false) || tps.unavailable == Some(TpsUnavailable::Buffered);
    let started = since_1970(past.started);
    let before = seconds.connect.unwrap_or(0.0) + seconds.upload.unwrap_or(0.0);
    let (from, to) = match (whole, seconds.ttft, seconds.last_token) {
        (false, Some(first), Some(last)) => (first, last),
        _ => (before, seconds.duration.unwrap_or(before)),
    };
    Some(Generated {
        from: started + from,
        to: started + to.max(from),
        tokens: count as f64,
        whole,
    })
}

fn point(at: u64, width: u64, step: Step, (tokens, spread): (f64, f64)) -> Point {
    let values = sorted(step.values);
    Point {
        at: (UNIX_EPOCH + Duration::from_secs(at)).into(),
        calls: step.calls,
        in_flight: 0,
        errors: step.errors,
        requests_per_second: step.calls as f64 / width as f64,
        p10: quantile(&values, 0.1),
        p50: quantile(&values, 0.5),
        p90: quantile(&values, 0.9),
        p99: quantile(&values, 0.99),
        counts: Vec::new(),
        tokens_per_second: Some(tokens),
        spread_tokens_per_second: Some(spread),
    }
}
