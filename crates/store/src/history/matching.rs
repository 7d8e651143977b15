//! Which calls match a filter.

use super::timed_call::TimedCall;
use crate::query::{Filter, SessionQuery};
use tokengauge_core::call::CallRecord;

/// Whether a call matches. Names match as a whole.
pub fn matches(filter: &Filter, past: &TimedCall<'_>) -> bool {
    filter.since.is_none_or(|since| past.started >= since)
        && filter.until.is_none_or(|until| past.started < until)
        && named(filter).all(|(wanted, of)| of(past.record) == Some(wanted))
        && filter.has_tool(past.record.tools.as_deref())
        && lacks(&filter.cost_unavailable, past.record.cost_unavailable)
        && lacks(&filter.tps_unavailable, past.record.tps.unavailable)
        && filter.has_outcome(past.record.outcome)
        && filter.has_class(past.record.operation_class)
}

/// Whether a call without a figure has none for the reason that is asked for.
fn lacks<R: PartialEq>(wanted: &Option<R>, reason: Option<R>) -> bool {
    wanted.is_none() || *wanted == reason
}

/// Whether the session of `calls` matches: each part of the filter may be matched by
/// another call.
pub fn matches_session(query: &SessionQuery, calls: &[TimedCall<'_>]) -> bool {
    let filter = &query.filter;
    let any = |is: &dyn Fn(&TimedCall<'_>) -> bool| calls.iter().any(is);
    filter
        .since
        .is_none_or(|since| any(&|past| past.ended >= since))
        && filter
            .until
            .is_none_or(|until| any(&|past| past.started < until))
        && named(filter).all(|(wanted, of)| any(&|past| of(past.record) == Some(wanted)))
        && any(&|past| filter.has_tool(past.record.tools.as_deref()))
        && any(&|past| filter.has_outcome(past.record.outcome))
        && query.search.as_deref().is_none_or(|search| {
            let search = search.to_lowercase();
            let has =
                |name: Option<&str>| name.is_some_and(|name| name.to_lowercase().contains(&search));
            any(&|past| has(past.record.session.as_deref()) || has(past.record.agent.as_deref()))
        })
}

type Part = fn(&CallRecord) -> Option<&str>;

/// The names that are asked for, and what a call has of each kind.
fn named(filter: &Filter) -> impl Iterator<Item = (&str, Part)> {
    let parts: [(&Option<String>, Part); 15] = [
        (&filter.model, model_of),
        (&filter.workload, |call| call.workload.as_deref()),
        (&filter.route, |call| Some(&call.route)),
        (&filter.upstream, |call| Some(&call.upstream)),
        (&filter.agent, |call| call.agent.as_deref()),
        (&filter.user, |call| call.user.as_deref()),
        (&filter.experiment, |call| call.experiment.as_deref()),
        (&filter.session, |call| call.session.as_deref()),
        (&filter.cluster, |call| {
            call.pod.as_ref()?.cluster.as_deref()
        }),
        (&filter.namespace, |call| {
            call.pod.as_ref()?.namespace.as_deref()
        }),
        (&filter.pod, |call| call.pod.as_ref()?.name.as_deref()),
        (&filter.team, |call| call.team.as_deref()),
        (&filter.cost_center, |call| call.cost_center.as_deref()),
        (&filter.tenant, |call| call.tenant.as_deref()),
        (&filter.key_hash, |call| call.key_hash.as_deref()),
    ];
    let parts = parts.into_iter();
    parts.filter_map(|(wanted, of)| wanted.as_deref().map(|wanted| (wanted, of)))
}

/// The model that answered, else the one asked for.
pub fn model_of(call: &CallRecord) -> Option<&str> {
    call.model.as_deref().or(call.model_requested.as_deref())
}
