use super::matching::matches_session;
use super::quantile::{quantile, sorted};
use super::timed_call::TimedCall;
use super::totals::Totals;
use crate::query::{SessionQuery, SessionRow, SessionSeconds, SessionSort, SessionTps};
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime};
use tokengauge_core::dimension::model_of;
use tokengauge_core::time::Timestamp;

/// All sessions of `calls` that `query` selects, in the order of the query, then by id, without
/// paging.
pub fn sessions<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &SessionQuery,
) -> Vec<SessionRow> {
    let mut all: Vec<SessionRow> = by_session(calls, query)
        .map(|(id, calls)| session(id, calls))
        .collect();
    all.sort_by(|one, other| {
        let (first, second) = (value(query.sort, one), value(query.sort, other));
        let by_value = compare(first, second, query.ascending);
        by_value.then_with(|| one.id.cmp(&other.id))
    });
    all
}

/// Durations in seconds of the sessions that `query` selects and whose last call so far ended
/// before its `until`.
pub fn task_seconds<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &SessionQuery,
) -> Vec<f64> {
    let until = query.filter.until;
    by_session(calls, query)
        .filter_map(|(_, calls)| {
            let started = calls.iter().map(|call| call.started).min()?;
            let last = calls.iter().map(|call| call.ended).max()?;
            until
                .is_none_or(|until| Timestamp::from(last).time() < until)
                .then(|| {
                    last.duration_since(started)
                        .unwrap_or_default()
                        .as_secs_f64()
                })
        })
        .collect()
}

fn by_session<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
    query: &SessionQuery,
) -> impl Iterator<Item = (&'a str, Vec<TimedCall<'a>>)> {
    let mut by_id: HashMap<&str, Vec<TimedCall<'a>>> = HashMap::new();
    for call in calls.filter(|call| !call.nested) {
        if let Some(id) = call.record.session.as_deref() {
            by_id.entry(id).or_default().push(call);
        }
    }
    by_id
        .into_iter()
        .filter(|(_, calls)| matches_session(query, calls))
}

/// The row of a session from its `calls`, which must not be empty. Nested calls add nothing.
pub(super) fn session(id: &str, mut calls: Vec<TimedCall<'_>>) -> SessionRow {
    calls.sort_by(|one, other| {
        (one.started, &one.record.id).cmp(&(other.started, &other.record.id))
    });
    let started = calls
        .first()
        .map_or(SystemTime::UNIX_EPOCH, |past| past.started);
    let last = calls.iter().map(|past| past.ended).max().unwrap_or(started);
    calls.retain(|past| !past.nested);
    let mut totals = Totals::default();
    for past in &calls {
        totals.add(past);
        totals.add_decode(past);
    }
    let wall = last.duration_since(started).unwrap_or_default();
    let model = under_way(&calls);
    let ttft = sorted(calls.iter().filter_map(|past| past.record.seconds.ttft));
    SessionRow {
        id: id.to_owned(),
        started_at: started.into(),
        last_at: last.into(),
        calls: totals.calls,
        errors: totals.errors,
        agents: names(&calls, |past| past.record.agent.as_deref()),
        models: names(&calls, |past| model_of(past.record)),
        workload: newest(&calls, |past| past.record.workload.as_deref()),
        user: newest(&calls, |past| past.record.user.as_deref()),
        experiment: newest(&calls, |past| past.record.experiment.as_deref()),
        variant: newest(&calls, |past| past.record.variant.as_deref()),
        tokens: totals.tokens,
        cost_usd: totals.cost_usd,
        unpriced_calls: totals.unpriced,
        seconds: SessionSeconds {
            wall: wall.as_secs_f64(),
            model: model.as_secs_f64(),
            tools: wall.saturating_sub(model).as_secs_f64(),
            ttft_p50: quantile(&ttft, 0.5),
        },
        tps: SessionTps {
            output: totals.tps(),
        },
        in_flight: 0,
    }
}

/// The time with at least one call in progress. `calls` are in the order of their start.
fn under_way(calls: &[TimedCall<'_>]) -> Duration {
    let (mut sum, mut reached) = (Duration::ZERO, SystemTime::UNIX_EPOCH);
    for past in calls {
        let from = past.started.max(reached);
        sum += past.ended.duration_since(from).unwrap_or_default();
        reached = reached.max(past.ended);
    }
    sum
}

fn names<'a>(
    calls: &[TimedCall<'a>],
    of: impl Fn(&TimedCall<'a>) -> Option<&'a str>,
) -> Vec<String> {
    let distinct: BTreeSet<&str> = calls.iter().filter_map(of).collect();
    distinct.into_iter().map(str::to_owned).collect()
}

/// The value of the call that ended last among calls that have a value. The ledger does the same,
/// because it gets records when calls end.
fn newest<'a>(
    calls: &[TimedCall<'a>],
    of: impl Fn(&TimedCall<'a>) -> Option<&'a str>,
) -> Option<String> {
    let known = calls
        .iter()
        .filter_map(|past| Some((past.ended, of(past)?)));
    known
        .max_by_key(|(ended, _)| *ended)
        .map(|(_, name)| name.to_owned())
}

#[derive(Clone, Copy)]
enum Value {
    Number(Option<f64>),
    Time(Timestamp),
}

fn value(sort: SessionSort, session: &SessionRow) -> Value {
    let known = |value: f64| Value::Number(Some(value));
    match sort {
        SessionSort::LastAt => Value::Time(session.last_at),
        SessionSort::StartedAt => Value::Time(session.started_at),
        SessionSort::Cost => Value::Number(session.cost_usd),
        SessionSort::Tokens => {
            let (input, output) = (session.tokens.input, session.tokens.output);
            let sum = input.unwrap_or(0).saturating_add(output.unwrap_or(0));
            Value::Number(input.or(output).map(|_| sum as f64))
        }
        SessionSort::Calls => known(session.calls as f64),
        SessionSort::Duration => known(session.seconds.wall),
        SessionSort::Errors => known(session.errors as f64),
        SessionSort::Ttft => Value::Number(session.seconds.ttft_p50),
        SessionSort::Tps => Value::Number(session.tps.output),
    }
}

/// Compares two values. Unknown values come last in either order.
fn compare(one: Value, other: Value, ascending: bool) -> Ordering {
    let turned = |ordering: Ordering| {
        if ascending {
            ordering
        } else {
            ordering.reverse()
        }
    };
    match (one, other) {
        (Value::Time(one), Value::Time(other)) => turned(one.cmp(&other)),
        (Value::Number(Some(one)), Value::Number(Some(other))) => turned(one.total_cmp(&other)),
        (Value::Number(Some(_)), _) => Ordering::Less,
        (_, Value::Number(Some(_))) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}
