use super::timed_call::TimedCall;
use crate::figures::CallFigures;
use crate::query::{
    CallUnit, CallUnitQuery, CallUnits, ExperimentUnit, ExperimentUnits, UnitKind, UnitQuery,
    UnitSums,
};
use std::collections::BTreeMap;

pub fn experiment_units<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &UnitQuery,
) -> ExperimentUnits {
    let mut tally = UnitTally::new(query.clone());
    calls.for_each(|call| tally.add(&call));
    tally.units()
}

pub fn call_units<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &CallUnitQuery,
) -> CallUnits {
    let mut found = CallUnits::default();
    let mut units: BTreeMap<String, UnitSums> = BTreeMap::new();
    for call in calls.filter(|call| super::matches(&query.filter, call)) {
        let wanted = query.variant.as_ref();
        if wanted.is_some_and(|wanted| call.record.variant.as_ref() != Some(wanted)) {
            continue;
        }
        let figures = CallFigures::of(call.record, None);
        let sums = UnitSums::of(&figures);
        found.calls += 1;
        match unit_of(&call, &figures, query.unit) {
            Some(unit) => units.entry(unit).or_default().merge(&sums),
            None => found.units.push(CallUnit { name: None, sums }),
        }
    }
    let units = units.into_iter().map(|(unit, sums)| CallUnit {
        name: Some(unit),
        sums,
    });
    found.units.extend(units);
    found
}

pub(super) fn unit_of(
    call: &TimedCall<'_>,
    figures: &CallFigures,
    kind: UnitKind,
) -> Option<String> {
    match kind {
        UnitKind::Session => call.record.session.clone(),
        UnitKind::Agent => call.record.agent.clone(),
        UnitKind::User => call.record.user.clone(),
        UnitKind::Block(_) => Some(kind.block_name(kind.block(figures.started_us))),
    }
}

#[derive(Clone, Debug)]
pub struct UnitTally {
    query: UnitQuery,
    units: BTreeMap<(Option<String>, String), UnitSums>,
    calls_without_unit: u64,
}

impl UnitTally {
    pub fn new(query: UnitQuery) -> UnitTally {
        UnitTally {
            query,
            units: BTreeMap::new(),
            calls_without_unit: 0,
        }
    }

    /// Adds a call, unless it does not belong to the experiment.
    pub fn add(&mut self, call: &TimedCall<'_>) {
        let (record, query) = (call.record, &self.query);
        let figures = CallFigures::of(record, None);
        // The enclosing call already contains the work of a nested call.
        if call.nested
            || !figures.counts()
            || record.experiment.as_deref() != Some(&query.experiment)
        {
            return;
        }
        match unit_of(call, &figures, query.unit) {
            Some(unit) => self
                .units
                .entry((record.variant.clone(), unit))
                .or_default()
                .merge(&UnitSums::of(&figures)),
            None => self.calls_without_unit += 1,
        }
    }

    pub fn units(&self) -> ExperimentUnits {
        let units = self.units.iter();
        let mut units: Vec<ExperimentUnit> = units
            .filter(|(_, sums)| self.query.matches(sums.first_at()))
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
