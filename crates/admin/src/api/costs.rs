//! `/api/v1/costs`: the cost of calls over time, by a dimension.

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

pub(super) const OF_COSTS: [&str; 3] = ["dimension", "step", "series"];
/// The number of series without the parameter `series`.
pub(super) const DEFAULT_SERIES: usize = 8;
pub(super) const MAX_SERIES: usize = 50;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// A day in UTC. A ledger has daily sums of all dimensions except sessions and lengths.
const DAY: Duration = Duration::from_secs(86_400);

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Costs")]
pub(super) struct CostsOverTime {
    /// The store that answered.
    store: CallSourceName,
    #[serde(flatten)]
    span: Times,
    #[serde(flatten)]
    costs: Costs,
}

/// Costs over time. If there are more than 1000 steps, the newest 1000 are answered, and `since` is their start.
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
            // The query uses the default step of a day here.
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

/// The step if none is requested. With `by_day` there are only daily sums, and shorter steps are read from the calls.
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
