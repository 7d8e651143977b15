//! The scores of the calls in memory that match, by group and unit.

use super::experiment_units::unit_of;
use super::timed_call::TimedCall;
use crate::figures::CallFigures;
use crate::query::{ScoreIndex, ScoreQuery, ScoreTally, ScoredUnit};
use std::borrow::Cow;

pub fn scored_units<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    index: &ScoreIndex,
    query: &ScoreQuery,
) -> Vec<ScoredUnit> {
    let mut tally = ScoreTally::new();
    for call in calls.filter(|call| super::matches(&query.filter, call)) {
        let record = call.record;
        let wanted = query.variant.as_ref();
        if wanted.is_some_and(|wanted| record.variant.as_ref() != Some(wanted)) {
            continue;
        }
        let ids: Vec<_> = index.ids_of_record(record).collect();
        if ids.is_empty() {
            continue;
        }
        let value = |by: &tokengauge_core::dimension::Dimension| by.of(record).map(Cow::into_owned);
        let group: Vec<Option<String>> = query.by.iter().map(value).collect();
        // A call that names no unit is one by itself.
        let unit = unit_of(&call, &CallFigures::of(record, None), query.unit);
        let unit = unit.map_or_else(
            || (None, Some(record.id.clone())),
            |unit| (Some(unit), None),
        );
        tally.add(group, unit, &ids);
    }
    let units = tally.into_units(index);
    units
        .map(|((names, (unit, _)), scores)| ScoredUnit {
            names,
            unit,
            scores,
        })
        .collect()
}
