//! What calls cost over time, by something they have in common.

use super::QueryError;
use super::groups::{Value, count, group, level, plan, tokens};
use super::matching::Matching;
use super::scan::{Part, SketchSelection, SlotId, Slots, split, visit};
use crate::ledger::aggregates::Sums;
use crate::ledger::dictionary::SeriesNames;
use crate::ledger::row::Share;
use crate::query::{CostQuery, CostSeries, CostSums, Costs};
use rusqlite::Connection;
use std::collections::BTreeMap;
use tokengauge_core::hash::FastMap;

/// The costs over time. They are added up twice: at first to learn which series are shown, so that the sums by
/// step are those of a few.
pub(super) fn costs(connection: &Connection, query: &CostQuery) -> Result<Costs, QueryError> {
    let step = i64::try_from(query.step.as_secs().max(1)).unwrap_or(i64::MAX);
    let nothing = Costs {
        step: step as u64,
        ..Costs::default()
    };
    let Some(matching) = Matching::of(connection, &query.filter)? else {
        return Ok(nothing);
    };
    let by = &[query.by];
    let parts = parts_of(connection, query, &matching, step)?;
    let whole = match parts.iter().any(|part| part.level.is_some()) {
        true => plan(&matching, true),
        false => parts.clone(),
    };
    let mut known = FastMap::default();
    let mut totals = Slots::default();
    visit_all(
        connection,
        &matching,
        &whole,
        &mut totals,
        |_, names, share| group(&mut known, by, names, share),
    )?;
    let series = ranked(connection, known, &totals)?;
    // What is in no series of its own, and what was written in between.
    let others = series.len().min(query.most);
    let places: FastMap<Vec<Value>, usize> = (series.iter().take(query.most).enumerate())
        .map(|(place, (values, _))| (values.clone(), place))
        .collect();
    let mut cells: FastMap<(usize, i64), SlotId> = FastMap::default();
    let mut sums = Slots::default();
    visit_all(
        connection,
        &matching,
        &parts,
        &mut sums,
        |ms, names, share| {
            let values = [Value::of(query.by, names, share)];
            let place = places.get(&values[..]).copied().unwrap_or(others);
            let at = ms.div_euclid(1000).div_euclid(step) * step;
            let next = cells.len();
            *cells.entry((place, at)).or_insert(next)
        },
    )?;
    let mut steps: Vec<BTreeMap<u64, CostSums>> = vec![BTreeMap::new(); others + 1];
    for ((place, at), slot) in cells {
        steps[place].insert(count(at), of_sums(&sums.0[slot]));
    }
    let rest = steps.pop().filter(|steps| !steps.is_empty());
    let left_out = series.len().saturating_sub(others) as u64;
    let named = series.into_iter().zip(steps);
    Ok(Costs {
        series: named
            .map(|((_, name), steps)| CostSeries::of(name, 1, steps))
            .collect(),
        others: rest.map(|steps| CostSeries::of(None, left_out, steps)),
        ..nothing
    })
}

/// The values and the names of all groups, the most expensive first.
type Ranked = Vec<(Vec<Value>, Option<String>)>;

fn ranked(
    connection: &Connection,
    known: FastMap<Vec<Value>, SlotId>,
    totals: &Slots,
) -> Result<Ranked, QueryError> {
    let mut all = Vec::new();
    for (values, slot) in known {
        let name = match values.first() {
            Some(value) => value.clone().text(connection)?,
            None => None,
        };
        let rank = of_sums(&totals.0[slot]).rank();
        all.push((rank, name, values));
    }
    all.sort();
    let all = all.into_iter();
    Ok(all.map(|(_, name, values)| (values, name)).collect())
}

/// The parts of the time: from the longest sums of which whole ones fit into a step, else from the calls.
fn parts_of(
    connection: &Connection,
    query: &CostQuery,
    matching: &Matching,
    step: i64,
) -> Result<Vec<Part>, QueryError> {
    let whole = plan(matching, false);
    if !query.filter.summed(&[query.by]) {
        return Ok(whole);
    }
    let since = matching.since.unwrap_or(0);
    let Some(level) = level(matching, connection, since.div_euclid(1000), step)? else {
        return Ok(whole);
    };
    let mut parts = Vec::new();
    let until = matching.until.unwrap_or(i64::MAX);
    split(since, until, &[level], &mut parts);
    Ok(parts)
}

fn visit_all(
    connection: &Connection,
    matching: &Matching,
    parts: &[Part],
    slots: &mut Slots,
    mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
) -> Result<(), QueryError> {
    for part in parts {
        visit(
            connection,
            matching,
            (*part, SketchSelection::NONE),
            &mut slot,
            slots,
        )?;
    }
    Ok(())
}

fn of_sums(sums: &Sums) -> CostSums {
    CostSums {
        calls: count(sums.calls),
        errors: count(sums.errors),
        tokens: tokens(sums),
        cost_usd: sums.cost_nano.map(|nano| nano as f64 / 1e9),
        unpriced_calls: count(sums.unpriced),
    }
}
