use super::matching::{Matching, text};
use super::scan::{Part, SketchSelection, Slots, Source, parts, visit};
use super::throughput;
use super::{MAX_STEP, QueryError};
use crate::answer::{count, group_row, point};
use crate::history::MAX_POINTS;
use crate::ledger::daily_spending::DAY;
use crate::ledger::dictionary::SeriesNames;
use crate::ledger::rollups::{FINE_FOR, LEVELS};
use crate::ledger::row::{Share, milliseconds, started_ms};
use crate::query::{
    DailySums, Dimension, Filter, GroupRow, Page, Paging, Point, SeriesMetric, Timeseries,
};
use crate::sketch::histograms;
use rusqlite::Connection;
use std::time::{Duration, SystemTime};
use tokengauge_core::dimension::SPENDING;
use tokengauge_core::hash::FastMap;
use tokengauge_core::lengths::{output_length, prompt_length};

pub(super) fn groups(
    connection: &Connection,
    filter: &Filter,
    by: &[Dimension],
    page: &Paging,
) -> Result<Page<GroupRow>, QueryError> {
    let skip = offset(page)?;
    let Some(matching) = Matching::of(connection, filter)? else {
        return Ok(Page {
            rows: Vec::new(),
            next_cursor: None,
        });
    };
    let mut slots = Slots::default();
    let mut known = FastMap::default();
    for part in plan(&matching, filter.summed(by)) {
        let slot = |_, common: &_, share: Option<&_>| group(&mut known, by, common, share);
        visit(
            connection,
            &matching,
            (part, SketchSelection::ALL),
            slot,
            &mut slots,
        )?;
    }
    let mut groups: Vec<_> = known.into_iter().collect();
    groups.sort_by_key(|(names, slot)| (-slots.0[*slot].calls, names.clone()));
    let rest = groups.len() > skip.saturating_add(page.limit);
    let mut rows = Vec::new();
    for (names, slot) in groups.into_iter().skip(skip).take(page.limit) {
        let names = names.into_iter().map(|value| value.text(connection));
        rows.push(group_row(names.collect::<Result<_, _>>()?, &slots.0[slot]));
    }
    Ok(Page {
        rows,
        next_cursor: rest.then(|| (skip + page.limit).to_string()),
    })
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    Name(Option<i64>),
    Length(Option<&'static str>),
}

impl Value {
    pub(super) fn of(by: Dimension, common: &SeriesNames, share: Option<&Share>) -> Value {
        let length = |tokens: Option<i64>, class: fn(u64) -> &'static str| {
            Value::Length(tokens.map(|tokens| class(count(tokens))))
        };
        if by.is_in_series() {
            return Value::Name(common.of(by));
        }
        if let Some(at) = SPENDING.iter().position(|own| *own == by) {
            return Value::Name(share.and_then(|share| share.spending[at]));
        }
        match by {
            Dimension::PromptLength => length(share.and_then(|share| share.input), prompt_length),
            _ => length(share.and_then(|share| share.output), output_length),
        }
    }

    pub(super) fn text(self, connection: &Connection) -> rusqlite::Result<Option<String>> {
        match self {
            Value::Name(id) => text(connection, id),
            Value::Length(class) => Ok(class.map(str::to_owned)),
        }
    }
}

pub(super) fn group(
    known: &mut FastMap<Vec<Value>, usize>,
    by: &[Dimension],
    common: &SeriesNames,
    share: Option<&Share>,
) -> usize {
    let next = known.len();
    // Nearly every call belongs to a known group, which this lookup finds without allocating its
    // key.
    if let [by] = by {
        let value = [Value::of(*by, common, share)];
        if let Some(slot) = known.get(&value[..]) {
            return *slot;
        }
        known.insert(value.to_vec(), next);
        return next;
    }
    let values = by.iter().map(|by| Value::of(*by, common, share));
    *known.entry(values.collect()).or_insert(next)
}

/// The parts of the time, from rollups if these can answer, otherwise from the calls.
pub(super) fn plan(matching: &Matching, summed: bool) -> Vec<Part> {
    if summed {
        return parts(matching.since, matching.until);
    }
    vec![Part {
        from: matching.since.unwrap_or(0),
        to: matching.until.unwrap_or(i64::MAX),
        source: Source::Calls,
    }]
}

fn offset(page: &Paging) -> Result<usize, QueryError> {
    let Some(cursor) = &page.cursor else {
        return Ok(0);
    };
    cursor.parse().map_err(|_| QueryError::cursor())
}

/// When the oldest call began, or the oldest of `sums` if these are all older than the calls.
pub(super) fn oldest(
    connection: &Connection,
    sums: Option<DailySums>,
) -> Result<Option<SystemTime>, QueryError> {
    let first = |sql: &str| -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached(sql)?
            .query_row([], |row| row.get(0))
    };
    let mut oldest = first("SELECT min(key) FROM calls")?.map(started_ms);
    let by_level = "SELECT min(start) FROM rollups WHERE level =";
    let kept = match sums {
        None => Vec::new(),
        Some(DailySums::All) => {
            let levels = [LEVELS[1], LEVELS[2]];
            levels
                .map(|level| (level, format!("{by_level} {level}")))
                .into()
        }
        Some(DailySums::Spending) => vec![(DAY, "SELECT min(day) FROM daily_spending".to_owned())],
    };
    for (seconds, sql) in kept {
        let summed = first(&sql)?.map(|start| start * 1000);
        let older = summed.filter(|start| oldest.is_none_or(|at| start + seconds * 1000 <= at));
        oldest = older.or(oldest);
    }
    let since = oldest.and_then(|ms| u64::try_from(ms).ok());
    Ok(since.map(|ms| SystemTime::UNIX_EPOCH + Duration::from_millis(ms)))
}

pub(super) fn timeseries(
    connection: &Connection,
    filter: &Filter,
    metric: SeriesMetric,
    step: Duration,
) -> Result<Timeseries, QueryError> {
    let step = i64::try_from(step.as_secs()).unwrap_or(i64::MAX);
    if step == 0 || step > MAX_STEP.as_secs() as i64 {
        return Err(QueryError::step());
    }
    let Some((from, to)) = span(connection, filter, step)? else {
        return Ok(Timeseries {
            step: step as u64,
            ..Timeseries::default()
        });
    };
    let mut slots = Slots::default();
    slots.at(((to - from) / step - 1) as usize);
    let mut tokens = vec![Some((0.0, 0.0)); slots.0.len()];
    if let Some(matching) = Matching::of(connection, filter)? {
        let part = Part {
            from: from * 1000,
            to: to * 1000,
            source: rollups(&matching, connection, from, step)?,
        };
        let want = SketchSelection {
            tps: metric == SeriesMetric::Tps,
            ttft: metric == SeriesMetric::Ttft,
            reported: false,
            prompt: false,
        };
        let slot = |ms: i64, _: &_, _: Option<&_>| ((ms.div_euclid(1000) - from) / step) as usize;
        visit(connection, &matching, (part, want), slot, &mut slots)?;
        tokens = throughput::rates(connection, filter, &matching, (from, to), step)?;
    }
    let sketches = slots.0.iter().map(|sums| metric.sketch(sums));
    let (bounds, counts) = histograms(sketches);
    let points = slots.0.iter().zip(counts).enumerate();
    let points = points.map(|(at, (sums, counts))| {
        let tokens = tokens.get(at).copied().flatten();
        Point {
            counts,
            ..point(from + at as i64 * step, step, metric, sums, tokens)
        }
    });
    Ok(Timeseries {
        step: step as u64,
        points: points.collect(),
        bounds,
    })
}

/// The whole steps that contain the requested time, in seconds since 1970. A missing bound is
/// replaced by the first or last stored call.
fn span(
    connection: &Connection,
    filter: &Filter,
    step: i64,
) -> Result<Option<(i64, i64)>, QueryError> {
    let edge = |sql: &str, level: i64| -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached(sql)?
            .query_row([level], |row| row.get(0))
    };
    let first = edge("SELECT min(start) FROM rollups WHERE level = ?", LEVELS[2])?;
    let last = edge("SELECT max(start) FROM rollups WHERE level = ?", LEVELS[0])?;
    let came = edge("SELECT max(start) FROM throughput WHERE level = ?", 1)?;
    let last = last.map(|last| last + LEVELS[0]);
    let since = filter
        .since
        .map(|since| milliseconds(since).div_euclid(1000));
    let until = filter
        .until
        .map(|until| (milliseconds(until) + 999).div_euclid(1000));
    let (Some(from), Some(to)) = (
        since.or(first),
        until.or(last.max(came.map(|came| came + 1))),
    ) else {
        return Ok(None);
    };
    let from = from.div_euclid(step) * step;
    let to = (to + step - 1).div_euclid(step) * step;
    let from = from.max(to - (MAX_POINTS as i64).saturating_mul(step));
    Ok((to > from).then_some((from, to)))
}

/// The longest stored rollups that fit into a step, otherwise the calls.
pub(super) fn rollups(
    matching: &Matching,
    connection: &Connection,
    from: i64,
    step: i64,
) -> Result<Source, QueryError> {
    if !matching.summed() {
        return Ok(Source::Calls);
    }
    let newest: Option<i64> = connection
        .prepare_cached("SELECT max(start) FROM rollups WHERE level = ?")?
        .query_row([LEVELS[0]], |row| row.get(0))?;
    let fine = newest.unwrap_or(0) - FINE_FOR;
    let fits = |level: &i64| step % level == 0 && (*level != LEVELS[0] || from >= fine);
    let longest = LEVELS.into_iter().rev().find(fits);
    Ok(longest.map_or(Source::Calls, Source::Rollups))
}
