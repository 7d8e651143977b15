//! Sums over a time: from rollups by day, hour and five minutes where whole ones fit, and from
//! the calls at the edges.

use super::QueryError;
use super::matching::{Matching, name};
use crate::ledger::aggregates::Sums;
use crate::ledger::dictionary::{Kind, SeriesNames};
use crate::ledger::rollups::{self, LEVELS};
use crate::ledger::row::{Share, decode, decode_milli, is_error, key_at, started_ms};
use rusqlite::{Connection, Row, params_from_iter};
use std::collections::HashSet;
use tokengauge_core::call::{OperationClass, Outcome};

/// Which sketches are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SketchSelection {
    pub(super) tps: bool,
    pub(super) ttft: bool,
    pub(super) reported: bool,
}

impl SketchSelection {
    pub(super) const ALL: SketchSelection = SketchSelection {
        tps: true,
        ttft: true,
        reported: true,
    };
    /// Tokens and costs alone: of single calls the columns of times and speeds are not read.
    pub(super) const NONE: SketchSelection = SketchSelection {
        tps: false,
        ttft: false,
        reported: false,
    };
}

/// A span of time in milliseconds since 1970, and where its sums come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) from: i64,
    pub(super) to: i64,
    /// The length of the rollups in seconds; `None` for the calls themselves.
    pub(super) level: Option<i64>,
}

/// The largest whole days, around them hours, and calls at the edges. Ends beyond `now`
/// and what is beyond every bound are whole days, too.
pub(super) fn parts(since: Option<i64>, until: Option<i64>) -> Vec<Part> {
    let mut parts = Vec::new();
    split(
        since.unwrap_or(0),
        until.unwrap_or(i64::MAX),
        &[LEVELS[2], LEVELS[1]],
        &mut parts,
    );
    parts
}

/// Adds the parts from `from` to `to`: whole ones of the first level, at the edges those of the finer ones.
pub(super) fn split(from: i64, to: i64, levels: &[i64], parts: &mut Vec<Part>) {
    if from >= to {
        return;
    }
    let Some((level, finer)) = levels.split_first() else {
        parts.push(Part {
            from,
            to,
            level: None,
        });
        return;
    };
    let ms = level * 1000;
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
        level: Some(*level),
    });
    split(last, to, finer, parts);
}

/// Calls `visit` with everything that matches within `part`: the start in milliseconds, the
/// series and, of a single call, its own values; and the slots to add to.
pub(super) fn visit(
    connection: &Connection,
    matching: &Matching,
    (part, want): (Part, SketchSelection),
    mut slot: impl FnMut(i64, &SeriesNames, Option<&Share>) -> SlotId,
    slots: &mut Slots,
) -> Result<(), QueryError> {
    let errors = error_names(connection)?;
    let generation = generation_name(connection)?;
    // Calls from before there were classes count as generations where they have a price.
    let generates = |common: &SeriesNames| common[8].is_none() || common[8] == generation;
    match part.level {
        Some(level) => {
            let sql = format!(
                "SELECT {}, start, series FROM rollups WHERE level = ? AND start >= ? AND start < ?",
                rollups::COLUMNS
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let to = if part.to == i64::MAX {
                i64::MAX
            } else {
                part.to / 1000
            };
            let mut rows = statement.query([level, part.from / 1000, to])?;
            while let Some(row) = rows.next()? {
                let Some(common) = matching.series.get(&row.get(23)?) else {
                    continue;
                };
                let sums = slots.at(slot(row.get::<_, i64>(22)? * 1000, common, None));
                let (before, cost) = (sums.calls, sums.cost_nano.unwrap_or(0));
                rollups::read(row, sums, [want.tps, want.ttft, want.reported])?;
                if common[7].is_some_and(|outcome| errors.contains(&outcome)) {
                    sums.errors += sums.calls - before;
                }
                if generates(common) {
                    let more = sums.cost_nano.unwrap_or(0) - cost;
                    *sums.generation_nano.get_or_insert(0) += more;
                }
            }
        }
        None => {
            let timed = want != SketchSelection::NONE;
            each_call(
                connection,
                matching,
                (part, timed),
                |key, common, mut share| {
                    share.error = common[7].is_some_and(|outcome| errors.contains(&outcome));
                    share.generates = generates(common);
                    let at = slot(started_ms(key), common, Some(&share));
                    slots.at(at).add(&share);
                },
            )?;
        }
    }
    Ok(())
}

/// Where sums are added to.
pub(super) type SlotId = usize;

/// Sums by slot.
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

/// The outcomes that are errors, as ids.
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

/// The class of operations that generate, as an id.
fn generation_name(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    name(
        connection,
        Kind::OperationClass,
        OperationClass::Generation.as_str(),
    )
}

/// Parses an enum from its name in records.
pub(super) fn word<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(word.to_owned())).ok()
}

fn each_call(
    connection: &Connection,
    matching: &Matching,
    (part, timed): (Part, bool),
    mut tell: impl FnMut(i64, &SeriesNames, Share),
) -> Result<(), QueryError> {
    let times = match timed {
        true => ", tps_output_milli, ttft_us, last_token_us, tps_reported_milli, duration_us",
        false => "",
    };
    let mut sql = format!(
        "SELECT key, series, coalesce(reported_input, normalised_input), reported_cached_input,
         coalesce(reported_output, normalised_output),
         coalesce(reported_reasoning, normalised_reasoning), cost_nano_usd, user, key_hash, tools
         {times} FROM calls WHERE key >= ? AND key < ?",
    );
    let to = if part.to == i64::MAX {
        i64::MAX
    } else {
        key_at(part.to)
    };
    let mut values = vec![key_at(part.from), to];
    matching.restrict(&mut sql, &mut values);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        if let Some(common) = matching.series.get(&row.get(1)?) {
            let mut share = sums(row)?;
            if timed {
                read_times(row, &mut share)?;
            }
            tell(row.get(0)?, common, share);
        }
    }
    Ok(())
}

fn sums(row: &Row<'_>) -> rusqlite::Result<Share> {
    Ok(Share {
        input: row.get(2)?,
        cached_input: row.get(3)?,
        output: row.get(4)?,
        reasoning: row.get(5)?,
        cost_nano: row.get(6)?,
        user: row.get(7)?,
        key_hash: row.get(8)?,
        tools: row.get(9)?,
        ..Share::default()
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_days_and_hours_are_taken_as_such() {
        let hour = 3_600_000;
        let day = 24 * hour;
        let part = |from, to, level| Part { from, to, level };
        assert_eq!(
            parts(Some(day - 2 * hour - 5), Some(2 * day + 7)),
            [
                part(day - 2 * hour - 5, day - 2 * hour, None),
                part(day - 2 * hour, day, Some(3600)),
                part(day, 2 * day, Some(86_400)),
                part(2 * day, 2 * day + 7, None),
            ]
        );
        assert_eq!(parts(None, None), [part(0, i64::MAX, Some(86_400))]);
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
                let ms = part.level.unwrap_or(0) * 1000;
                prop_assert!(ms == 0 || (part.from % ms == 0 && part.to % ms == 0));
                at = part.to;
            }
            prop_assert_eq!(at, since + length);
        }
    }
}
