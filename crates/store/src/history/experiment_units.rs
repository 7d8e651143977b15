//! Experiments by unit, of calls at hand.

use super::timed_call::TimedCall;
use crate::figures::CallFigures;
use crate::query::{ExperimentUnit, ExperimentUnits, UnitKind, UnitQuery, UnitSums};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The units of an experiment: the same as of the ledger.
pub fn experiment_units<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &UnitQuery,
) -> ExperimentUnits {
    let mut found = ExperimentUnits::default();
    let mut units: BTreeMap<(Option<&str>, Cow<'a, str>), UnitSums> = BTreeMap::new();
    for call in calls {
        let record = call.record;
        let figures = CallFigures::of(record, call.started, None);
        // The enclosing call adds what a unit did.
        if call.nested
            || !figures.counts()
            || record.experiment.as_deref() != Some(&query.experiment)
        {
            continue;
        }
        let unit = match query.unit {
            UnitKind::Session => record.session.as_deref().map(Cow::from),
            UnitKind::Agent => record.agent.as_deref().map(Cow::from),
            UnitKind::User => record.user.as_deref().map(Cow::from),
            UnitKind::Block(_) => {
                let block = query.unit.block(figures.started_us);
                Some(query.unit.block_name(block).into())
            }
        };
        match unit {
            Some(unit) => units
                .entry((record.variant.as_deref(), unit))
                .or_default()
                .merge(&UnitSums::of(&figures)),
            None => found.calls_without_unit += 1,
        }
    }
    let units = units.into_iter();
    let units = units.filter(|(_, sums)| query.matches(sums.first_at()));
    found.units = units
        .map(|((variant, unit), sums)| ExperimentUnit {
            variant: variant.map(str::to_owned),
            unit: unit.into_owned(),
            sums,
        })
        .collect();
    found.units.sort_by(|one, other| {
        let order = |unit: &ExperimentUnit| (unit.variant.clone(), unit.sums.first_us);
        (order(one), &one.unit).cmp(&(order(other), &other.unit))
    });
    found
}
