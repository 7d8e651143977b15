use super::quantile::{quantile, sorted};
use super::timed_call::TimedCall;
use super::totals::Totals;
use crate::query::{Band, Dimension, GroupRow, LatencyRow, SpeedRow};
use std::borrow::Cow;
use std::collections::BTreeMap;

const BANDS: [f64; 5] = [0.0, 5.0, 15.0, 30.0, 60.0];

#[derive(Clone, Debug, Default)]
pub struct Group {
    totals: Totals,
    tps: Vec<f64>,
    reported: Vec<f64>,
    reported_tokens: f64,
    reported_seconds: f64,
    ttft: Vec<f64>,
}

impl Group {
    pub fn add(&mut self, past: &TimedCall<'_>) {
        self.add_unmeasured(past);
        self.totals.add_decode(past);
        self.totals.add_wait(past);
        self.tps.extend(past.record.tps.output);
        self.ttft.extend(past.record.seconds.ttft);
        self.add_reported(past);
    }

    fn add_reported(&mut self, past: &TimedCall<'_>) {
        let Some(speed) = past.record.tps.reported.filter(|speed| speed.is_finite()) else {
            return;
        };
        let seconds = &past.record.seconds;
        let decode = seconds.last_token.zip(seconds.ttft);
        let decode = decode.map_or(0.0, |(last, first)| last - first);
        self.reported.push(speed);
        self.reported_tokens += speed * decode;
        self.reported_seconds += decode;
    }

    pub fn add_unmeasured(&mut self, past: &TimedCall<'_>) {
        self.totals.add(past);
    }

    pub fn row(self, names: Vec<Option<String>>) -> GroupRow {
        let (tps, ttft) = (sorted(self.tps), sorted(self.ttft));
        let reported = sorted(self.reported);
        GroupRow {
            name: names.first().cloned().flatten(),
            names,
            calls: self.totals.calls,
            errors: self.totals.errors,
            tps: SpeedRow {
                p50: quantile(&tps, 0.5),
                p10: quantile(&tps, 0.1),
                p5: quantile(&tps, 0.05),
                p1: quantile(&tps, 0.01),
                mean: self.totals.tps(),
                calls: tps.len() as u64,
            },
            tps_reported: SpeedRow {
                p50: quantile(&reported, 0.5),
                p10: quantile(&reported, 0.1),
                p5: quantile(&reported, 0.05),
                p1: quantile(&reported, 0.01),
                calls: reported.len() as u64,
                mean: (self.reported_seconds > 0.0)
                    .then(|| self.reported_tokens / self.reported_seconds),
            },
            ttft: LatencyRow {
                p50: quantile(&ttft, 0.5),
                p95: quantile(&ttft, 0.95),
                p99: quantile(&ttft, 0.99),
                calls: ttft.len() as u64,
                share: self.totals.ttft_share(),
            },
            tokens: self.totals.tokens,
            cost_usd: self.totals.cost_usd,
            unpriced_calls: self.totals.unpriced,
            usd_per_million_output: self.totals.usd_per_million_output(),
            bands: bands(&tps),
            requests_per_second: None,
            prompt: self.totals.prompt.known(),
            scores: Vec::new(),
        }
    }
}

fn bands(sorted: &[f64]) -> Vec<Band> {
    let below = |bound: f64| sorted.partition_point(|tps| *tps < bound);
    let uppers = BANDS.iter().skip(1).map(|bound| Some(*bound)).chain([None]);
    let bounds = BANDS.iter().zip(uppers);
    let band = |(from, to): (&f64, Option<f64>)| Band {
        from: *from,
        to,
        calls: (to.map_or(sorted.len(), below) - below(*from)) as u64,
    };
    bounds.map(band).collect()
}

#[derive(Clone, Debug)]
pub struct Groups {
    dimensions: Vec<Dimension>,
    groups: BTreeMap<Vec<Option<String>>, Group>,
}

impl Groups {
    pub fn by(dimensions: &[Dimension]) -> Groups {
        Groups {
            dimensions: dimensions.to_vec(),
            groups: BTreeMap::new(),
        }
    }

    pub fn names(&self, past: &TimedCall<'_>) -> Vec<Option<String>> {
        let value = |by: &Dimension| by.of(past.record).map(Cow::into_owned);
        self.dimensions.iter().map(value).collect()
    }

    pub fn named(&mut self, names: Vec<Option<String>>) -> &mut Group {
        self.groups.entry(names).or_default()
    }

    pub fn rows(self) -> Vec<GroupRow> {
        let groups = self.groups.into_iter();
        let mut rows: Vec<_> = groups.map(|(names, group)| group.row(names)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
        rows
    }
}

/// The rows of `calls` grouped by `dimensions`, largest number of calls first.
pub fn groups<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    dimensions: &[Dimension],
) -> Vec<GroupRow> {
    let mut groups = Groups::by(dimensions);
    for past in calls {
        let names = groups.names(&past);
        groups.named(names).add(&past);
    }
    groups.rows()
}
