//! Sums over a time: from rollups by day, hour and five minutes, or from spending by day, for whole
//! intervals, and from the calls at the edges.

use super::QueryError;
use super::matching::{Matching, name};
use crate::ledger::aggregates::Sums;
use crate::ledger::daily_spending;
use crate::ledger::dictionary::{NameKind, SeriesNames};
use crate::ledger::rollups::{self, LEVELS};
use crate::ledger::row::{
    SHARE_COLUMNS, Share, decode, decode_milli, is_error, key_at, started_ms,
};
use crate::ledger::unsummed_marks::Marks;
use crate::query::Dimension;
use rusqlite::{Connection, Row, params_from_iter};
use std::collections::HashSet;
use tokengauge_core::call::{OperationClass, Outcome};
use tokengauge_core::prompt::{PromptPart, PromptSums};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SketchSelection {
    pub(super) tps: bool,
    pub(super) ttft: bool,
    pub(super) reported: bool,
    /// The parts of prompts.
    pub(super) prompt: bool,
}

impl SketchSelection {
    fn columns(self) -> [bool; 4] {
        [self.tps, self.ttft, self.reported, self.prompt]
    }

    pub(super) const ALL: SketchSelection = SketchSelection {
        tps: true,
        ttft: true,
        reported: true,
        prompt: true,
    };
    /// Only tokens and costs: the columns of times and speeds are not read from calls.
    pub(super) const NONE: SketchSelection = SketchSelection {
        tps: false,
        ttft: false,
        reported: false,
        prompt: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Calls,
    /// Rollups of this length in seconds, which have no users, keys and tools.
    Rollups(i64),
    /// Tokens and costs by day, which also have users, keys and tools.
    DailySpending,
}

impl Source {
    /// The length of one sum in seconds. A sum can only be used as a whole.
    fn seconds(self) -> i64 {
        match self {
            Source::Calls => 0,
            Source::Rollups(seconds) => seconds,
            Source::DailySpending => daily_spending::DAY,
        }
    }
}

/// A time span in milliseconds since 1970, and the source of its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) source: Source,
}

impl Part {
    /// Range of the starts of its sums, in seconds since 1970.
    fn starts(self) -> [i64; 2] {
        let to = match self.to {
            i64::MAX => i64::MAX,
            to => to / 1000,
        };
        [self.from / 1000, to]
    }

    /// The range of keys of its calls; the end is excluded.
    fn keys(self) -> [i64; 2] {
        let to = match self.to {
            i64::MAX => i64::MAX,
            to => key_at(to),
        };
        [key_at(self.from), to]
    }
}

/// Whole days, with hours and calls at the edges. An end after `now`, or a missing bound, also
/// counts as a whole day.
pub(super) fn parts(since: Option<i64>, until: Option<i64>) -> Vec<Part> {
    let mut parts = Vec::new();
    split(
        since.unwrap_or(0),
        until.unwrap_or(i64::MAX),
        &[Source::Rollups(LEVELS[2]), Source::Rollups(LEVELS[1])],
        &mut parts,
    );
    parts
}

/// Adds the parts from `from` to `to`: whole sums of the first source, then finer sums and calls at
/// the edges.
pub(super) fn split(from: i64, to: i64, sources: &[Source], parts: &mut Vec<Part>) {
    if from >= to {
        return;
    }
    let Some((source, finer)) = sources.split_first() else {
        parts.push(Part {
            from,
            to,
            source: Source::Calls,
        });
        return;
    };
    let ms = source.seconds() * 1000;
    let first = from.saturating_add(ms - 1).div_euclid(ms) * ms;
    let last = if to == i64::MAX {
        to
    } else {
        to.div_euclid(ms) * ms
    };
    if first >= last {
        split(from, to, finer, parts);
        return;
    }
    split(from, first, finer, parts);
    parts.push(Part {
        from: first,
        to: last,
        source: *source,
    });
    split(last, to, finer, parts);
}

/// Calls `slot` for everything within `part` that matches. Its arguments are the start in
/// milliseconds, the series, and the values of a single call. Spending by day provides only names
/// of a call, rollups nothing. `slot` returns the index of the sums to add to.
pub(super) fn visit(
    connection: &Connection,
    matching: &Matching,
    (part, want): (Part, SketchSelection),
    mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
    slots: &mut Slots,
) -> Result<(), QueryError> {
    let scan = Scan {
        connection,
        matching,
        errors: error_names(connection)?,
        generation: generation_name(connection)?,
    };
    match part.source {
        Source::Rollups(level) => scan.rollups(part.starts(), level, want, slot, slots),
        Source::Calls => scan.calls(part.keys(), want, slot, slots),
        Source::DailySpending => {
            scan.spending(part.starts(), &mut slot, slots)?;
            // Calls that are not in the spending by day yet.
            let [from, to] = part.keys();
            let to = to.min(Marks::load(connection)?.spending);
            scan.calls([from, to], want, slot, slots)
        }
    }
}

struct Scan<'a> {
    connection: &'a Connection,
    matching: &'a Matching,
    errors: HashSet<i64>,
    generation: Option<i64>,
}

impl Scan<'_> {
    fn is_error(&self, common: &SeriesNames) -> bool {
        common
            .of(Dimension::Outcome)
            .is_some_and(|outcome| self.errors.contains(&outcome))
    }

    /// Calls that are older than classes count as generations if they have a price.
    fn generates(&self, common: &SeriesNames) -> bool {
        common.class().is_none() || common.class() == self.generation
    }

    fn rollups(
        &self,
        [from, to]: [i64; 2],
        level: i64,
        want: SketchSelection,
        mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
        slots: &mut Slots,
    ) -> Result<(), QueryError> {
        let sql = format!(
            "SELECT {}, start, series FROM rollups WHERE level = ? AND start >= ? AND start < ?",
            rollups::COLUMNS
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([level, from, to])?;
        while let Some(row) = rows.next()? {
            let Some(common) = self.matching.series.get(&row.get(24)?) else {
                continue;
            };
            let sums = slots.at(slot(row.get::<_, i64>(23)? * 1000, common, None));
            let (before, cost) = (sums.calls, sums.cost_nano.unwrap_or(0));
            rollups::read(row, sums, want.columns())?;
            if self.is_error(common) {
                sums.errors += sums.calls - before;
            }
            if self.generates(common) {
                let more = sums.cost_nano.unwrap_or(0) - cost;
                *sums.generation_nano.get_or_insert(0) += more;
            }
        }
        Ok(())
    }

    fn spending(
        &self,
        days: [i64; 2],
        mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
        slots: &mut Slots,
    ) -> Result<(), QueryError> {
        let mut sql = format!(
            "SELECT {}, day, series, user, key_hash, tools FROM daily_spending
             WHERE day >= ? AND day < ?",
            daily_spending::COLUMNS
        );
        let mut values = days.to_vec();
        self.matching.restrict(&mut sql, &mut values);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let Some(common) = self.matching.series.get(&row.get(8)?) else {
                continue;
            };
            let name = |at: usize| -> rusqlite::Result<Option<i64>> {
                Ok(Some(row.get(at)?).filter(|id| *id != 0))
            };
            let names = Share {
                spending: [name(9)?, name(10)?, name(11)?],
                ..Share::default()
            };
            let mut sums = daily_spending::read(row)?;
            if self.is_error(common) {
                sums.errors = sums.calls;
            }
            let ms = row.get::<_, i64>(7)? * 1000;
            slots.at(slot(ms, common, Some(&names))).merge_counts(&sums);
        }
        Ok(())
    }

    fn calls(
        &self,
        keys: [i64; 2],
        want: SketchSelection,
        mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
        slots: &mut Slots,
    ) -> Result<(), QueryError> {
        let timed = want != SketchSelection::NONE;
        let times = if timed {
            ", tps_output_milli, ttft_us, last_token_us, tps_reported_milli, duration_us"
        } else {
            ""
        };
        let (prompt, analyses) = if want.prompt {
            (prompt_columns(), "LEFT JOIN analyses USING (key)")
        } else {
            (String::new(), "")
        };
        let mut sql = format!(
            "SELECT key, series, {SHARE_COLUMNS} {times} {prompt} FROM calls {analyses}
             WHERE key >= ? AND key < ?"
        );
        let mut values = keys.to_vec();
        self.matching.restrict(&mut sql, &mut values);
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            let Some(common) = self.matching.series.get(&row.get(1)?) else {
                continue;
            };
            let mut share = Share::read(row, 2)?;
            if timed {
                read_times(row, &mut share)?;
            }
            if want.prompt {
                share.prompt = read_prompt(row, 15)?;
            }
            share.error = self.is_error(common);
            share.generates = self.generates(common);
            let at = slot(started_ms(row.get(0)?), common, Some(&share));
            slots.at(at).add(&share);
        }
        Ok(())
    }
}

pub(super) type SlotId = usize;

#[derive(Default)]
pub(super) struct Slots(pub(super) Vec<Sums>);

impl Slots {
    pub(super) fn at(&mut self, slot: SlotId) -> &mut Sums {
        if slot >= self.0.len() {
            self.0.resize(slot + 1, Sums::default());
        }
        &mut self.0[slot]
    }
}

fn error_names(connection: &Connection) -> rusqlite::Result<HashSet<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT id, name FROM names WHERE kind = 'outcome'")?;
    let mut rows = statement.query([])?;
    let mut errors = HashSet::new();
    while let Some(row) = rows.next()? {
        let outcome: Option<Outcome> = word(&row.get::<_, String>(1)?);
        if outcome.is_none_or(is_error) {
            errors.insert(row.get(0)?);
        }
    }
    Ok(errors)
}

fn generation_name(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    name(
        connection,
        NameKind::OperationClass,
        OperationClass::Generation.as_str(),
    )
}

/// Parses an enum from its name in records.
pub(super) fn word<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
}

fn read_times(row: &Row<'_>, share: &mut Share) -> rusqlite::Result<()> {
    let scaled = |at: usize, by: f64| -> rusqlite::Result<Option<f64>> {
        Ok(row
            .get::<_, Option<i64>>(at)?
            .map(|value| value as f64 / by))
    };
    let (tps, ttft) = (scaled(10, 1e3)?, scaled(11, 1e6)?);
    let (last, reported) = (scaled(12, 1e6)?, scaled(13, 1e3)?);
    share.decode = decode(tps, ttft, last);
    share.reported = reported;
    share.reported_decode = decode_milli(reported, ttft, last);
    share.tps = tps;
    share.ttft = ttft;
    share.duration_us = row.get(14)?;
    Ok(())
}

/// The counts of [`PromptSums`] without the number of calls.
fn prompt_columns() -> String {
    let parts = PromptPart::ALL.iter().map(|part| part.column());
    let columns = ["prompt_media", "prompt_media_bytes"]
        .into_iter()
        .chain(parts);
    columns.map(|column| format!(", {column}")).collect()
}

/// Reads [`prompt_columns`], which begin at column `at`; `None` if the prompt was not analyzed.
fn read_prompt(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<PromptSums>> {
    let mut sums = PromptSums::default();
    let [calls, counts @ ..] = sums.counts_mut();
    for (at, sum) in (at..).zip(counts) {
        if let Some(tokens) = row.get::<_, Option<i64>>(at)? {
            (*calls, *sum) = (1, tokens.unsigned_abs());
        }
    }
    Ok(sums.known())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_days_and_hours_are_taken_as_such() {
        let hour = 3_600_000;
        let day = 24 * hour;
        let part = |from, to, source| Part { from, to, source };
        let (of_hours, of_days) = (Source::Rollups(3600), Source::Rollups(86_400));
        assert_eq!(
            parts(Some(day - 2 * hour - 5), Some(2 * day + 7)),
            [
                part(day - 2 * hour - 5, day - 2 * hour, Source::Calls),
                part(day - 2 * hour, day, of_hours),
                part(day, 2 * day, of_days),
                part(2 * day, 2 * day + 7, Source::Calls),
            ]
        );
        assert_eq!(parts(None, None), [part(0, i64::MAX, of_days)]);
        assert_eq!(parts(Some(5), Some(5)), []);
    }

    proptest! {
        #[test]
        fn parts_lie_end_to_end(since in 0..10_i64 * 86_400_000, length in 0..10_i64 * 86_400_000) {
            let parts = parts(Some(since), Some(since + length));
            let mut at = since;
            for part in &parts {
                prop_assert_eq!(part.from, at);
                prop_assert!(part.to > part.from);
                let ms = part.source.seconds() * 1000;
                prop_assert!(ms == 0 || (part.from % ms == 0 && part.to % ms == 0));
                at = part.to;
            }
            prop_assert_eq!(at, since + length);
        }
    }
}
