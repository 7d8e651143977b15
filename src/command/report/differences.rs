//! Differences between the rows of a report and its baseline, with simultaneous intervals.

use super::estimates::{CONFIDENCE, Estimator, Figure};
use super::observations::Observations;
use serde::Serialize;
use tokengauge_core::fingerprint::Fingerprint;
use tokengauge_stats::Interval;
use tokengauge_stats::clustered::{Bounded, correlation, difference, relative_difference};

/// The compared figures. There are only a few, because each one widens the intervals of all.
pub(super) const COMPARED: [Figure; 6] = [
    Figure::TpsP50,
    Figure::TpsMean,
    Figure::TtftP50,
    Figure::TtftP95,
    Figure::ErrorShare,
    Figure::UsdPerMillionOutput,
];

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Differences {
    pub(super) baseline: Vec<Option<String>>,
    /// The simultaneous confidence of all intervals.
    pub(super) confidence: f64,
    /// The confidence of each interval after the Bonferroni correction.
    pub(super) confidence_of_each: f64,
    pub(super) rows: Vec<RowDifferences>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RowDifferences {
    pub(super) names: Vec<Option<String>>,
    pub(super) figures: Vec<Difference>,
    /// The respects in which the row's work differs from the baseline's.
    pub(super) other_work: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Difference {
    pub(super) figure: &'static str,
    /// Whether the difference is relative to the baseline (0.08 is 8 % more). Otherwise it is a difference of shares.
    pub(super) relative: bool,
    pub(super) value: f64,
    /// The lower bound; `null` if either row has too few calls or sessions.
    pub(super) lower: Option<f64>,
    pub(super) upper: Option<f64>,
}

impl Difference {
    pub(super) fn is_shown(&self) -> bool {
        self.lower.is_some_and(|lower| lower > 0.0) || self.upper.is_some_and(|upper| upper < 0.0)
    }
}

#[derive(Clone, Copy)]
pub(super) struct ComparedRow<'a> {
    pub(super) names: &'a [Option<String>],
    pub(super) calls: &'a Observations,
    pub(super) fingerprint: &'a Fingerprint,
}

type Known = Vec<(Figure, Estimator)>;

/// Compares rows with a baseline. Returns `None` if there is no other row.
pub(super) fn differences(
    baseline: ComparedRow<'_>,
    others: &[ComparedRow<'_>],
) -> Option<Differences> {
    let known = |row: &ComparedRow<'_>| -> Known {
        let figures = COMPARED.into_iter();
        figures
            .filter_map(|figure| Some((figure, Estimator::of(figure, &row.calls.calls)?)))
            .collect()
    };
    let before = known(&baseline);
    let after: Vec<_> = others.iter().map(|row| (row, known(row))).collect();
    let of_both = |figure: Figure, after: &Known| {
        let found = |known: &Known| known.iter().any(|(other, _)| *other == figure);
        found(&before) && found(after)
    };
    let count: usize = after
        .iter()
        .map(|(_, after)| {
            let compared = COMPARED.iter();
            compared.filter(|figure| of_both(**figure, after)).count()
        })
        .sum();
    if count == 0 {
        return None;
    }
    let each = 1.0 - (1.0 - CONFIDENCE) / count as f64;
    let rows = after.iter().map(|(row, after)| RowDifferences {
        names: row.names.to_vec(),
        figures: of_row(&before, after, each),
        other_work: baseline.fingerprint.differences(row.fingerprint),
    });
    Some(Differences {
        baseline: baseline.names.to_vec(),
        confidence: CONFIDENCE,
        confidence_of_each: each,
        rows: rows.collect(),
    })
}

fn of_row(before: &Known, after: &Known, confidence: f64) -> Vec<Difference> {
    let pair = |(figure, old): &(Figure, Estimator)| {
        let (_, new) = after.iter().find(|(other, _)| other == figure)?;
        of_figure(*figure, old, new, confidence)
    };
    before.iter().filter_map(pair).collect()
}

/// Returns `None` for a relative difference from 0.
fn of_figure(
    figure: Figure,
    old: &Estimator,
    new: &Estimator,
    confidence: f64,
) -> Option<Difference> {
    let (before, after) = (old.estimate(confidence), new.estimate(confidence));
    let relative = figure != Figure::ErrorShare;
    if relative && before.value <= 0.0 {
        return None;
    }
    let value = if relative {
        after.value / before.value - 1.0
    } else {
        after.value - before.value
    };
    // Sessions with calls in both rows correlate the errors.
    let together = correlation(&old.contributions(), &new.contributions());
    let between = |a: Bounded, b: Bounded| {
        if relative {
            relative_difference(&a, &b, together).map(|found| found.interval)
        } else {
            difference(&a, &b, together)
        }
        .ok()
    };
    // Each bound depends only on the far bound of one figure and the near bound of the other.
    let low = before.upper.zip(after.lower).and_then(|(upper, lower)| {
        between(
            bounded(before.value, before.value, upper),
            bounded(after.value, lower, after.value),
        )
    });
    let high = before.lower.zip(after.upper).and_then(|(lower, upper)| {
        between(
            bounded(before.value, lower, before.value),
            bounded(after.value, after.value, upper),
        )
    });
    Some(Difference {
        figure: figure.as_str(),
        relative,
        value,
        lower: low.map(|interval| interval.lower),
        upper: high.map(|interval| interval.upper),
    })
}

fn bounded(value: f64, lower: f64, upper: f64) -> Bounded {
    Bounded {
        value,
        interval: Interval { lower, upper },
    }
}
