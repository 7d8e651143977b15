//! Sums of calls by five minutes and by day, which ClickHouse keeps up to date, so that questions about weeks need not read
//! every call.
//!
//! A call may be delivered twice, also weeks apart, so nothing is added to a sum. ClickHouse computes the sums of a step again
//! when calls of the step were inserted. Until then a question reads the calls of that step themselves. So each call counts once.

use super::Warehouse;
use super::figure::{
    FINE_WITHIN, Figure, Key, Kind, Level, Merge, ROW_PREFIX, any_of, classes, is_summed,
    name_prefix, names, row_column, session_name, sketches, skipped,
};
use super::source::{Table, all_of};
use super::sql::{LATEST, Span, at, conditions_of, measures, quoted, text, value_of, with_figures};
use crate::ledger::QueryError;
use crate::query::{Dimension, Filter};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokengauge_core::dimension::{DIMENSIONS, Kept, TOOLS_BETWEEN};

/// The version of the tables of sums, a part of their names. A table of another version is a new table.
const VERSION: u32 = 2;
/// Two computations of the same sums begin at least this many seconds apart.
const APART: i64 = 30;
/// More steps with new calls than this do not fit into a statement.
const MAX_STALE: usize = 4_000;
/// After this time the existence of the tables is checked again.
const CHECKED_FOR: Duration = Duration::from_secs(60);

impl Kind {
    const ALL: [Kind; 2] = [Kind::Calls, Kind::Sessions];

    fn table(self, calls: &str) -> String {
        match self {
            Kind::Calls => format!("{calls}_sums_{VERSION}"),
            Kind::Sessions => format!("{calls}_sessions_{VERSION}"),
        }
    }

    /// The view that computes the sums of a level.
    fn view(self, calls: &str, level: Level) -> String {
        format!("{}_every_{}", self.table(calls), level.seconds())
    }

    /// What tells the rows of one step apart.
    fn keys(self) -> Vec<Key> {
        match self {
            Kind::Calls => {
                let names = DIMENSIONS
                    .iter()
                    .map(|row| row.dimension)
                    .filter(|by| is_summed(*by));
                names
                    .map(|by| Key::by(row_column(by), by))
                    .chain(classes())
                    .collect()
            }
            Kind::Sessions => vec![session_name()],
        }
    }

    /// What is known of the calls of a row.
    fn figures(self) -> Vec<Figure> {
        let sums = measures().into_iter();
        let sums = sums.map(|sum| Figure::new(&sum.name, sum.sum, Merge::Sum));
        match self {
            Kind::Calls => sums
                .chain(sketches())
                .chain([skipped(), super::timeseries::generated()])
                .collect(),
            Kind::Sessions => super::sessions::figures()
                .into_iter()
                .chain([all_names()])
                .collect(),
        }
    }

    /// The condition on calls that belong to a row.
    fn has_row(self) -> Vec<String> {
        match self {
            Kind::Calls => Vec::new(),
            Kind::Sessions => vec!["isNotNull(session)".to_owned()],
        }
    }
}

/// Everything with a name that the calls of a row had, as `dimension=name`.
fn all_names() -> Figure {
    let named = DIMENSIONS.iter().filter(|row| row.kept != Kept::Class);
    let named = named.map(|row| {
        let value = value_of(row.dimension);
        let known = format!("ifNull(toString({value}), '')");
        let prefix = text(&name_prefix(row.dimension));
        match row.dimension {
            Dimension::Tool => format!(
                "if(isNull({value}), [], arrayMap(tool -> concat({prefix}, tool), \
                 arrayPushBack(splitByChar('{TOOLS_BETWEEN}', {known}), {known})))"
            ),
            _ => format!("if(isNull({value}), [], [concat({prefix}, {known})])"),
        }
    });
    let named: Vec<String> = named.collect();
    let all = names(&format!("arrayConcat({})", named.join(", ")));
    Figure::new("names", all, Merge::Names)
}

/// How new the sums of a kind are; instants in seconds since 1970.
#[derive(Debug, Default)]
struct Freshness {
    /// When the newest sums were computed.
    computed: BTreeMap<Level, i64>,
    /// When the newest call of a step of five minutes was inserted, by the step's start. Steps whose calls are in all sums may be absent.
    inserted: BTreeMap<i64, i64>,
}

/// Where the calls of a time are read from: conditions on calls, and on rows of sums.
#[derive(Debug, PartialEq, Eq)]
struct Parts {
    calls: String,
    rows: String,
}

impl Freshness {
    /// The starts of the steps whose sums may lack calls; `None` without sums.
    fn stale(&self, level: Level) -> Option<BTreeSet<i64>> {
        let complete_until = self.computed.get(&level)? - level.margin();
        let newer = self
            .inserted
            .iter()
            .filter(|(_, inserted)| **inserted >= complete_until);
        Some(newer.map(|(start, _)| level.start_of(*start)).collect())
    }

    /// The parts for calls that began within `span`, if sums of steps of `grain` seconds answer the question.
    fn parts(&self, span: Span, grain: i64) -> Option<Parts> {
        let fine = Level::Fine.seconds();
        let stale = self.stale(Level::Fine)?;
        if grain % fine != 0 || stale.len() > MAX_STALE {
            return None;
        }
        let (since, until) = (
            span.since.unwrap_or(0).max(0),
            span.until.unwrap_or(LATEST).min(LATEST),
        );
        let first = Level::Fine.start_of((since + fine * 1_000 - 1).div_euclid(1_000));
        let last = Level::Fine.start_of(until.div_euclid(1_000));
        if first >= last {
            return None;
        }
        let stale: Vec<i64> = stale.range(first..last).copied().collect();
        let edges = [(since, first * 1_000), (last * 1_000, until)];
        let edges = edges.iter().filter(|(from, to)| from < to);
        let mut calls: Vec<String> = edges
            .map(|(from, to)| format!("started_at >= {} AND started_at < {}", at(*from), at(*to)))
            .collect();
        calls.extend(among(&Level::Fine.start("started_at"), "IN", &stale));
        let mut rows = vec![self.rows(Level::Fine, (first, last))];
        rows.extend(among("start", "NOT IN", &stale));
        let (from, to) = (
            Level::Day.start_of(first + Level::Day.seconds() - 1),
            Level::Day.start_of(last),
        );
        let days = (grain % Level::Day.seconds() == 0 && from < to)
            .then(|| self.stale(Level::Day))
            .flatten();
        let Some(stale) = days else {
            return Some(Parts {
                calls: any_of(&calls),
                rows: rows.join(" AND "),
            });
        };
        let stale: Vec<i64> = stale.range(from..to).copied().collect();
        let mut by_day = vec![self.rows(Level::Day, (from, to))];
        by_day.extend(among("start", "NOT IN", &stale));
        let mut elsewhere = vec![
            format!("start < {}", second(from)),
            format!("start >= {}", second(to)),
        ];
        elsewhere.extend(among(&Level::Day.start("start"), "IN", &stale));
        rows.push(any_of(&elsewhere));
        Some(Parts {
            calls: any_of(&calls),
            rows: any_of(&[by_day.join(" AND "), rows.join(" AND ")]),
        })
    }

    /// The rows of a level that were complete, with steps that begin within a time.
    fn rows(&self, level: Level, (from, to): (i64, i64)) -> String {
        let computed = self.computed.get(&level).copied().unwrap_or_default() + APART;
        format!(
            "level = {} AND version < {} AND start >= {} AND start < {}",
            level.seconds(),
            second(computed),
            second(from),
            second(to)
        )
    }
}

/// The condition that a value is, or is not, one of some instants; `None` without any.
fn among(value: &str, within: &str, instants: &[i64]) -> Option<String> {
    let instants: Vec<String> = instants.iter().map(|at| second(*at)).collect();
    (!instants.is_empty()).then(|| format!("{value} {within} ({})", instants.join(", ")))
}

/// An instant in seconds since 1970 as an expression.
fn second(at: i64) -> String {
    format!("toDateTime({}, 'UTC')", at.clamp(0, i64::from(u32::MAX)))
}

/// The statements that create the sums of a table of calls. They may be run again.
pub fn statements(database: &str, table: &str, keep_days: Option<u64>) -> Vec<String> {
    let name = |table: &str| format!("{}.{}", quoted(database), quoted(table));
    let done = name(&done_table(table));
    let mut all = vec![format!(
        "CREATE TABLE IF NOT EXISTS {done} (\n  view LowCardinality(String),\n  version DateTime('UTC')\n)\n\
         ENGINE = MergeTree ORDER BY (view, version) TTL version + INTERVAL 7 DAY"
    )];
    for kind in Kind::ALL {
        let sums = name(&kind.table(table));
        let keys: Vec<String> = kind.keys().into_iter().map(|key| key.name).collect();
        let superseded = format!(
            "version + INTERVAL 3 HOUR DELETE WHERE newest + if(level = {}, {}, {}) >= version",
            Level::Fine.seconds(),
            Level::Fine.margin(),
            Level::Day.margin()
        );
        all.push(format!(
            "CREATE TABLE IF NOT EXISTS {sums}\nENGINE = MergeTree PARTITION BY toYYYYMM(start)\n\
             ORDER BY (level, start, version, {})\nTTL {superseded}\n\
             SETTINGS allow_nullable_key = 1\nEMPTY AS {}",
            keys.join(", "),
            fine(kind, database, table)
        ));
        if let Some(days) = keep_days {
            all.push(format!(
                "ALTER TABLE {sums} MODIFY TTL {superseded}, start + INTERVAL {days} DAY"
            ));
        }
        for (level, every, select) in [
            (Level::Fine, "1 MINUTE", fine(kind, database, table)),
            (Level::Day, "1 HOUR", day(kind, database, table)),
        ] {
            all.push(format!(
                "CREATE MATERIALIZED VIEW IF NOT EXISTS {} REFRESH EVERY {every} APPEND TO {sums} AS\n{select}\n\
                 SETTINGS max_bytes_before_external_group_by = 2000000000",
                name(&kind.view(table, level))
            ));
        }
    }
    // A separate view records what was completed, because rows of an unfinished computation can be read already.
    let views = Kind::ALL
        .into_iter()
        .flat_map(|kind| Level::ALL.map(|level| text(&kind.view(table, level))));
    all.push(format!(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS {} REFRESH EVERY 1 MINUTE APPEND TO {done} AS\n\
         SELECT view, assumeNotNull(last_success_time) AS version FROM system.view_refreshes\n\
         WHERE database = {} AND isNotNull(last_success_time) AND view IN ({})",
        name(&format!("{}_refresh", done_table(table))),
        text(database),
        views.collect::<Vec<_>>().join(", ")
    ));
    all
}

/// The table that says when sums were computed.
fn done_table(calls: &str) -> String {
    format!("{calls}_done_{VERSION}")
}

/// When the newest sums of a view were computed, as an expression that is never before 1970 with `margin` subtracted.
fn computed(database: &str, table: &str, view: &str, margin: i64) -> String {
    format!(
        "toDateTime(greatest(toInt64((SELECT max(toUnixTimestamp(version)) FROM {}.{} WHERE view = {})) - {margin}, 0), 'UTC')",
        quoted(database),
        quoted(&done_table(table)),
        text(view)
    )
}

/// Computes the steps of five minutes in which calls were inserted.
fn fine(kind: Kind, database: &str, table: &str) -> String {
    let level = Level::Fine;
    let calls = format!("{}.{}", quoted(database), quoted(table));
    let start = level.start("started_at");
    let newer = computed(database, table, &kind.view(table, level), level.margin());
    let mut fields = vec![
        format!("toUInt32({}) AS level", level.seconds()),
        format!("{start} AS start"),
        "toDateTime(now(), 'UTC') AS version".to_owned(),
        "max(inserted_at) AS newest".to_owned(),
    ];
    let keys = kind.keys();
    fields.extend(
        keys.iter()
            .map(|key| format!("{} AS {}", key.of_call, key.name)),
    );
    fields.extend(
        kind.figures()
            .iter()
            .map(|figure| format!("{} AS {}", figure.of_calls, figure.name)),
    );
    let mut conditions = kind.has_row();
    conditions.push(format!(
        "{start} IN (SELECT DISTINCT {start} FROM {calls} WHERE inserted_at >= {newer})"
    ));
    let keys: Vec<String> = keys.into_iter().map(|key| key.name).collect();
    format!(
        "WITH {} SELECT {} FROM {calls} FINAL {} GROUP BY start, {}",
        with_figures(),
        fields.join(", "),
        all_of(&conditions),
        keys.join(", ")
    )
}

/// Computes the days in which calls were inserted from the sums by five minutes.
fn day(kind: Kind, database: &str, table: &str) -> String {
    let calls = format!("{}.{}", quoted(database), quoted(table));
    let sums = format!("{}.{}", quoted(database), quoted(&kind.table(table)));
    let newer = computed(
        database,
        table,
        &kind.view(table, Level::Day),
        Level::Day.margin(),
    );
    let fine = computed(database, table, &kind.view(table, Level::Fine), 0);
    let day = |instant: &str| Level::Day.start(instant);
    let mut fields = vec![
        format!("toUInt32({}) AS level", Level::Day.seconds()),
        format!("{} AS start", day("s.start")),
        "toDateTime(now(), 'UTC') AS version".to_owned(),
        "max(s.newest) AS newest".to_owned(),
    ];
    let keys: Vec<String> = kind.keys().into_iter().map(|key| key.name).collect();
    fields.extend(keys.iter().map(|key| format!("s.{key} AS {key}")));
    let figures = kind.figures();
    fields.extend(
        figures
            .iter()
            .map(|figure| format!("{} AS {}", figure.merged_again(), figure.name)),
    );
    let complete = format!(
        "level = {} AND version < {fine} + INTERVAL {APART} SECOND",
        Level::Fine.seconds()
    );
    let days = format!(
        "toStartOfDay(start) IN (SELECT DISTINCT {} FROM {calls} WHERE inserted_at >= {newer})",
        day("started_at")
    );
    format!(
        "SELECT {} FROM (SELECT * FROM {sums} WHERE {complete} AND {days} AND (start, version) IN \
         (SELECT start, max(version) FROM {sums} WHERE {complete} AND {days} GROUP BY start)) AS s\n\
         WHERE (SELECT throwIf({fine} < now() - INTERVAL {FINE_WITHIN} SECOND, \
         'the sums by five minutes are too old')) = 0\n\
         GROUP BY start, {}",
        fields.join(", "),
        keys.join(", ")
    )
}

impl Warehouse {
    /// The calls that match, grouped by `keys`, as a relation `(…) AS s` with a column for each key and figure. Several rows may have
    /// the same keys: [`Figure::merged`] makes one of them. Sums are read where they answer the question. `on_keys` has further
    /// conditions: first those on calls, then those on rows of sums.
    pub(super) fn summed(
        &self,
        kind: Kind,
        filter: &Filter,
        span: Span,
        keys: &[Key],
        figures: &[Figure],
        on_keys: [&[String]; 2],
    ) -> Result<String, QueryError> {
        let (mut of_calls, mut of_rows) = (kind.has_row(), Vec::new());
        // The index of calls by session is faster than sums.
        let mut in_sums = filter.session.is_none();
        if kind == Kind::Calls {
            of_calls.extend(conditions_of(filter, value_of, ""));
            of_rows.extend(conditions_of(filter, row_column, ROW_PREFIX));
            in_sums &= filter.names.iter().all(|(by, _)| is_summed(by));
        } else if let Some(session) = &filter.session {
            of_calls.push(format!("session = {}", text(session)));
        }
        let summed = kind.keys();
        in_sums &= keys
            .iter()
            .all(|key| key.step.is_some() || summed.iter().any(|one| one.of_row == key.of_row));
        let grain = keys
            .iter()
            .find_map(|key| key.step)
            .unwrap_or(Level::Day.seconds());
        of_calls.extend_from_slice(on_keys[0]);
        of_rows.extend_from_slice(on_keys[1]);
        let fresh = if in_sums { self.freshness(kind)? } else { None };
        let parts = fresh.and_then(|fresh| fresh.parts(span, grain));
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        let fields = |key: &dyn Fn(&Key) -> String, figure: &dyn Fn(&Figure) -> String| {
            let keys = keys
                .iter()
                .map(|one| format!("{} AS {}", key(one), one.name));
            let figures = figures
                .iter()
                .map(|one| format!("{} AS {}", figure(one), one.name));
            keys.chain(figures).collect::<Vec<_>>().join(", ")
        };
        let calls = fields(&|key| key.of_call.clone(), &|figure| {
            figure.of_calls.clone()
        });
        let grouped = match names.as_slice() {
            [] => String::new(),
            names => format!("GROUP BY {}", names.join(", ")),
        };
        let Some(parts) = parts else {
            return Ok(format!(
                "({}) AS s",
                self.select(&calls, span, &of_calls, &grouped)?
            ));
        };
        of_calls.push(parts.calls);
        let calls = self.select(&calls, Span::default(), &of_calls, &grouped)?;
        let rows = fields(&|key| key.of_row.clone(), &|figure| figure.of_row.clone());
        let Table::Calls { database, table } = &self.source.table else {
            return Ok(format!("({calls}) AS s"));
        };
        let sums = format!("{}.{}", quoted(database), quoted(&kind.table(table)));
        let newest = format!(
            "(level, start, version) IN (SELECT level, start, max(version) FROM {sums} WHERE {} GROUP BY level, start)",
            parts.rows
        );
        of_rows.extend([parts.rows, newest]);
        let rows = format!("SELECT {rows} FROM {sums} {}", all_of(&of_rows));
        Ok(format!("({calls} UNION ALL {rows}) AS s"))
    }

    /// How new the sums of a kind are; `None` if the table has no sums.
    fn freshness(&self, kind: Kind) -> Result<Option<Freshness>, QueryError> {
        let Table::Calls { database, table } = &self.source.table else {
            return Ok(None);
        };
        if !self.has_sums(database, table)? {
            return Ok(None);
        }
        let mut found = Freshness::default();
        let done = format!("{}.{}", quoted(database), quoted(&done_table(table)));
        for row in self.rows(&format!(
            "SELECT view, toUnixTimestamp(max(version)) FROM {done} GROUP BY view"
        ))? {
            let view = row.text(0).unwrap_or_default();
            let level = Level::ALL
                .into_iter()
                .find(|level| kind.view(table, *level) == view);
            let computed = level.zip(row.whole(1));
            found.computed.extend(computed);
        }
        let complete = found
            .computed
            .iter()
            .map(|(level, computed)| computed - level.margin());
        let Some(complete_until) = complete.min() else {
            return Ok(None);
        };
        let relation = self.source.table.relation();
        let start = Level::Fine.start("started_at");
        for row in self.rows(&format!(
            "SELECT toUnixTimestamp({start}) AS begins, toUnixTimestamp(max(inserted_at)) FROM {relation} \
             WHERE inserted_at >= {} GROUP BY begins",
            second(complete_until)
        ))? {
            found.inserted.extend(row.whole(0).zip(row.whole(1)));
        }
        Ok(Some(found))
    }

    fn has_sums(&self, database: &str, table: &str) -> Result<bool, QueryError> {
        if let Some((checked_at, has)) = *self.source.sums.lock()
            && checked_at.elapsed() < CHECKED_FOR
        {
            return Ok(has);
        }
        let tables = [
            done_table(table),
            Kind::Calls.table(table),
            Kind::Sessions.table(table),
        ];
        let tables: Vec<String> = tables.iter().map(|table| text(table)).collect();
        let rows = self.rows(&format!(
            "SELECT count() FROM system.tables WHERE database = {} AND name IN ({})",
            text(database),
            tables.join(", ")
        ))?;
        let has = rows
            .first()
            .is_some_and(|row| row.count(0) == tables.len() as u64);
        *self.source.sums.lock() = Some((Instant::now(), has));
        Ok(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn fresh() -> Freshness {
        Freshness {
            computed: BTreeMap::from([(Level::Fine, 20 * DAY), (Level::Day, 20 * DAY - 60)]),
            inserted: BTreeMap::from([
                (18 * DAY + 300, 20 * DAY - 599),
                (17 * DAY, 20 * DAY - 601),
                (16 * DAY, 20 * DAY - 1_261),
            ]),
        }
    }

    #[test]
    fn a_step_with_calls_that_sums_may_lack_is_stale() {
        let fresh = fresh();
        assert_eq!(fresh.stale(Level::Fine), Some([18 * DAY + 300].into()));
        assert_eq!(fresh.stale(Level::Day), Some([17 * DAY, 18 * DAY].into()));
        assert_eq!(Freshness::default().stale(Level::Fine), None);
    }

    #[test]
    fn a_time_within_one_step_is_read_from_calls() {
        let span = |since, until| Span {
            since: Some(since),
            until: Some(until),
        };
        let fresh = fresh();
        assert_eq!(fresh.parts(span(1, 599_999), DAY), None);
        assert!(fresh.parts(span(1, 600_000), DAY).is_some());
        assert_eq!(
            fresh.parts(span(0, DAY * 1_000), 60),
            None,
            "steps are too short"
        );
    }

    #[test]
    fn every_step_is_read_from_one_place() {
        let fresh = fresh();
        let span = Span {
            since: Some(15 * DAY * 1_000 + 1),
            until: Some(19 * DAY * 1_000 + 301_000),
        };
        let parts = fresh.parts(span, DAY).expect("sums answer");
        assert_eq!(
            parts.calls,
            "((started_at >= toDateTime64('1970-01-16 00:00:00.001', 3, 'UTC') AND \
             started_at < toDateTime64('1970-01-16 00:05:00.000', 3, 'UTC')) OR \
             (started_at >= toDateTime64('1970-01-20 00:05:00.000', 3, 'UTC') AND \
             started_at < toDateTime64('1970-01-20 00:05:01.000', 3, 'UTC')) OR \
             (toStartOfFiveMinutes(started_at) IN (toDateTime(1555500, 'UTC'))))"
        );
        let (by_day, by_step) = parts.rows.split_once(" OR ").expect("days and steps");
        let days = "level = 86400 AND version < toDateTime(1727970, 'UTC') AND start >= toDateTime(1382400, 'UTC') AND \
                    start < toDateTime(1641600, 'UTC') AND start NOT IN (toDateTime(1468800, 'UTC'), toDateTime(1555200, 'UTC'))";
        assert_eq!(by_day, format!("(({days})"));
        assert_eq!(
            by_step,
            "(level = 300 AND version < toDateTime(1728030, 'UTC') AND start >= toDateTime(1296300, 'UTC') AND \
             start < toDateTime(1641900, 'UTC') AND start NOT IN (toDateTime(1555500, 'UTC')) AND \
             ((start < toDateTime(1382400, 'UTC')) OR (start >= toDateTime(1641600, 'UTC')) OR \
             (toStartOfDay(start) IN (toDateTime(1468800, 'UTC'), toDateTime(1555200, 'UTC'))))))"
        );
    }
}
