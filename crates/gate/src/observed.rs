//! The observed calls of both sides, summed by unit.

use crate::settings::{Gate, Select};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_experiments::{Stratum, Sums};
use tokengauge_slo::{CallVerdict, Finished, judge};
use tokengauge_store::ledger::QueryError;
use tokengauge_store::query::{
    CallUnitQuery, CallUnits, Filter, Page, Paging, ScoreQuery, ScoredUnit, UnitKind, UnitScores,
};
use tokengauge_store::stored_calls::StoredCalls;

/// The approximate number of calls of one side that are read. If there are more, only the calls of one session in two, four
/// and so on are read, spread over the whole time.
pub const MAX_CALLS: u64 = 100_000;
const MAX_JUDGED: usize = 50_000;
const PAGE: usize = 1_000;
/// The number of units that the side with fewer units has in each part of the rollout.
const UNITS_OF_SLOT: usize = 25;
const MAX_SLOTS: usize = 48;

/// A source of calls: stored calls, or those in memory.
pub trait Calls {
    type Error;

    /// The calls that match, summed by unit.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn units(&self, query: &CallUnitQuery) -> Result<CallUnits, Self::Error>;

    /// The calls that match, the newest first.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn page(&self, filter: &Filter, paging: &Paging) -> Result<Page<CallRecord>, Self::Error>;

    /// The scores of the calls that match, by unit.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    fn scores(&self, query: &ScoreQuery) -> Result<Vec<ScoredUnit>, Self::Error>;
}

impl Calls for StoredCalls {
    type Error = QueryError;

    fn units(&self, query: &CallUnitQuery) -> Result<CallUnits, QueryError> {
        self.call_units(query)
    }

    fn page(&self, filter: &Filter, paging: &Paging) -> Result<Page<CallRecord>, QueryError> {
        self.calls(filter, paging)
    }

    fn scores(&self, query: &ScoreQuery) -> Result<Vec<ScoredUnit>, QueryError> {
        self.scored_units(query)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The start of the observation: the given start, or the candidate's first call in the window.
    pub since: Option<SystemTime>,
    pub candidate: Side,
    pub baseline: Side,
    pub events: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    pub units: Vec<Unit>,
    pub calls: u64,
    /// Calls without a unit. A call without a session is a unit by itself. A call without an agent or user is left out.
    pub calls_without_unit: u64,
    /// 1 if all calls were read, n if the calls of one session in n were read.
    pub one_in: u64,
}

impl Side {
    fn names(&self) -> impl Iterator<Item = &str> {
        self.units.iter().filter_map(|unit| unit.name.as_deref())
    }
}

impl Default for Side {
    fn default() -> Self {
        Side {
            units: Vec::new(),
            calls: 0,
            calls_without_unit: 0,
            one_in: 1,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The unit's name. `None` for a single call without a session.
    pub name: Option<String>,
    pub first_at: SystemTime,
    pub last_at: SystemTime,
    /// The length class of the unit's first prompt, if known.
    pub prompt: Option<usize>,
    pub sums: Sums,
    /// The scores of the unit by name. A single call without a session has none.
    pub scores: UnitScores,
}

/// # Errors
///
/// Returns the errors of `calls`.
pub fn observe<C: Calls>(
    gate: &Gate,
    since: Option<SystemTime>,
    now: SystemTime,
    calls: &C,
) -> Result<Observed, C::Error> {
    let window = now.checked_sub(gate.window);
    let start = since.or(window).unwrap_or(SystemTime::UNIX_EPOCH);
    let candidate = side(gate, &gate.candidate, (start, now), calls)?;
    let first = candidate.units.iter().map(|unit| unit.first_at).min();
    let since = since.or(first);
    let baseline = side(gate, &gate.baseline, (since.unwrap_or(start), now), calls)?;
    Ok(Observed {
        since,
        events: events(gate, (start, now), calls)?,
        candidate,
        baseline,
    })
}

pub(crate) fn side<C: Calls>(
    gate: &Gate,
    select: &Select,
    (since, until): (SystemTime, SystemTime),
    calls: &C,
) -> Result<Side, C::Error> {
    let found = calls.units(&CallUnitQuery {
        filter: select.filter(since, until),
        variant: select.variant.clone(),
        unit: gate.unit,
        max_calls: MAX_CALLS,
    })?;
    let unnamed = found.units.iter().filter(|unit| unit.name.is_none());
    let calls_without_unit = unnamed.count() as u64 * found.one_in;
    let mut scores = scores(gate, select, (since, until), calls)?;
    let mut scores_of = |name: Option<&String>| name.and_then(|name| scores.remove(name));
    let alone = gate.unit == UnitKind::Session;
    let units = found.units.into_iter();
    let units = units.filter(|unit| alone || unit.name.is_some());
    Ok(Side {
        units: units
            .map(|unit| Unit {
                scores: scores_of(unit.name.as_ref()).unwrap_or_default(),
                name: unit.name,
                first_at: unit.sums.first_at(),
                last_at: unit.sums.last_at(),
                prompt: unit.sums.first_prompt,
                sums: Sums::of(&unit.sums, &gate.rules),
            })
            .collect(),
        calls: found.calls,
        calls_without_unit,
        one_in: found.one_in,
    })
}

/// The scores of named units. They are not read if the gate has no check of a score.
fn scores<C: Calls>(
    gate: &Gate,
    select: &Select,
    (since, until): (SystemTime, SystemTime),
    calls: &C,
) -> Result<HashMap<String, UnitScores>, C::Error> {
    if gate.scores.is_empty() {
        return Ok(HashMap::new());
    }
    let found = calls.scores(&ScoreQuery {
        filter: select.filter(since, until),
        variant: select.variant.clone(),
        by: Vec::new(),
        unit: gate.unit,
    })?;
    let named = found
        .into_iter()
        .filter_map(|unit| Some((unit.unit?, unit.scores)));
    Ok(named.collect())
}

fn events<C: Calls>(
    gate: &Gate,
    (since, until): (SystemTime, SystemTime),
    calls: &C,
) -> Result<Vec<(u64, u64)>, C::Error> {
    let mut counts = vec![(0, 0); gate.objectives.len()];
    if counts.is_empty() {
        return Ok(counts);
    }
    let filter = gate.candidate.filter(since, until);
    let mut paging = Paging {
        limit: PAGE,
        cursor: None,
    };
    let mut left = MAX_JUDGED;
    while left > 0 {
        let found = calls.page(&filter, &paging)?;
        let of_it = found.rows.iter().filter(|call| gate.candidate.has(call));
        for call in of_it.take(left) {
            left -= 1;
            for (counts, objective) in counts.iter_mut().zip(&gate.objectives) {
                for events in judge(&objective.judgement, &Finished::of_record(call)) {
                    counts.0 += u64::from(events.verdict == CallVerdict::Bad) * events.count;
                    counts.1 += u64::from(events.verdict != CallVerdict::Excluded) * events.count;
                }
            }
        }
        match found.next_cursor {
            Some(cursor) => paging.cursor = Some(cursor),
            None => break,
        }
    }
    Ok(counts)
}

impl Observed {
    pub(crate) fn mixed(&self) -> HashSet<&str> {
        let names: HashSet<&str> = self.candidate.names().collect();
        self.baseline
            .names()
            .filter(|name| names.contains(name))
            .collect()
    }

    /// The units of the baseline and of the candidate that are compared. They are complete, have calls of only one side,
    /// and began while both sides had new units. Units that began at about the same time are in the same stratum, so that a
    /// trend or a changed share of the traffic makes no difference.
    pub(crate) fn complete(
        &self,
        now: SystemTime,
        settled_after: Duration,
    ) -> [Vec<(Stratum, &Unit)>; 2] {
        let mixed = self.mixed();
        let complete = |unit: &&Unit| {
            let settled = now.duration_since(unit.last_at);
            unit.sums.calls > 0
                && settled.is_ok_and(|since| since >= settled_after)
                && !unit
                    .name
                    .as_deref()
                    .is_some_and(|name| mixed.contains(name))
        };
        let sides = [&self.baseline, &self.candidate]
            .map(|side| side.units.iter().filter(complete).collect::<Vec<_>>());
        let firsts = sides.each_ref().map(|units| {
            let mut firsts: Vec<SystemTime> = units.iter().map(|unit| unit.first_at).collect();
            firsts.sort_unstable();
            firsts
        });
        let begin = firsts.iter().filter_map(|firsts| firsts.first()).max();
        let end = firsts.iter().filter_map(|firsts| firsts.last()).min();
        let (Some(begin), Some(end)) = (begin, end) else {
            return [Vec::new(), Vec::new()];
        };
        let within = |at: &SystemTime| (begin..=end).contains(&at);
        let common = firsts
            .each_ref()
            .map(|firsts| firsts.iter().copied().filter(within).collect::<Vec<_>>());
        let fewer = common.iter().min_by_key(|firsts| firsts.len());
        let edges = fewer.map_or_else(Vec::new, |firsts| slots(firsts));
        sides.map(|units| {
            let units = units.into_iter().filter(|unit| within(&unit.first_at));
            let units = units.map(|unit| {
                let slot = edges.partition_point(|edge| *edge <= unit.first_at);
                (Stratum::in_slot(unit.prompt, slot), unit)
            });
            units.collect()
        })
    }
}

/// The ends of the parts of a rollout. All parts have about the same number of units.
fn slots(firsts: &[SystemTime]) -> Vec<SystemTime> {
    let count = (firsts.len() / UNITS_OF_SLOT).clamp(1, MAX_SLOTS);
    (1..count)
        .map(|slot| firsts[firsts.len() * slot / count])
        .collect()
}
