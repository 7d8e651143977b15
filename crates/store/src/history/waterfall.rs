//! The waterfall of a session: its calls with their phases.

use super::timed_call::TimedCall;
use super::{sessions, totals};
use crate::query::{Phase, PhaseName, SessionRow, WaterfallCall};
use std::time::{Duration, SystemTime};
use tokengauge_core::call::CallRecord;
use tokengauge_core::dimension::model_of;

/// The session of `calls`, which all belong to it, with all calls by start; `None` without calls.
pub fn waterfall<'a>(
    calls: impl Iterator<Item = TimedCall<'a>>,
) -> Option<(SessionRow, Vec<WaterfallCall>)> {
    let mut calls: Vec<TimedCall<'_>> = calls.collect();
    calls.sort_by(|one, other| {
        (one.started, &one.record.id).cmp(&(other.started, &other.record.id))
    });
    let first = *calls.first()?;
    let id = first.record.session.as_deref()?;
    let mut reached: Option<SystemTime> = None;
    let mut rows = Vec::with_capacity(calls.len());
    for past in &calls {
        let wait = reached.map(|end| seconds(past.started.duration_since(end)));
        let offset = seconds(past.started.duration_since(first.started));
        rows.push(waterfall_row(past.record, offset, wait));
        reached = reached.max(Some(past.ended));
    }
    Some((sessions::session(id, calls), rows))
}

/// A call of a waterfall; `offset` and `wait_before` are in seconds.
pub(crate) fn waterfall_row(
    call: &CallRecord,
    offset: f64,
    wait_before: Option<f64>,
) -> WaterfallCall {
    WaterfallCall {
        id: call.id.clone(),
        started_at: call.started_at,
        offset,
        wait_before,
        wait: call.wait.clone(),
        agent: call.agent.clone(),
        parent_agent: call.parent_agent.clone(),
        model: model_of(call).map(str::to_owned),
        route: call.route.clone(),
        upstream: call.upstream.clone(),
        outcome: call.outcome,
        error_type: call.error_type.clone(),
        status: call.status,
        streamed: call.streamed,
        tokens: totals::tokens(call),
        cost_usd: call.cost_usd,
        tps: call.tps.output,
        ttft: call.seconds.ttft,
        stalls: call.stalls,
        longest_gap: call.seconds.longest_gap,
        tools: call.tools.clone(),
        prompt: call.prompt.clone(),
        retry_of: call.retry_of.clone(),
        repetition: call.repetition.clone(),
        pod: call.pod.clone(),
        phases: phases(call, offset),
    }
}

/// The known phases of a call, consecutive and without gaps, from `offset` to the end of the call.
/// Phases that took no time are left out.
pub fn phases(call: &CallRecord, offset: f64) -> Vec<Phase> {
    use PhaseName::{Answer, Connect, Other, Prefill, Queue, Reasoning, Upload};
    let times = &call.seconds;
    let sent = times.connect.zip(times.upload);
    let sent = sent.map(|(connect, upload)| connect + upload);
    // The engine began with the prompt this long before the first token.
    let prompt = call.engine.and_then(|engine| engine.prompt_seconds);
    let begun = times.ttft.zip(prompt).map(|(ttft, prompt)| ttft - prompt);
    let thought = times.first_answer.or(times.last_token);
    let marks = [
        (Connect, times.connect),
        (Upload, sent),
        (Queue, begun),
        (Prefill, times.ttft),
        (Reasoning, thought),
        (Answer, times.last_token),
        (Other, times.duration),
    ];
    let mut reached = 0.0;
    let mut phases = Vec::new();
    for (name, end) in marks {
        let Some(end) = end.filter(|end| *end > reached) else {
            continue;
        };
        phases.push(Phase {
            name,
            start: offset + reached,
            end: offset + end,
        });
        reached = end;
    }
    phases
}

fn seconds(duration: Result<Duration, std::time::SystemTimeError>) -> f64 {
    duration.unwrap_or_default().as_secs_f64()
}
