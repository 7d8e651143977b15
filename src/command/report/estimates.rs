//! The figures of a group with intervals that are clustered by session, because calls of one session depend on each
//! other.

use super::observations::{Observation, Observations};
use serde::Serialize;
use strum::VariantArray;
use tokengauge_stats::clustered::{Contributions, Sample, ratio_interval, share_interval};
use tokengauge_stats::ratio::Unit;

pub(super) const CONFIDENCE: f64 = 0.95;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Figure {
    ErrorShare,
    TpsP50,
    TpsP10,
    TpsP5,
    TpsP1,
    TpsMean,
    TpsReportedP50,
    TpsReportedP10,
    TpsReportedP5,
    TpsReportedP1,
    TpsReportedMean,
    TtftP50,
    TtftP95,
    TtftP99,
    TtftShare,
    UsdPerMillionOutput,
}

/// How a figure is computed from the calls of a group. NaN means that a call has no value.
enum FigureKind {
    Quantile(fn(&Observation) -> f64, f64),
    Ratio(fn(&Observation) -> (f64, f64)),
    Share(fn(&Observation) -> bool),
}

impl Figure {
    pub(super) fn as_str(self) -> &'static str {
        self.into()
    }

    fn kind(self) -> FigureKind {
        let tps = |call: &Observation| call.tps;
        let reported = |call: &Observation| call.reported;
        let ttft = |call: &Observation| call.ttft;
        match self {
            Figure::ErrorShare => FigureKind::Share(|call| call.failed),
            Figure::TpsP50 => FigureKind::Quantile(tps, 0.5),
            Figure::TpsP10 => FigureKind::Quantile(tps, 0.1),
            Figure::TpsP5 => FigureKind::Quantile(tps, 0.05),
            Figure::TpsP1 => FigureKind::Quantile(tps, 0.01),
            Figure::TpsMean => FigureKind::Ratio(|call| (call.tps * call.decode, call.decode)),
            Figure::TpsReportedP50 => FigureKind::Quantile(reported, 0.5),
            Figure::TpsReportedP10 => FigureKind::Quantile(reported, 0.1),
            Figure::TpsReportedP5 => FigureKind::Quantile(reported, 0.05),
            Figure::TpsReportedP1 => FigureKind::Quantile(reported, 0.01),
            Figure::TpsReportedMean => {
                FigureKind::Ratio(|call| (call.reported * call.decode, call.decode))
            }
            Figure::TtftP50 => FigureKind::Quantile(ttft, 0.5),
            Figure::TtftP95 => FigureKind::Quantile(ttft, 0.95),
            Figure::TtftP99 => FigureKind::Quantile(ttft, 0.99),
            Figure::TtftShare => FigureKind::Ratio(|call| (call.ttft, call.duration)),
            Figure::UsdPerMillionOutput => FigureKind::Ratio(|call| (call.cost * 1e6, call.output)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Estimate {
    pub(super) value: f64,
    /// The lower bound; `null` if there are too few calls or sessions.
    pub(super) lower: Option<f64>,
    pub(super) upper: Option<f64>,
    pub(super) calls: u64,
    /// The number of sessions of these calls. A call without a session counts as one.
    pub(super) sessions: u64,
}

pub(super) struct Estimator {
    calls: u64,
    of: Data,
}

enum Data {
    Quantile(Sample, f64),
    Ratio(Vec<(u32, Unit)>),
    Share(Vec<(u32, Unit)>),
}

impl Estimator {
    /// Returns `None` if no call has the figure.
    pub(super) fn of(figure: Figure, calls: &[Observation]) -> Option<Estimator> {
        let (count, of) = match figure.kind() {
            FigureKind::Quantile(value, share) => {
                let values = calls.iter().map(|call| (value(call), call.unit));
                let values: Vec<_> = values.filter(|(value, _)| !value.is_nan()).collect();
                let count = values.len();
                (count, Data::Quantile(Sample::new(values).ok()?, share))
            }
            FigureKind::Ratio(parts) => {
                let (count, units) = by_unit(calls, parts);
                let all: f64 = units.iter().map(|(_, unit)| unit.denominator).sum();
                (count, Data::Ratio(Some(units).filter(|_| all > 0.0)?))
            }
            FigureKind::Share(is) => {
                let parts = |call: &Observation| (f64::from(u8::from(is(call))), 1.0);
                let (count, units) = by_unit(calls, parts);
                (count, Data::Share(units))
            }
        };
        (count > 0).then_some(Estimator {
            calls: count as u64,
            of,
        })
    }

    pub(super) fn estimate(&self, confidence: f64) -> Estimate {
        let (value, bounds, sessions) = match &self.of {
            Data::Quantile(sample, share) => {
                let bounds = sample.quantile_interval(*share, confidence).ok();
                let bounds = bounds.map(|bounds| (bounds.lower, bounds.upper));
                (sample.quantile(*share), bounds, sample.units())
            }
            Data::Ratio(units) => {
                let parts = units.iter().map(|(_, unit)| *unit);
                let interval = ratio_interval(parts, confidence).ok();
                let bounds = interval.map(|bounds| (Some(bounds.lower), Some(bounds.upper)));
                (ratio(units), bounds, units.len())
            }
            Data::Share(units) => {
                let parts = units
                    .iter()
                    .map(|(_, unit)| (unit.numerator, unit.denominator));
                let interval = share_interval(parts, confidence).ok();
                let bounds = interval.map(|bounds| (Some(bounds.lower), Some(bounds.upper)));
                (ratio(units), bounds, units.len())
            }
        };
        let (lower, upper) = bounds.unwrap_or_default();
        Estimate {
            value,
            lower,
            upper,
            calls: self.calls,
            sessions: sessions as u64,
        }
    }

    pub(super) fn contributions(&self) -> Contributions {
        match &self.of {
            Data::Quantile(sample, share) => sample.contributions(*share),
            Data::Ratio(units) | Data::Share(units) => {
                let value = ratio(units);
                let error = |unit: &Unit| unit.numerator - value * unit.denominator;
                units
                    .iter()
                    .map(|(number, unit)| (*number, error(unit)))
                    .collect()
            }
        }
    }
}

/// Returns the sums of each session by its number, and the number of calls.
fn by_unit(
    calls: &[Observation],
    parts: impl Fn(&Observation) -> (f64, f64),
) -> (usize, Vec<(u32, Unit)>) {
    let parts = calls.iter().map(|call| (call.unit, parts(call)));
    let known = parts.filter(|(_, (upper, lower))| !upper.is_nan() && !lower.is_nan());
    let mut parts: Vec<_> = known.collect();
    parts.sort_by_key(|(unit, _)| *unit);
    let mut units: Vec<(u32, Unit)> = Vec::new();
    for (number, (numerator, denominator)) in &parts {
        match units.last_mut() {
            Some((last, unit)) if last == number => {
                unit.numerator += numerator;
                unit.denominator += denominator;
            }
            _ => units.push((
                *number,
                Unit {
                    numerator: *numerator,
                    denominator: *denominator,
                },
            )),
        }
    }
    (parts.len(), units)
}

fn ratio(units: &[(u32, Unit)]) -> f64 {
    let sums = units.iter().fold((0.0, 0.0), |sums, (_, unit)| {
        (sums.0 + unit.numerator, sums.1 + unit.denominator)
    });
    sums.0 / sums.1
}

pub(super) fn estimates(group: &Observations) -> Vec<(Figure, Estimate)> {
    let known = Figure::VARIANTS.iter();
    let estimate = |figure: &Figure| {
        let estimator = Estimator::of(*figure, &group.calls)?;
        Some((*figure, estimator.estimate(CONFIDENCE)))
    };
    known.filter_map(estimate).collect()
}

/// Returns the share of calls with a speed of at least `from` and below `to`.
pub(super) fn band(group: &Observations, from: f64, to: Option<f64>) -> Option<Estimate> {
    let known = |call: &Observation| {
        if call.tps.is_nan() {
            (f64::NAN, f64::NAN)
        } else {
            let within = call.tps >= from && to.is_none_or(|to| call.tps < to);
            (f64::from(u8::from(within)), 1.0)
        }
    };
    let (calls, units) = by_unit(&group.calls, known);
    let estimator = Estimator {
        calls: calls as u64,
        of: Data::Share(units),
    };
    (calls > 0).then(|| estimator.estimate(CONFIDENCE))
}

pub(super) fn independent(values: &[f64], share: Option<f64>) -> Option<Estimate> {
    let numbered = values.iter().copied().zip(0..).collect();
    let sample = Sample::new(numbered).ok()?;
    let (value, lower, upper) = match share {
        Some(share) => {
            let bounds = sample.quantile_interval(share, CONFIDENCE).ok();
            let bounds = bounds.map_or((None, None), |bounds| (bounds.lower, bounds.upper));
            (sample.quantile(share), bounds.0, bounds.1)
        }
        None => {
            let parts = values.iter().map(|value| Unit {
                numerator: *value,
                denominator: 1.0,
            });
            let interval = ratio_interval(parts, CONFIDENCE).ok();
            (
                values.iter().sum::<f64>() / values.len() as f64,
                interval.map(|interval| interval.lower),
                interval.map(|interval| interval.upper),
            )
        }
    };
    let calls = values.len() as u64;
    Some(Estimate {
        value,
        lower,
        upper,
        calls,
        sessions: calls,
    })
}
