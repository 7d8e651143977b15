//! `/api/v1/costs`: what calls cost over time, by something they have in common.

use super::call_source::{CallSource, CallSourceName, Span, ask};
use super::finished::Times;
use super::problem::JsonResponse;
use super::query_params::{FILTERS, QueryParams};
use crate::Services;
use axum::Json;
use axum::extract::{RawQuery, State};
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use tokengauge_store::history::MAX_POINTS;
use tokengauge_store::query::{CostQuery, Costs, DailySums, Filter};

/// The parameters of costs alone.
pub(super) const OF_COSTS: [&str; 3] = ["dimension", "step", "series"];
/// The default and the greatest number of series.
pub(super) const DEFAULT_SERIES: usize = 8;
pub(super) const MAX_SERIES: usize = 50;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// Of UTC: by whole days a ledger has sums of everything but sessions and lengths.
const DAY: Duration = Duration::from_secs(86_400);

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Costs")]
pub(super) struct CostsOverTime {
    /// Which store answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    #[serde(flatten)]
    costs: Costs,
}

/// Costs over time. Of a long time the newest 1000 steps are answered, which `since` says.
pub(super) async fn costs(
    State(services): State<Services>,
    RawQuery(query): RawQuery,
) -> JsonResponse<CostsOverTime> {
    let asked = QueryParams::of(query.as_deref(), &[&FILTERS, &OF_COSTS])?;
    let now = (services.wall)();
    let step = asked.duration("step")?;
    let mut query = CostQuery {
        filter: asked.filter(now)?,
        by: asked.dimension("dimension")?,
        step: step.unwrap_or(DAY),
        most: asked.count("series", DEFAULT_SERIES, MAX_SERIES)?,
    };
    let question = move |source: &CallSource| {
        let mut span = source.span(&query.filter, query.daily_sums(), now)?;
        if step.is_none() {
            let length = span.and_then(|span| span.length());
            // With the step of a day that it has here.
            let by_day = query.daily_sums() == Some(DailySums::Spending);
            query.step = default_step(length.unwrap_or_default(), by_day);
            span = source.span(&query.filter, query.daily_sums(), now)?;
        }
        let span = span.map(|span| newest(span, query.step));
        let costs = match span {
            None => Costs {
                step: query.step.as_secs(),
                ..Costs::default()
            },
            Some(Span { since, until }) => {
                query.filter = Filter {
                    since: Some(since),
                    until: Some(until),
                    ..query.filter
                };
                source.costs(&query)?
            }
        };
        Ok(CostsOverTime {
            store: source.name(),
            span: Times::of(span),
            costs,
        })
    };
    ask(&services, question).await.map(Json)
}

/// The step of a time where none is asked for; `by_day` where there are sums by day alone, and what is shorter is read from
/// the calls.
fn default_step(length: Duration, by_day: bool) -> Duration {
    let most_hours = DAY * if by_day { 2 } else { 14 };
    if length <= HOUR * 12 {
        MINUTE
    } else if length <= most_hours {
        HOUR
    } else {
        DAY
    }
}

/// The part of a time that has no more steps than an answer may have.
fn newest(span: Span, step: Duration) -> Span {
    let most = step.saturating_mul(MAX_POINTS as u32 - 1);
    let earliest = span.until.checked_sub(most).unwrap_or(span.since);
    Span {
        since: span.since.max(earliest),
        ..span
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_time_has_as_many_steps_as_an_answer_may_have() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let span = |since, until| Span {
            since: at(since),
            until: at(until),
        };
        let minute = Duration::from_secs(60);
        assert_eq!(newest(span(0, 59_940), minute), span(0, 59_940));
        assert_eq!(newest(span(0, 100_000), minute), span(40_060, 100_000));
        let years = Duration::from_secs(u64::MAX);
        assert_eq!(newest(span(5, 100), years), span(5, 100));
    }

    #[test]
    fn without_a_step_the_whole_time_is_answered() {
        for (length, by_day, step) in [
            (Duration::ZERO, false, MINUTE),
            (HOUR * 12, true, MINUTE),
            (DAY, false, HOUR),
            (DAY * 14, false, HOUR),
            (DAY * 15, false, DAY),
            (DAY * 2, true, HOUR),
            (DAY * 3, true, DAY),
            (DAY * 900, true, DAY),
        ] {
            assert_eq!(default_step(length, by_day), step, "{length:?}");
            let whole = Span {
                since: UNIX_EPOCH,
                until: UNIX_EPOCH + length,
            };
            assert_eq!(newest(whole, step), whole);
        }
    }
}
