//! The end of a call: reads what was deferred, and makes the record. Expensive work runs in the
//! background.

use super::call_state::CallState;
use super::context::CallContext;
use super::ended_prompt;
use super::guard;
use super::prompts::ReadPrompt;
use super::reading::Reading;
use super::realtime_turns::RealtimeTurns;
use super::record::{self, RecordInput};
use super::verdict;
use super::worker::Executor;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_core::background::yield_now;
use tokengauge_core::call::{Dialect, Outcome};
use tokengauge_core::observer::{End, FailureKind};

pub(crate) struct RunningCall {
    pub(crate) state: CallState,
    /// `None` unless the connection was upgraded.
    pub(crate) turns: Option<Box<RealtimeTurns>>,
}

pub(crate) fn end(context: &Arc<CallContext>, ended: RunningCall, at: Instant, end: End) {
    let RunningCall { mut state, turns } = ended;
    if let Some(live) = &state.run.live {
        live.mark_ended();
    }
    if is_out_of_reach(&end) {
        context.route_stats.unreachable();
    }
    state.settle(at);
    if let Some(mut turns) = turns {
        turns.end(context, &mut state, at, &end);
        return;
    }
    guarded(context, &mut state, |state| {
        finish_stream(context, state, at)
    });
    if !state.sniffs(context) {
        settle_request(context, &state);
    }
    if !needs_background(context, &state, &end) {
        conclude(context, state, at, &end, CountedPrompt::default());
        return;
    }
    let owned = Arc::clone(context);
    let job = move |executor| finish_deferred(&owned, state, at, &end, executor);
    let worker = &context.shared.worker;
    let queued = if context.limited.is_some() {
        worker.queue_urgent(Box::new(job))
    } else {
        worker.queue(Box::new(job))
    };
    if let Err(refused) = queued {
        context.shared.counters.body_skipped();
        refused(Executor::Traffic);
    }
}

/// Whether the proxy could not connect to the upstream. This runs before the record is made, which
/// may happen later in the background. So the next call already counts as the first of a warm-up.
fn is_out_of_reach(end: &End) -> bool {
    let End::Failed(kind) = end else { return false };
    *kind == FailureKind::ConnectTimeout || verdict::failed(*kind) == Outcome::Unreachable
}

/// Decides about the request of a call on an unknown path: its facts count only if the response is
/// in a known dialect.
fn settle_request(context: &CallContext, state: &CallState) {
    if !context.sniffs {
        return;
    }
    let Some(mut request) = context.request.try_lock() else {
        return;
    };
    match state.dialect(context) {
        Dialect::Unknown => request.forget(),
        dialect => request.is_of(dialect),
    }
}

fn finish_stream(context: &CallContext, state: &mut CallState, at: Instant) {
    let accepted = state.accepted();
    let Reading::Inline { decoder, .. } = &mut state.reading else {
        return;
    };
    if !decoder.is_stream() {
        return;
    }
    let generation = &mut state.run.generation;
    let lost = generation.lost();
    let read = decoder.finish(&mut |event| generation.event(event));
    let cut_short = !generation.concluded();
    if cut_short {
        generation.forget_lost(lost);
    } else if read.is_err() {
        state.broken = true;
    }
    // Text that only the end produces belongs to the last chunk.
    let at = state.latest.unwrap_or(at);
    state.run.chunk(context, at, accepted);
}

fn needs_background(context: &CallContext, state: &CallState, end: &End) -> bool {
    let whole = state
        .reading
        .decoder()
        .is_some_and(|decoder| !decoder.is_stream());
    let later = matches!(state.reading, Reading::Deferred { .. });
    let request = context.request.try_lock();
    let busy = request.is_none();
    let reported = state.run.generation.usage().input.is_some();
    let counts = !reported && !is_refused(state, end);
    let reads = counts || context.measure.analysis.enabled;
    let unread = request.is_some_and(|request| request.is_unread() || request.countable() && reads);
    whole || later || busy || unread
}

/// Whether the prompt was not processed, because the proxy did not send it or the upstream refused
/// it.
fn is_refused(state: &CallState, end: &End) -> bool {
    let here = |kind| {
        let outcome = verdict::failed(kind);
        matches!(outcome, Outcome::Rejected | Outcome::Unreachable)
    };
    match (state.status, end) {
        (Some(status), _) => status >= 400,
        (None, End::Failed(kind)) => here(*kind),
        (None, _) => false,
    }
}

fn finish_deferred(
    context: &CallContext,
    mut state: CallState,
    at: Instant,
    end: &End,
    executor: Executor,
) {
    if executor == Executor::Traffic {
        let unread = matches!(state.reading, Reading::Deferred { .. })
            || state
                .reading
                .decoder()
                .is_some_and(|decoder| !decoder.is_stream());
        if unread && !state.sniffs(context) {
            context.shared.counters.lagged(1);
            state.lagged = true;
        }
        if let Some(mut request) = context.request.try_lock() {
            request.release();
        }
        conclude(context, state, at, end, CountedPrompt::default());
        return;
    }
    guarded(context, &mut state, |state| read_rest(context, state));
    settle_request(context, &state);
    let mut counted = CountedPrompt {
        input: None,
        prompt: ended_prompt::read(context),
    };
    guarded(context, &mut state, |state| {
        counted.input = count_input(context, state, end, counted.prompt.as_ref());
    });
    conclude(context, state, at, end, counted);
}

fn read_rest(context: &CallContext, state: &mut CallState) {
    let accepted = state.accepted();
    let latest = state.latest.unwrap_or(context.received);
    let sniffs = state.sniffs(context);
    let cost_of_head = state.run.generation.cost_usd();
    let (mut decoder, backlog) = match std::mem::take(&mut state.reading) {
        Reading::Nothing => return,
        Reading::Inline { decoder, .. } => (decoder, None),
        Reading::Deferred { decoder, backlog } => (decoder, Some(backlog)),
    };
    let run = &mut state.run;
    let mut read = Ok(());
    for (at, bytes) in backlog.iter().flat_map(|backlog| backlog.chunks()) {
        read = read.and_then(|()| decoder.push(bytes, &mut |event| run.generation.event(event)));
        if decoder.is_stream() {
            run.chunk(context, at, accepted);
        }
        yield_now();
    }
    let lost = run.generation.lost();
    read = read.and_then(|()| decoder.finish(&mut |event| run.generation.event(event)));
    if decoder.is_stream() {
        run.chunk(context, latest, accepted);
        if !run.generation.concluded() {
            run.generation.forget_lost(lost);
        }
    } else if sniffs && !run.generation.is_answer() {
        return run.generation.forget_body(cost_of_head);
    } else {
        if sniffs {
            let mut request = context.request();
            request.is_of(decoder.dialect());
            context.read_facts(&mut request);
        }
        run.whole(context, latest, accepted);
    }
    state.reading = Reading::new(*decoder, false);
    if let Err(error) = read {
        state.unreadable(context, error);
    }
}

/// What was read of the request at the end of a call.
#[derive(Default)]
struct CountedPrompt {
    input: Option<u64>,
    prompt: Option<ReadPrompt>,
}

fn count_input(
    context: &CallContext,
    state: &CallState,
    end: &End,
    prompt: Option<&ReadPrompt>,
) -> Option<u64> {
    let reported = state.run.generation.usage().input.is_some();
    if reported || is_refused(state, end) {
        return None;
    }
    match prompt {
        Some(prompt) => Some(prompt.tokens()).filter(|tokens| *tokens > 0),
        None => context.request.lock().count(),
    }
}

fn conclude(
    context: &CallContext,
    mut state: CallState,
    at: Instant,
    end: &End,
    counted: CountedPrompt,
) {
    let accepted = state.accepted();
    let latest = state.latest.unwrap_or(at);
    guarded(context, &mut state, |state| {
        state.run.finish(context, latest, accepted)
    });
    if let Some(mut request) = context.request.try_lock() {
        if context.measure.analysis.enabled && request.is_lost() {
            context.shared.prompts.skipped();
        }
        request.release();
    }
    let closing = RecordInput::of_call(context, &state, at, end, counted.input);
    let mut finished_call = record::finished_call(context, &mut state, closing);
    if let Some(prompt) = counted.prompt {
        ended_prompt::finish(context, prompt, &mut finished_call.record, at);
    }
    state.run.conclude(context, &finished_call, accepted);
    state.run.live = None;
    context.shared.subscribers.finished(finished_call);
    context.shared.memory.freed();
}

/// Runs `act`. After a panic the call is no longer measured, and the proxy continues.
fn guarded(context: &CallContext, state: &mut CallState, act: impl FnOnce(&mut CallState)) {
    if guard::guarded(|| act(state)).is_none() {
        context.shared.counters.panicked();
        state.give_up();
    }
}
