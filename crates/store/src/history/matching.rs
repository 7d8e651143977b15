use super::timed_call::TimedCall;
use crate::query::{Dimension, Filter, SessionQuery};
use tokengauge_core::call::CallRecord;

pub fn matches(filter: &Filter, past: &TimedCall<'_>) -> bool {
    filter.since.is_none_or(|since| past.started >= since)
        && filter.until.is_none_or(|until| past.started < until)
        && is_of_session(filter, past.record)
        && filter.names.iter().all(|name| has(past.record, name))
        && lacks(&filter.cost_unavailable, past.record.cost_unavailable)
        && lacks(&filter.tps_unavailable, past.record.tps.unavailable)
        && filter.has_outcome(past.record.outcome)
        && filter.has_class(past.record.operation_class)
}

fn lacks<R: PartialEq>(wanted: &Option<R>, reason: Option<R>) -> bool {
    wanted.is_none() || *wanted == reason
}

/// Whether the session of `calls` matches. Different calls may match different parts of the filter.
pub fn matches_session(query: &SessionQuery, calls: &[TimedCall<'_>]) -> bool {
    let filter = &query.filter;
    let any = |is: &dyn Fn(&TimedCall<'_>) -> bool| calls.iter().any(is);
    filter
        .since
        .is_none_or(|since| any(&|past| past.ended >= since))
        && filter
            .until
            .is_none_or(|until| any(&|past| past.started < until))
        && any(&|past| is_of_session(filter, past.record))
        && filter
            .names
            .iter()
            .all(|name| any(&|past| has(past.record, name)))
        && any(&|past| filter.has_outcome(past.record.outcome))
        && query.search.as_deref().is_none_or(|search| {
            let search = search.to_lowercase();
            let contains =
                |name: Option<&str>| name.is_some_and(|name| name.to_lowercase().contains(&search));
            any(&|past| {
                contains(past.record.session.as_deref()) || contains(past.record.agent.as_deref())
            })
        })
}

fn has(call: &CallRecord, (by, wanted): (Dimension, &str)) -> bool {
    by.selects(wanted, by.of(call).as_deref())
}

fn is_of_session(filter: &Filter, call: &CallRecord) -> bool {
    filter.session.is_none() || filter.session == call.session
}
