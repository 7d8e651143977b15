//! Compares units with units of the same stratum.

use crate::group::{Arms, Group};
use crate::metric::Metric;
use crate::stratum::Stratum;
use std::collections::BTreeMap;
use tokengauge_stats::{StatsError, stratified};

/// The minimum number of units of each group in a stratum. Smaller strata are merged.
pub const MIN_UNITS_OF_STRATUM: u64 = 10;

pub(crate) struct Strata(Vec<[Arms; 2]>);

impl Strata {
    /// Returns the strata that have enough units of both groups. Units are grouped by prompt and time, then the
    /// remaining ones by prompt or by part of a rollout, then all that still remain. The grouping depends only on the
    /// numbers of units, never on their results.
    pub(crate) fn of(baseline: &Group, changed: &Group) -> Strata {
        let mut strata: BTreeMap<Stratum, [Arms; 2]> = BTreeMap::new();
        for (side, group) in [baseline, changed].into_iter().enumerate() {
            for (stratum, arms) in group.strata() {
                merge(&mut strata.entry(*stratum).or_default()[side], arms);
            }
        }
        for coarser in [Stratum::coarser, |_| Stratum::default()] {
            let few: BTreeMap<Stratum, [Arms; 2]>;
            (strata, few) = strata.into_iter().partition(|(_, pair)| enough(pair));
            for (stratum, pair) in few {
                add(strata.entry(coarser(stratum)).or_default(), &pair);
            }
        }
        let rest = strata.remove(&Stratum::default());
        let mut strata: Vec<[Arms; 2]> = strata.into_values().collect();
        match (rest, strata.iter_mut().min_by_key(|pair| units(pair))) {
            // A remainder that is too small joins the smallest stratum.
            (Some(rest), Some(smallest)) if !enough(&rest) => add(smallest, &rest),
            (Some(rest), _) => strata.push(rest),
            (None, _) => {}
        }
        Strata(strata)
    }

    /// Returns the strata of both groups for one metric.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`stratified::Strata::new`].
    pub(crate) fn by(&self, metric: Metric) -> Result<stratified::Strata, StatsError> {
        let at = metric as usize;
        let strata = self
            .0
            .iter()
            .map(|[baseline, changed]| stratified::Stratum {
                baseline: baseline[at],
                changed: changed[at],
            });
        stratified::Strata::new(&strata.collect::<Vec<_>>())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn enough(pair: &[Arms; 2]) -> bool {
    pair.iter()
        .all(|arms| arms[0].units() >= MIN_UNITS_OF_STRATUM)
}

fn units(pair: &[Arms; 2]) -> u64 {
    pair.iter().map(|arms| arms[0].units()).sum()
}

fn add(to: &mut [Arms; 2], more: &[Arms; 2]) {
    to.iter_mut()
        .zip(more)
        .for_each(|(to, more)| merge(to, more));
}

fn merge(to: &mut Arms, more: &Arms) {
    to.iter_mut()
        .zip(more)
        .for_each(|(to, more)| to.merge(more));
}
