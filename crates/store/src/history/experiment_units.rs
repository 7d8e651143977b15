//! Experiments by unit, of calls at hand.

use super::timed_call::TimedCall;
use crate::figures::CallFigures;
use crate::query::{ExperimentUnit, ExperimentUnits, UnitKind, UnitQuery, UnitSums};
use std::collections::BTreeMap;

/// The units of an experiment: the same as of the ledger.
pub fn experiment_units<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &UnitQuery,
) -> ExperimentUnits {
    let mut tally = UnitTally::new(query.clone());
    calls.for_each(|call| tally.add(&call));
    tally.units()
}

/// The units of an experiment, of calls that come one after the other.
#[derive(Clone, Debug)]
pub struct UnitTally {
    query: UnitQuery,
    units: BTreeMap<(Option<String>, String), UnitSums>,
    calls_without_unit: u64,
}

impl UnitTally {
    /// Without a call.
    pub fn new(query: UnitQuery) -> UnitTally {
        UnitTally {
            query,
            units: BTreeMap::new(),
            calls_without_unit: 0,
        }
    }

    /// Adds a call; one that is not of the experiment changes nothing.
    pub fn add(&mut self, call: &TimedCall<'_>) {
        let (record, query) = (call.record, &self.query);
        let figures = CallFigures::of(record, call.started, None);
        // The enclosing call adds what a unit did.
        if call.nested
            || !figures.counts()
            || record.experiment.as_deref() != Some(&query.experiment)
        {
            return;
        }
        let unit = match query.unit {
            UnitKind::Session => record.session.clone(),
            UnitKind::Agent => record.agent.clone(),
            UnitKind::User => record.user.clone(),
            UnitKind::Block(_) => {
                let block = query.unit.block(figures.started_us);
                Some(query.unit.block_name(block))
            }
        };
        match unit {
            Some(unit) => self
                .units
                .entry((record.variant.clone(), unit))
                .or_default()
                .merge(&UnitSums::of(&figures)),
            None => self.calls_without_unit += 1,
        }
    }

    /// The units so far.
    pub fn units(&self) -> ExperimentUnits {
        let units = self.units.iter();
        let units = units.filter(|(_, sums)| self.query.matches(sums.first_at()));
        let mut units: Vec<ExperimentUnit> = units
            .map(|((variant, unit), sums)| ExperimentUnit {
                variant: variant.clone(),
                unit: unit.clone(),
                sums: sums.clone(),
            })
            .collect();
        units.sort_by(|one, other| {
            let order = |unit: &ExperimentUnit| (unit.variant.clone(), unit.sums.first_us);
            (order(one), &one.unit).cmp(&(order(other), &other.unit))
        });
        ExperimentUnits {
            units,
            calls_without_unit: self.calls_without_unit,
            ..ExperimentUnits::default()
        }
    }
}
