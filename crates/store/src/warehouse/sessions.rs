//! Sessions: a page of them in any order, and one with its calls.

use super::Warehouse;
use super::figure::{Figure, Kind, Merge, any_of, measure, name_prefix, session_name, sketches};
use super::rows::{Row, call_row};
use super::sql::{Span, at, has, one_of, text, value_of};
use crate::answer::{mean_speed, tokens};
use crate::history::waterfall_row;
use crate::ledger::QueryError;
use crate::ledger::aggregates::Sums;
use crate::ledger::interval_union::IntervalUnion;
use crate::ledger::row::{milliseconds, timestamp};
use crate::query::{
    Dimension, Filter, Page, Paging, SessionDetail, SessionQuery, SessionRow, SessionSeconds,
    SessionSort, SessionTps, WaterfallCall,
};
use crate::sketch::Sketch;
use std::collections::HashMap;
use std::time::Duration;

/// How long before the time asked for the calls of a listed session are added up. A session that began earlier is listed with
/// the sums since then; its own page has all of its calls.
pub const LOOKBACK: Duration = Duration::from_secs(86_400);
/// Names of a kind that are shown of one session.
const MAX_NAMES: usize = 16;

/// The columns that the page shows of each session in addition to its sums.
const DETAILS: &str =
    "session, arraySort(groupUniqArray(agent)), groupArray((started_us, ended_us))";
/// The figures of a session that are sums, in the order in which [`Summed::of`] reads them.
const SUMS: [&str; 10] = [
    "calls",
    "errors",
    "input_sum",
    "cached_input_sum",
    "output_sum",
    "reasoning_sum",
    "cost_nano_sum",
    "unpriced",
    "decode_tokens_sum",
    "decode_us_sum",
];
/// The figure of which the median time to first token is made.
const TTFT: &str = "ttft_sketch";
/// The columns of a session that come from its last call.
const LATEST: [&str; 4] = ["workload", "user", "experiment", "variant"];

/// The figures of a session, in the order in which [`Summed::of`] reads them.
pub(super) fn figures() -> Vec<Figure> {
    let [_, _, ttft] = sketches();
    let mut all = vec![
        Figure::new("first_us", "min(started_us)".to_owned(), Merge::Min),
        Figure::new("last_us", "max(ended_us)".to_owned(), Merge::Max),
    ];
    all.extend(SUMS.map(measure));
    all.extend(LATEST.map(|name| {
        let latest = format!("argMaxState({name}, (ended_us, id))");
        Figure::new(&format!("last_{name}"), latest, Merge::Latest)
    }));
    all.push(ttft);
    all
}

/// A session without its names and the time with a call in flight.
struct Summed {
    row: SessionRow,
    first_us: i64,
    last_us: i64,
}

impl Summed {
    /// The time in which its calls began.
    fn within(&self) -> Span {
        Span {
            since: Some(self.first_us.div_euclid(1_000)),
            until: Some(self.last_us.div_euclid(1_000) + 1),
        }
    }

    fn of(row: &Row) -> Summed {
        let (first_us, last_us) = (row.whole(1).unwrap_or(0), row.whole(2).unwrap_or(0));
        let sums = Sums {
            input: row.whole(5),
            cached_input: row.whole(6),
            output: row.whole(7),
            reasoning: row.whole(8),
            decode_tokens: row.whole(11).unwrap_or(0),
            decode_us: row.whole(12).unwrap_or(0),
            ..Sums::default()
        };
        let class = row.whole(18).and_then(|class| i32::try_from(class).ok());
        Summed {
            first_us,
            last_us,
            row: SessionRow {
                id: row.text(0).unwrap_or_default(),
                started_at: timestamp(first_us.div_euclid(1_000)),
                last_at: timestamp(last_us.div_euclid(1_000)),
                calls: row.count(3),
                errors: row.count(4),
                workload: row.text(13),
                user: row.text(14),
                experiment: row.text(15),
                variant: row.text(16),
                tokens: tokens(&sums),
                cost_usd: row.whole(9).map(|nano| nano as f64 / 1e9),
                unpriced_calls: row.count(10),
                seconds: SessionSeconds {
                    wall: (last_us - first_us).max(0) as f64 / 1e6,
                    ttft_p50: class.map(Sketch::middle),
                    ..SessionSeconds::default()
                },
                tps: SessionTps {
                    output: mean_speed(&sums),
                },
                ..SessionRow::default()
            },
        }
    }
}

/// The class of the median time to first token, by nearest rank.
const MEDIAN_TTFT: &str = "if(empty(all_ttft_sketch), NULL, \
    (arraySort(arrayFlatten(arrayMap((class, calls) -> arrayWithConstant(calls, class), \
    mapKeys(all_ttft_sketch), mapValues(all_ttft_sketch)))) AS ttft_classes)[intDiv(length(ttft_classes) + 1, 2)])";

/// What is shown of a session: [`Summed::of`] reads it.
fn shown(figures: &[Figure]) -> String {
    let merged: Vec<String> = figures.iter().map(Figure::merged).collect();
    format!(
        "s.session_name, {}, {MEDIAN_TTFT} AS ttft_class",
        merged.join(", ")
    )
}

impl Warehouse {
    /// The sessions that match.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionRow>, QueryError> {
        let (by, order) = sorted_by(query);
        let (mut having, met) = having(query);
        if let Some(cursor) = &query.page.cursor {
            having.push(after(query, by, cursor)?);
        }
        let more = query.page.limit.saturating_add(1);
        // First only what selects and sorts sessions: there may be millions of them.
        let needed = format!("{by} {}", having.join(" "));
        let ttft = query.sort == SessionSort::Ttft;
        let mut needed: Vec<Figure> = figures()
            .into_iter()
            .filter(|figure| needed.contains(&figure.name) || ttft && figure.name == TTFT)
            .collect();
        let merged: Vec<String> = needed.iter().map(Figure::merged).collect();
        let median = format!("{MEDIAN_TTFT} AS ttft_class");
        let merged: Vec<String> = merged.into_iter().chain(ttft.then_some(median)).collect();
        needed.extend(met);
        let sessions = self.by_session(&query.filter, &needed, [&[]; 2])?;
        let found = self.rows(&format!(
            "SELECT s.session_name, {by} AS sorted_by, {} FROM {sessions} GROUP BY s.session_name HAVING {} \
             ORDER BY {order} LIMIT {more}",
            merged.join(", "),
            having.join(" AND ")
        ))?;
        let place = |row: &Row| {
            let value = row
                .whole(1)
                .map_or("-".to_owned(), |value| value.to_string());
            format!("{value}.{}", row.text(0).unwrap_or_default())
        };
        let there_is_more = found.len() > query.page.limit;
        let found = &found[..found.len().min(query.page.limit)];
        let next_cursor = found.last().filter(|_| there_is_more).map(place);
        let names: Vec<String> = found.iter().filter_map(|row| row.text(0)).collect();
        let mut sums = self.sums_of(&query.filter, &names)?;
        let order: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        sums.sort_by_key(|session| order.get(&*session.row.id).copied());
        Ok(Page {
            rows: self.detailed(sums)?,
            next_cursor,
        })
    }

    /// The sums of some sessions.
    fn sums_of(&self, filter: &Filter, names: &[String]) -> Result<Vec<Summed>, QueryError> {
        let names = names.iter().map(String::as_str);
        let of_calls: Vec<String> = one_of("session", names.clone()).into_iter().collect();
        let of_rows: Vec<String> = one_of("session_name", names).into_iter().collect();
        if of_calls.is_empty() {
            return Ok(Vec::new());
        }
        let figures = figures();
        let sessions = self.by_session(filter, &figures, [&of_calls, &of_rows])?;
        let shown = shown(&figures);
        let statement = format!("SELECT {shown} FROM {sessions} GROUP BY s.session_name");
        Ok(self.rows(&statement)?.iter().map(Summed::of).collect())
    }

    /// The calls of sessions that a filter may select, by session.
    fn by_session(
        &self,
        filter: &Filter,
        figures: &[Figure],
        conditions: [&[String]; 2],
    ) -> Result<String, QueryError> {
        let (kind, keys) = (Kind::Sessions, [session_name()]);
        self.summed(kind, filter, listed(filter), &keys, figures, conditions)
    }

    /// The sessions with their names, and the time with a call in flight.
    fn detailed(&self, sums: Vec<Summed>) -> Result<Vec<SessionRow>, QueryError> {
        let since = sums.iter().map(|session| session.within().since).min();
        let until = sums.iter().map(|session| session.within().until).max();
        let (Some(since), Some(until)) = (since, until) else {
            return Ok(Vec::new());
        };
        let calls_of = |session: &Summed| {
            let mut all = session.within().conditions();
            all.push(format!("session = {}", text(&session.row.id)));
            all.join(" AND ")
        };
        let among: Vec<String> = sums.iter().map(calls_of).collect();
        let (span, among) = (Span { since, until }, [any_of(&among)]);
        let models = format!("arraySort(groupUniqArray({}))", value_of(Dimension::Model));
        let fields = format!("{DETAILS}, {models}");
        let rows = self.rows(&self.select(&fields, span, &among, "GROUP BY session")?)?;
        let mut found: HashMap<String, Row> = rows
            .into_iter()
            .filter_map(|row| Some((row.text(0)?, row)))
            .collect();
        let detailed = sums.into_iter().map(
            |Summed {
                 row,
                 first_us,
                 last_us,
             }| {
                let Some(details) = found.remove(&row.id) else {
                    return row;
                };
                let mut busy = IntervalUnion::default();
                let mut intervals = details.pairs(2);
                intervals.sort_unstable();
                intervals
                    .into_iter()
                    .for_each(|(start, end)| busy.add(start, end));
                let model = busy.length();
                let names = |at| {
                    let mut names = details.texts(at);
                    names.truncate(MAX_NAMES);
                    names
                };
                SessionRow {
                    agents: names(1),
                    models: names(3),
                    seconds: SessionSeconds {
                        model: model.max(0) as f64 / 1e6,
                        tools: (last_us - first_us - model).max(0) as f64 / 1e6,
                        ..row.seconds
                    },
                    ..row
                }
            },
        );
        Ok(detailed.collect())
    }

    /// The durations in seconds of the sessions that a filter selects and whose last call ended before its end.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn task_seconds(&self, filter: &Filter) -> Result<Vec<f64>, QueryError> {
        let query = SessionQuery {
            filter: filter.clone(),
            ..SessionQuery::default()
        };
        let (mut having, met) = having(&query);
        if let Some(until) = filter.until {
            having.push(format!("max(s.last_us) < {}", microseconds(until)));
        }
        let mut times: Vec<Figure> = figures()
            .into_iter()
            .filter(|figure| figure.is_time())
            .collect();
        times.extend(met);
        let rows = self.rows(&format!(
            "SELECT max(s.last_us) - min(s.first_us) FROM {} GROUP BY s.session_name HAVING {}",
            self.by_session(filter, &times, [&[]; 2])?,
            having.join(" AND ")
        ))?;
        Ok(rows
            .iter()
            .filter_map(|row| row.whole(0))
            .map(|us| us as f64 / 1e6)
            .collect())
    }

    /// One session and a page of its calls; `None` if it is not known.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn session(&self, id: &str, page: &Paging) -> Result<Option<SessionDetail>, QueryError> {
        let is = vec![format!("session = {}", text(id))];
        let filter = Filter {
            session: Some(id.to_owned()),
            ..Filter::default()
        };
        let sums = self.sums_of(&filter, &[id.to_owned()])?;
        let Some(sums) = sums.into_iter().next() else {
            return Ok(None);
        };
        let first_us = sums.first_us;
        let within = sums.within();
        let session = self.detailed(vec![sums])?.into_iter().next();
        let (calls, next_cursor) = self.waterfall(is, within, first_us, page)?;
        Ok(session.map(|session| SessionDetail {
            session,
            calls,
            next_cursor,
        }))
    }

    /// Some of the calls of a session by their start. A cursor is the start, the id and the number of the last call before, and
    /// the end of all before it.
    fn waterfall(
        &self,
        mut conditions: Vec<String>,
        span: Span,
        first_us: i64,
        page: &Paging,
    ) -> Result<(Vec<WaterfallCall>, Option<String>), QueryError> {
        let mut reached = None;
        if let Some(cursor) = &page.cursor {
            let mut parts = cursor.splitn(3, '.');
            let mut number = || -> Result<i64, QueryError> {
                let part = parts.next().ok_or_else(QueryError::cursor)?;
                part.parse().map_err(|_| QueryError::cursor())
            };
            let (ms, end) = (number()?, number()?);
            let id = parts.next().ok_or_else(QueryError::cursor)?;
            let id = uuid::Uuid::parse_str(id).map_err(|_| QueryError::cursor())?;
            conditions.push(format!("(started_at, id) > ({}, toUUID('{id}'))", at(ms)));
            reached = Some(end);
        }
        let more = page.limit.saturating_add(1);
        let rest = format!("ORDER BY started_at, id LIMIT {more}");
        let mut rows = self.objects(&self.select("*", span, &conditions, &rest)?)?;
        let there_is_more = rows.len() > page.limit;
        rows.truncate(page.limit);
        let (mut calls, mut next) = (Vec::new(), None);
        for row in rows.iter().map(call_row) {
            let record = row.record();
            let start = row.started_ms().saturating_mul(1_000);
            let lasted = record.seconds.duration.unwrap_or(0.0).max(0.0);
            let end = start.saturating_add((lasted * 1e6).round() as i64);
            let wait = reached.map(|before: i64| (start - before).max(0) as f64 / 1e6);
            let offset = (start - first_us).max(0) as f64 / 1e6;
            calls.push(waterfall_row(&record, offset, wait));
            let latest = reached.map_or(end, |before: i64| before.max(end));
            reached = Some(latest);
            next = Some(format!("{}.{latest}.{}", row.started_ms(), row.id()));
        }
        Ok((calls, next.filter(|_| there_is_more)))
    }
}

/// Calls that are added up for a list of sessions.
fn listed(filter: &Filter) -> Span {
    let lookback = i64::try_from(LOOKBACK.as_millis()).unwrap_or(0);
    let span = Span::of(filter);
    Span {
        since: span.since.map(|since| since - lookback),
        until: None,
    }
}

fn microseconds(at: std::time::SystemTime) -> i64 {
    milliseconds(at).saturating_mul(1_000)
}

/// The conditions on sessions, and the figures that they need. Different calls of a session may meet different parts of the filter.
fn having(query: &SessionQuery) -> (Vec<String>, Vec<Figure>) {
    let filter = &query.filter;
    let mut all = vec!["1".to_owned()];
    if let Some(since) = filter.since {
        all.push(format!("max(s.last_us) >= {}", microseconds(since)));
    }
    if let Some(until) = filter.until {
        all.push(format!("min(s.first_us) < {}", microseconds(until)));
    }
    let mut met = Vec::new();
    let mut any = |of_call: String, of_row: String| {
        let name = format!("met_{}", met.len());
        let figure = Figure::new(&name, format!("countIf({of_call}) > 0"), Merge::Max);
        met.push(figure.of_row(of_row));
        format!("max(s.{name}) = 1")
    };
    for (by, wanted) in filter.names.iter() {
        let name = text(&format!("{}{wanted}", name_prefix(by)));
        all.push(any(
            has(by, &value_of(by), wanted),
            format!("has(names, {name})"),
        ));
    }
    let outcomes = filter.outcomes.iter().map(|outcome| outcome.as_str());
    if let Some(of_call) = one_of(&value_of(Dimension::Outcome), outcomes.clone()) {
        let names =
            outcomes.map(|outcome| text(&format!("{}{outcome}", name_prefix(Dimension::Outcome))));
        let names: Vec<String> = names.collect();
        all.push(any(
            of_call,
            format!("hasAny(names, [{}])", names.join(", ")),
        ));
    }
    if let Some(search) = query.search.as_deref().filter(|search| !search.is_empty()) {
        let within =
            |value: &str| format!("positionCaseInsensitiveUTF8({value}, {}) > 0", text(search));
        let prefix = name_prefix(Dimension::Agent);
        let agent = any(
            within("ifNull(toString(agent), '')"),
            format!(
                "arrayExists(name -> startsWith(name, '{prefix}') AND {}, names)",
                within(&format!("substring(name, {})", prefix.len() + 1))
            ),
        );
        all.push(format!("({} OR {agent})", within("s.session_name")));
    }
    (all, met)
}

/// The sort expression, as a whole number, and the order.
fn sorted_by(query: &SessionQuery) -> (&'static str, String) {
    let by = match query.sort {
        SessionSort::LastAt => "all_last_us",
        SessionSort::StartedAt => "all_first_us",
        SessionSort::Cost => "all_cost_nano_sum",
        SessionSort::Tokens => {
            "if(isNull(all_input_sum) AND isNull(all_output_sum), NULL, ifNull(all_input_sum, 0) + ifNull(all_output_sum, 0))"
        }
        SessionSort::Calls => "toInt64(all_calls)",
        SessionSort::Duration => "(all_last_us - all_first_us)",
        SessionSort::Errors => "toInt64(all_errors)",
        SessionSort::Ttft => "toInt64(ttft_class)",
        SessionSort::Tps => {
            "if(ifNull(all_decode_us_sum, 0) > 0, toInt64(all_decode_tokens_sum * 1e9 / all_decode_us_sum), NULL)"
        }
    };
    let direction = if query.ascending { "ASC" } else { "DESC" };
    (
        by,
        format!("sorted_by {direction} NULLS LAST, s.session_name {direction}"),
    )
}

/// The condition that sessions come after a cursor.
fn after(query: &SessionQuery, by: &str, cursor: &str) -> Result<String, QueryError> {
    let (value, id) = cursor.split_once('.').ok_or_else(QueryError::cursor)?;
    let than = if query.ascending { ">" } else { "<" };
    let id = text(id);
    if value == "-" {
        return Ok(format!("isNull({by}) AND s.session_name {than} {id}"));
    }
    let value: i64 = value.parse().map_err(|_| QueryError::cursor())?;
    Ok(format!(
        "(isNull({by}) OR {by} {than} {value} OR ({by} = {value} AND s.session_name {than} {id}))"
    ))
}
