//! Sessions: a page of them in any order, and one with its calls.

use super::Warehouse;
use super::rows::{Row, call_row};
use super::sql::{Span, at, class_of, has, one_of, text, value_of};
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

/// The sums of a session, in the order in which [`Summed::of`] reads them.
const SUMS: &str = "session, min(started_us) AS first_us, max(ended_us) AS last_us, count() AS calls, \
    countIf(failed) AS errors, toInt64(sum(input_tokens)) AS input_sum, toInt64(sum(reported_cached_input_tokens)), \
    toInt64(sum(output_tokens)) AS output_sum, toInt64(sum(reasoning_tokens)), sum(cost_nano) AS cost_nano_sum, \
    countIf(isNull(cost_nano) AND (isNotNull(input_tokens) OR isNotNull(output_tokens))), \
    sum(decode_tokens) AS decode_tokens_sum, sum(decode_us) AS decode_us_sum, \
    argMax(workload, (ended_us, id)), argMax(user, (ended_us, id)), argMax(experiment, (ended_us, id)), \
    argMax(variant, (ended_us, id))";

/// The columns that the page shows of each session in addition to its sums.
const DETAILS: &str =
    "session, arraySort(groupUniqArray(agent)), groupArray((started_us, ended_us))";

/// A session without its names and the time with a call in flight.
struct Summed {
    row: SessionRow,
    first_us: i64,
    last_us: i64,
}

impl Summed {
    fn of(row: &Row, ttft: usize) -> Summed {
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
        let class = row.whole(ttft).and_then(|class| i32::try_from(class).ok());
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
fn median_ttft() -> String {
    let class = class_of("assumeNotNull(ttft_seconds)");
    let classes = format!("arraySort(groupArrayIf({class}, isNotNull(ttft_seconds)))");
    format!(
        "if(notEmpty({classes} AS ttft_classes), ttft_classes[intDiv(length(ttft_classes) + 1, 2)], NULL) AS ttft_class"
    )
}

impl Warehouse {
    /// The sessions that match.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn sessions(&self, query: &SessionQuery) -> Result<Page<SessionRow>, QueryError> {
        let (by, order) = sorted_by(query);
        let mut having = having(query);
        if let Some(cursor) = &query.page.cursor {
            having.push(after(query, by, cursor)?);
        }
        let more = query.page.limit.saturating_add(1);
        let fields = format!("{SUMS}, {}, {by} AS sorted_by", median_ttft());
        let rest = format!(
            "GROUP BY session HAVING {} ORDER BY {order} LIMIT {more}",
            having.join(" AND ")
        );
        let statement = self.select(&fields, listed(&query.filter), &with_session(), &rest)?;
        let mut rows = self.rows(&statement)?;
        let there_is_more = rows.len() > query.page.limit;
        rows.truncate(query.page.limit);
        let place = |row: &Row| {
            let value = row
                .whole(18)
                .map_or("-".to_owned(), |value| value.to_string());
            format!("{value}.{}", row.text(0).unwrap_or_default())
        };
        let next_cursor = rows.last().filter(|_| there_is_more).map(place);
        let sums: Vec<Summed> = rows.iter().map(|row| Summed::of(row, 17)).collect();
        Ok(Page {
            rows: self.detailed(sums, listed(&query.filter))?,
            next_cursor,
        })
    }

    /// The sessions with their names, and the time with a call in flight.
    fn detailed(&self, sums: Vec<Summed>, span: Span) -> Result<Vec<SessionRow>, QueryError> {
        if sums.is_empty() {
            return Ok(Vec::new());
        }
        let ids = sums.iter().map(|session| session.row.id.as_str());
        let among: Vec<String> = one_of("session", ids).into_iter().collect();
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
        let mut having = having(&query);
        if let Some(until) = filter.until {
            having.push(format!("max(ended_us) < {}", microseconds(until)));
        }
        let rest = format!("GROUP BY session HAVING {}", having.join(" AND "));
        let fields = "max(ended_us) - min(started_us)";
        let statement = self.select(fields, listed(filter), &with_session(), &rest)?;
        let rows = self.rows(&statement)?;
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
        let fields = format!("{SUMS}, {}", median_ttft());
        let always = Span::default();
        let statement = self.select(&fields, always, &is, "GROUP BY session")?;
        let Some(sums) = self
            .rows(&statement)?
            .first()
            .map(|row| Summed::of(row, 17))
        else {
            return Ok(None);
        };
        let (first_us, last_us) = (sums.first_us, sums.last_us);
        let within = Span {
            since: Some(first_us.div_euclid(1_000)),
            until: Some(last_us.div_euclid(1_000) + 1),
        };
        let session = self.detailed(vec![sums], within)?.into_iter().next();
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

fn with_session() -> [String; 1] {
    ["isNotNull(session)".to_owned()]
}

fn microseconds(at: std::time::SystemTime) -> i64 {
    milliseconds(at).saturating_mul(1_000)
}

/// The conditions on sessions. Different calls of a session may meet different parts of the filter.
fn having(query: &SessionQuery) -> Vec<String> {
    let filter = &query.filter;
    let mut all = vec!["count() > 0".to_owned()];
    if let Some(since) = filter.since {
        all.push(format!("max(ended_us) >= {}", microseconds(since)));
    }
    if let Some(until) = filter.until {
        all.push(format!("min(started_us) < {}", microseconds(until)));
    }
    let any = |condition: String| format!("countIf({condition}) > 0");
    if let Some(session) = &filter.session {
        all.push(format!("session = {}", text(session)));
    }
    let names = filter.names.iter();
    all.extend(names.map(|(by, wanted)| any(has(by, wanted))));
    let outcomes = filter.outcomes.iter().map(|outcome| outcome.as_str());
    all.extend(one_of(&value_of(Dimension::Outcome), outcomes).map(any));
    if let Some(search) = query.search.as_deref().filter(|search| !search.is_empty()) {
        let within = |value: &str| {
            format!(
                "positionCaseInsensitiveUTF8(ifNull(toString({value}), ''), {}) > 0",
                text(search)
            )
        };
        all.push(format!(
            "({} OR {})",
            within("session"),
            any(within("agent"))
        ));
    }
    all
}

/// The sort expression, as a whole number, and the order.
fn sorted_by(query: &SessionQuery) -> (&'static str, String) {
    let by = match query.sort {
        SessionSort::LastAt => "max(ended_us)",
        SessionSort::StartedAt => "min(started_us)",
        SessionSort::Cost => "cost_nano_sum",
        SessionSort::Tokens => {
            "if(isNull(input_sum) AND isNull(output_sum), NULL, ifNull(input_sum, 0) + ifNull(output_sum, 0))"
        }
        SessionSort::Calls => "toInt64(count())",
        SessionSort::Duration => "(max(ended_us) - min(started_us))",
        SessionSort::Errors => "toInt64(countIf(failed))",
        SessionSort::Ttft => "toInt64(ttft_class)",
        SessionSort::Tps => {
            "if(ifNull(decode_us_sum, 0) > 0, toInt64(decode_tokens_sum * 1e9 / decode_us_sum), NULL)"
        }
    };
    let direction = if query.ascending { "ASC" } else { "DESC" };
    (
        by,
        format!("sorted_by {direction} NULLS LAST, session {direction}"),
    )
}

/// The condition that sessions come after a cursor.
fn after(query: &SessionQuery, by: &str, cursor: &str) -> Result<String, QueryError> {
    let (value, id) = cursor.split_once('.').ok_or_else(QueryError::cursor)?;
    let than = if query.ascending { ">" } else { "<" };
    let id = text(id);
    if value == "-" {
        return Ok(format!("isNull({by}) AND session {than} {id}"));
    }
    let value: i64 = value.parse().map_err(|_| QueryError::cursor())?;
    Ok(format!(
        "(isNull({by}) OR {by} {than} {value} OR ({by} = {value} AND session {than} {id}))"
    ))
}
