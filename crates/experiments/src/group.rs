//! The sums of a group of units for every metric, so that no unit has to be stored.

use crate::metric::{METRICS, Metric};
use crate::observed::Sums;
use crate::stratum::Stratum;
use std::collections::BTreeMap;
use tokengauge_stats::ratio::{Arm, Unit};

pub(crate) type Arms = [Arm; METRICS];

/// The units of one side of a comparison. Each unit is added once, when it is complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    metrics: [Tally; METRICS],
    without_tps: Tally,
    without_ttft: Tally,
    strata: BTreeMap<Stratum, Arms>,
    calls: u64,
    failures: u64,
    cut_off: u64,
    priced_calls: u64,
    ttft_calls: u64,
    tps_calls: u64,
    other_scores: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub arm: Arm,
    /// The number of units with a numerator above 0.
    pub with: u64,
    /// The number of units whose denominator exceeds the numerator.
    pub without: u64,
}

impl Tally {
    fn push(&mut self, unit: Unit) {
        self.arm.push(unit);
        self.with += u64::from(unit.numerator > 0.0);
        self.without += u64::from(unit.denominator > unit.numerator);
    }
}

impl Group {
    pub fn push(&mut self, stratum: Stratum, sums: &Sums) {
        let arms = self.strata.entry(stratum).or_default();
        let tallies = self.metrics.iter_mut().zip(arms);
        for ((tally, arm), metric) in tallies.zip(Metric::ALL) {
            tally.push(metric.of(sums));
            arm.push(metric.of(sums));
        }
        let of_calls = |calls: u64| Unit {
            numerator: calls as f64,
            denominator: sums.calls as f64,
        };
        self.without_tps.push(of_calls(sums.tps_unavailable));
        self.without_ttft.push(of_calls(sums.ttft_unavailable));
        self.calls += sums.calls;
        self.failures += sums.failures;
        self.cut_off += sums.cut_off;
        self.priced_calls += sums.priced_calls;
        self.ttft_calls += sums.ttft_calls;
        self.tps_calls += sums.tps_calls;
        self.other_scores += u64::from(!sums.score.binary);
    }

    pub fn units(&self) -> u64 {
        self.without_tps.arm.units()
    }

    pub fn calls(&self) -> u64 {
        self.calls
    }

    pub fn value(&self, metric: Metric) -> Option<f64> {
        if metric == Metric::Cost && self.priced_calls == 0 {
            return None;
        }
        // A single unit has a value but no variance.
        let mut arm = self.tally(metric).arm;
        if arm.units() == 1 {
            arm.merge(&arm.clone());
        }
        arm.ratio().ok().map(|ratio| ratio.value)
    }

    pub(crate) fn unpriced(&self) -> u64 {
        (self.calls - self.priced_calls.min(self.calls)).saturating_sub(self.failures)
    }

    pub(crate) fn priced_calls(&self) -> u64 {
        self.priced_calls
    }

    pub(crate) fn ttft_calls(&self) -> u64 {
        self.ttft_calls
    }

    pub(crate) fn tps_calls(&self) -> u64 {
        self.tps_calls
    }

    pub fn tally(&self, metric: Metric) -> &Tally {
        &self.metrics[metric as usize]
    }

    pub(crate) fn strata(&self) -> &BTreeMap<Stratum, Arms> {
        &self.strata
    }

    /// Returns whether the metric is a share: of calls, or of scores if all scores are 0 or 1.
    pub fn is_share(&self, metric: Metric) -> bool {
        match metric {
            Metric::Score => self.other_scores == 0,
            _ => !metric.is_relative(),
        }
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    pub(crate) fn cut_off(&self) -> u64 {
        self.cut_off
    }

    /// Returns the ended calls that the metric does not cover, as a share of all calls: calls without a decode speed or
    /// without a time to first token.
    pub(crate) fn unmeasured(&self, metric: Metric) -> Option<&Tally> {
        match metric {
            Metric::Tps | Metric::TpsBelow => Some(&self.without_tps),
            Metric::TtftAbove => Some(&self.without_ttft),
            _ => None,
        }
    }
}

impl FromIterator<(Stratum, Sums)> for Group {
    fn from_iter<I: IntoIterator<Item = (Stratum, Sums)>>(units: I) -> Self {
        let mut group = Group::default();
        for (stratum, sums) in units {
            group.push(stratum, &sums);
        }
        group
    }
}

impl FromIterator<Sums> for Group {
    fn from_iter<I: IntoIterator<Item = Sums>>(units: I) -> Self {
        let units = units.into_iter();
        units.map(|sums| (Stratum::default(), sums)).collect()
    }
}
