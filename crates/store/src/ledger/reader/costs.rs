use super::QueryError;
use super::groups::{Value, group, plan, rollups};
use super::matching::Matching;
use super::scan::{Part, SketchSelection, SlotId, Slots, Source, split, visit};
use crate::answer::{count, tokens};
use crate::ledger::aggregates::Sums;
use crate::ledger::dictionary::SeriesNames;
use crate::ledger::rollups::LEVELS;
use crate::ledger::row::{Share, started_ms};
use crate::query::{CostQuery, CostSeries, CostSums, Costs, DailySums, Dimension};
use rusqlite::Connection;
use std::collections::BTreeMap;
use tokengauge_core::dimension::Kept;
use tokengauge_core::hash::FastMap;

/// Maximum number of sums by name and step in memory: about 16 MB. If there may be more, everything
/// is summed twice; the first pass finds the series to show.
const MAX_CELLS: i64 = 50_000;
/// Number of classes of length, including one for unknown lengths.
const MAX_CLASSES: i64 = 8;

pub(super) fn costs(connection: &Connection, query: &CostQuery) -> Result<Costs, QueryError> {
    let step = i64::try_from(query.step.as_secs().max(1)).unwrap_or(i64::MAX);
    let nothing = Costs {
        step: step as u64,
        ..Costs::default()
    };
    let Some(matching) = Matching::of(connection, &query.filter)? else {
        return Ok(nothing);
    };
    let scan = CostScan {
        connection,
        matching: &matching,
        by: query.by,
        step,
    };
    let parts = parts_of(connection, query, &matching, step)?;
    let (series, cells) = if scan.most_cells()? <= MAX_CELLS {
        scan.once(&parts)?
    } else {
        scan.twice(&parts, query.most)?
    };
    // The calls of all other names, and calls that were written between the two passes.
    let others = series.len().min(query.most);
    let mut steps: Vec<BTreeMap<i64, Sums>> = vec![BTreeMap::new(); others + 1];
    for ((place, at), slot) in cells.slots {
        let sums = steps[place.min(others)].entry(at).or_default();
        sums.merge_counts(&cells.sums.0[slot]);
    }
    let rest = steps.pop().filter(|steps| !steps.is_empty());
    let left_out = series.len().saturating_sub(others) as u64;
    let named = series.into_iter().zip(steps);
    Ok(Costs {
        series: named
            .map(|(name, steps)| of_steps(name, 1, steps))
            .collect(),
        others: rest.map(|steps| of_steps(None, left_out, steps)),
        ..nothing
    })
}

type Ranked = Vec<Option<String>>;

/// Sums by series and step, in seconds since 1970.
#[derive(Default)]
struct Cells {
    slots: FastMap<(usize, i64), SlotId>,
    sums: Slots,
}

struct CostScan<'a> {
    connection: &'a Connection,
    matching: &'a Matching,
    by: Dimension,
    step: i64,
}

impl CostScan<'_> {
    fn most_cells(&self) -> Result<i64, QueryError> {
        let (Some(since), Some(until)) = (self.matching.since, self.matching.until) else {
            return Ok(i64::MAX);
        };
        let names = match self.by.definition().kept {
            Kept::Class => MAX_CLASSES,
            _ => {
                let sql = "SELECT count(*) + 1 FROM names WHERE kind = ?";
                let mut names = self.connection.prepare_cached(sql)?;
                names.query_row([self.by.column()], |row| row.get(0))?
            }
        };
        let steps = until.saturating_sub(since) / 1000 / self.step + 2;
        Ok(names.saturating_mul(steps))
    }

    /// Sums everything by name and step in one pass.
    fn once(&self, parts: &[Part]) -> Result<(Ranked, Cells), QueryError> {
        let mut known = FastMap::default();
        let mut cells = self.cells(parts, |names, share| {
            group(&mut known, &[self.by], names, share)
        })?;
        let mut totals = Slots::default();
        for ((name, _), slot) in &cells.slots {
            totals.at(*name).merge_counts(&cells.sums.0[*slot]);
        }
        let (series, places) = ranked(self.connection, &known, &totals)?;
        let slots = cells.slots.into_iter();
        cells.slots = slots
            .map(|((name, at), slot)| ((places[name], at), slot))
            .collect();
        Ok((series, cells))
    }

    /// Sums everything by name, then sums the `most` expensive names and the rest by step.
    fn twice(&self, parts: &[Part], most: usize) -> Result<(Ranked, Cells), QueryError> {
        let of_rollups = |part: &Part| matches!(part.source, Source::Rollups(_));
        let longest = if parts.iter().any(of_rollups) {
            plan(self.matching, true)
        } else {
            parts.to_vec()
        };
        let mut known = FastMap::default();
        let mut totals = Slots::default();
        self.visit(&longest, &mut totals, |_, names, share| {
            group(&mut known, &[self.by], names, share)
        })?;
        let (series, places) = ranked(self.connection, &known, &totals)?;
        let cells = self.cells(parts, |names, share| {
            let values = [Value::of(self.by, names, share)];
            let name = known.get(&values[..]);
            name.map_or(most, |name| places[*name].min(most))
        })?;
        Ok((series, cells))
    }

    fn cells(
        &self,
        parts: &[Part],
        mut series: impl FnMut(&SeriesNames, Option<&Share>) -> usize,
    ) -> Result<Cells, QueryError> {
        let mut cells = Cells::default();
        let slots = &mut cells.slots;
        self.visit(parts, &mut cells.sums, |ms, names, share| {
            let at = ms.div_euclid(1000).div_euclid(self.step) * self.step;
            let next = slots.len();
            *slots.entry((series(names, share), at)).or_insert(next)
        })?;
        Ok(cells)
    }

    fn visit(
        &self,
        parts: &[Part],
        slots: &mut Slots,
        mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
    ) -> Result<(), QueryError> {
        for part in parts {
            let part = (*part, SketchSelection::NONE);
            visit(self.connection, self.matching, part, &mut slot, slots)?;
        }
        Ok(())
    }
}

/// The names of all groups, most expensive first, and the rank of each group.
fn ranked(
    connection: &Connection,
    known: &FastMap<Vec<Value>, SlotId>,
    totals: &Slots,
) -> Result<(Ranked, Vec<usize>), QueryError> {
    let mut all = Vec::new();
    for (values, group) in known {
        let name = match values.first() {
            Some(value) => value.clone().text(connection)?,
            None => None,
        };
        all.push((of_sums(&totals.0[*group]).rank(), name, *group));
    }
    all.sort();
    let mut places = vec![0; all.len()];
    for (place, (.., group)) in all.iter().enumerate() {
        places[*group] = place;
    }
    let names = all.into_iter().map(|(_, name, _)| name);
    Ok((names.collect(), places))
}

/// The parts of the time: from the longest rollups that fit into a step, otherwise from the calls.
fn parts_of(
    connection: &Connection,
    query: &CostQuery,
    matching: &Matching,
    step: i64,
) -> Result<Vec<Part>, QueryError> {
    let since = matching.since.unwrap_or(0);
    let longest = match query.daily_sums() {
        Some(DailySums::All) => rollups(matching, connection, since.div_euclid(1000), step)?,
        Some(DailySums::Spending) => Source::DailySpending,
        None => Source::Calls,
    };
    let hour = Source::Rollups(LEVELS[1]);
    let sources = match longest {
        Source::Calls => return Ok(plan(matching, false)),
        // Hours also fit into a step of whole days.
        Source::Rollups(seconds) if seconds == LEVELS[2] => vec![longest, hour],
        _ => vec![longest],
    };
    let mut parts = Vec::new();
    split(since, end(connection, matching)?, &sources, &mut parts);
    Ok(parts)
}

/// The end of the time, in milliseconds since 1970. An end after the newest call is replaced by no
/// end, so that the sum of the current day is used as a whole: it includes calls that were deleted
/// to save space.
fn end(connection: &Connection, matching: &Matching) -> Result<i64, QueryError> {
    let Some(until) = matching.until else {
        return Ok(i64::MAX);
    };
    let sql = "SELECT max(key) FROM calls";
    let newest: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    Ok(match newest.map(started_ms) {
        Some(newest) if newest < until => i64::MAX,
        _ => until,
    })
}

fn of_steps(name: Option<String>, names: u64, steps: BTreeMap<i64, Sums>) -> CostSeries {
    let steps = steps.into_iter();
    let steps = steps.map(|(at, sums)| (count(at), of_sums(&sums)));
    CostSeries::of(name, names, steps.collect())
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
