//! Makes the record of a call from its final state, with the formulas of `docs/measurement.md`.

use super::call_state::CallState;
use super::context::CallContext;
use super::generation::Generation;
use super::hidden;
use super::verdict::{self, Facts};
use super::{CallTimestamps, FinishedCall, RequestParameters};
use http::Method;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokengauge_accounting::LimitedCall;
use tokengauge_accounting::attribution::Attribution;
use tokengauge_accounting::cost::{DirectCosts, Prices};
use tokengauge_core::call::{
    CallRecord, CostSource, Dialect, Normalised, Operation, OperationClass, Outcome, Seconds,
    Source, Tokens, Tps, TpsUnavailable, UNTERMINATED, Usage, seconds, seconds_between,
};
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_core::trace::CallTrace;
use tokengauge_wire::{BeyondText, DIALECTS};
use uuid::Uuid;

pub(crate) struct RecordInput<'a> {
    pub(crate) id: Uuid,
    pub(crate) started_at: SystemTime,
    pub(crate) received: Instant,
    pub(crate) connected: Option<Instant>,
    pub(crate) sent: Option<Instant>,
    /// Whether the agent asked for the generation. If the server began it, the first token is its
    /// start and there was no wait.
    pub(crate) asked: bool,
    pub(crate) ended: Instant,
    pub(crate) end: &'a End,
    pub(crate) streamed: Option<bool>,
    pub(crate) dialect: Dialect,
    pub(crate) input: Option<u64>,
    pub(crate) trace: Option<CallTrace>,
    pub(crate) class: Option<OperationClass>,
}

impl<'a> RecordInput<'a> {
    pub(crate) fn of_call(
        context: &CallContext,
        state: &CallState,
        ended: Instant,
        end: &'a End,
        input: Option<u64>,
    ) -> RecordInput<'a> {
        RecordInput {
            id: context.id,
            started_at: context.started_at,
            received: context.received,
            connected: state.connected,
            sent: state.sent,
            asked: true,
            ended,
            end,
            streamed: state.streamed(),
            dialect: state.dialect(context),
            input,
            trace: context.trace.as_deref().copied(),
            class: None,
        }
    }
}

pub(crate) fn finished_call(
    context: &CallContext,
    state: &mut CallState,
    closing: RecordInput<'_>,
) -> FinishedCall {
    let measure = &context.measure;
    let generation = &state.run.generation;
    let mut closing = closing;
    let is_socket = state.status == Some(101);
    let is_foreign = closing.streamed == Some(true) && generation.is_foreign() && !is_socket;
    let expected = closing.dialect;
    if is_foreign {
        closing.dialect = Dialect::Unknown;
    }
    let request = context.request.try_lock();
    let asked = request
        .as_ref()
        .and_then(|request| request.facts.as_deref());
    let of_body = asked.and_then(|asked| asked.model.as_deref());
    let names_model = context.path_model.is_some() || of_body.is_some();
    let readable = !state.broken && !generation.is_unparsed();
    let is_whole = readable && !state.lagged;
    let facts = Facts {
        dialect: closing.dialect,
        expected,
        status: state.status,
        streamed: closing.streamed,
        readable,
        broken: state.broken,
        asks_for_text: context.generates
            && context.operation.class() == OperationClass::Generation
            // Any kind of server may answer at `/`.
            && &*context.path != "/"
            // Other servers use some of these paths too, and stream other events.
            && (!is_foreign || names_model || closing.input.is_some()),
        lagged: state.lagged,
        choices: asked.and_then(|asked| asked.choices),
        hidden: is_whole && hidden::hidden(closing.dialect, generation),
    };
    let counters = &context.shared.counters;
    counters.unknown_usage(closing.dialect, generation.unknown_usage());
    let outcome = verdict::outcome(closing.end, &facts, generation);
    let answered = state.bytes.response > 0;
    let processed = verdict::processed(outcome, &facts, generation, closing.sent, answered);
    closing.input = closing.input.filter(|_| processed);
    let unavailable = verdict::unavailable(measure, outcome, &facts, generation);
    let mut who = context.attributed(asked);
    // The trace of the server's span has priority over the agent's.
    let own = closing.trace.map(|trace| trace.server.trace_id);
    let trace_id = own.or(who.trace_id);
    who.trace_id = trace_id;
    let asked_tier = asked.and_then(|asked| asked.service_tier.as_deref());
    let served_tier = generation.service_tier.as_deref();
    let service_tier = served_tier.or(asked_tier).map(str::to_owned);
    let reasoning_effort = asked.and_then(|asked| asked.reasoning_effort.clone());
    let settings = request
        .as_ref()
        .and_then(|request| request.settings.as_deref());
    let asked = settings.map(|settings| RequestParameters {
        settings: settings.clone(),
        choices: asked.and_then(|asked| asked.choices),
        service_tier: asked.and_then(|asked| asked.service_tier.clone()),
    });
    drop(request);
    let guessed_session = who.session_guess.is_some();
    let verdict = CallVerdict {
        facts,
        outcome,
        unavailable,
    };
    let refused = verdict.outcome == Outcome::HttpError;
    let reported_cost = generation.cost_usd().filter(|_| !refused);
    let mut record = record(context, state, &closing, &verdict, who);
    record.service_tier = service_tier;
    record.reasoning_effort = reasoning_effort;
    if generation.is_queued()
        && let Some(id) = generation.response_id.as_deref()
    {
        context.shared.background.accepted(id);
    }
    let input = record
        .tokens
        .reported
        .input
        .or(record.tokens.normalised.input);
    let limited = context.limited.as_deref();
    (limited.iter()).for_each(|limited| limited.charge(input.unwrap_or(0)));
    let total = generation.tokens().all();
    let decode = generation.timeline.all;
    let decode = decode.filter(|_| unavailable.is_none() && context.generates);
    let response_id = generation.response_id.clone();
    let known = DirectCosts {
        reported: reported_cost,
        gpu: state.gpu_cost(closing.ended),
    };
    price(&mut record, &context.accounting.prices, known);
    FinishedCall {
        guessed_session,
        nested: context.hop.as_ref().is_some_and(|hop| hop.nested),
        charges: limited.map(LimitedCall::charges).unwrap_or_default(),
        ended: closing.ended,
        timestamps: timestamps(&closing, state),
        id: closing.id,
        trace_id,
        failure: match closing.end {
            End::Failed(kind) if verdict.outcome != Outcome::Complete => Some(*kind),
            _ => None,
        },
        sampled: closing.trace.map_or_else(
            || (context.attribution.as_ref()).is_some_and(|attribution| attribution.sampled()),
            |trace| trace.server.sampled(),
        ),
        trace: closing.trace,
        trace_state: context.trace_state.clone(),
        request_parameters: asked.map(Box::new),
        response_id: response_id.map(String::from),
        concurrency: state.run.live.as_ref().map_or(1, |live| live.concurrency()),
        decode: decode.map(|span| (span.decoded(total), seconds(span.duration()))),
        tool_calls: state.run.generation.tool_calls(),
        inter_token: state.run.generation.timeline.inter_token.take(),
        inter_chunk: state.run.generation.timeline.inter_chunk.take(),
        head_overhead: state.head_overhead.take(),
        chunk_overhead: state.chunk_overhead.take(),
        record,
    }
}

struct CallVerdict {
    facts: Facts,
    outcome: Outcome,
    unavailable: Option<TpsUnavailable>,
}

fn record(
    context: &CallContext,
    state: &CallState,
    closing: &RecordInput<'_>,
    verdict: &CallVerdict,
    who: Attribution,
) -> CallRecord {
    let workload = context.workload().map(|name| String::from(&**name));
    let measure = &context.measure;
    let generation = &state.run.generation;
    let (operation, operation_class) = operation_of(context, generation, state.status);
    let operation_class = closing.class.unwrap_or(operation_class);
    let named = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
    CallRecord {
        id: String::from(
            &*closing
                .id
                .hyphenated()
                .encode_lower(&mut Uuid::encode_buffer()),
        ),
        started_at: closing.started_at.into(),
        route: String::from(&*context.route_stats.route),
        upstream: String::from(&*context.route_stats.upstream),
        upstream_facts: measure
            .upstream_facts
            .get(&context.route_stats.upstream)
            .cloned(),
        endpoint: state.endpoint.as_deref().map(str::to_owned),
        dialect: closing.dialect,
        operation,
        operation_class,
        method: Some(context.method.as_str().to_owned()),
        path: Some(String::from(&*context.path)),
        model_requested: context.model_requested(),
        model: generation.model.as_deref().map(str::to_owned),
        streamed: closing.streamed,
        status: status(state.status, closing.end),
        outcome: verdict.outcome,
        error_type: error_type(verdict.outcome, &verdict.facts, closing.end, generation),
        finish_reasons: generation.finish_reasons(),
        tools: generation.tools(),
        session: who.session,
        session_guess: who.session_guess,
        agent: who.agent,
        parent_agent: who.parent_agent,
        user: who.user,
        team: named(&context.payer.team),
        cost_center: named(&context.payer.cost_center),
        tenant: named(&context.payer.tenant),
        key_hash: context.key_hash.as_deref().map(str::to_owned),
        workload,
        experiment: who.experiment,
        variant: who.variant,
        trace_id: who.trace_id.map(|id| format!("{id:032x}")),
        hop: context.hop.as_ref().map(|hop| hop.number),
        response_id: generation.response_id.as_deref().map(str::to_owned),
        service_tier: None,
        reasoning_effort: None,
        served_by: generation.provider().map(str::to_owned),
        warm_up: state.warm_up,
        tokens: tokens(context, generation, verdict, closing.input),
        seconds: durations(closing, generation, state.status),
        tps: speeds(
            context,
            closing,
            &verdict.facts,
            generation,
            verdict.unavailable,
        ),
        frames: generation.timeline.all.map_or(0, |span| span.chunks),
        stalls: generation.timeline.stalls,
        segments: match verdict.unavailable {
            None => generation.timeline.segments(generation.tokens().all()),
            Some(_) => Vec::new(),
        },
        first_token_event: generation.first_token_event.map(u64::from),
        skipped_events: generation.skipped_events(),
        bytes: state.bytes,
        cost_usd: None,
        cost_source: None,
        cost_unavailable: None,
        engine: generation.engine.as_deref().copied(),
        prompt: None,
        wait: None,
        cache_break: None,
        retry_of: None,
        repetition: generation.counts.repetition().map(Box::new),
        prompt_blocks: None,
        pod: None,
        scores: Vec::new(),
    }
}

/// Sets the cost of the call, or the reason why it is unknown. Our own count is an estimate of the
/// billed tokens.
fn price(record: &mut CallRecord, prices: &Prices, known: DirectCosts) {
    let (usd, source) = match prices.cost(record, known) {
        Ok(cost) => cost,
        Err(reason) => {
            record.cost_unavailable = Some(reason);
            return;
        }
    };
    record.cost_usd = Some(usd);
    record.cost_source = Some(source);
    let by_tokens = !matches!(source, CostSource::Gpu | CostSource::Reported);
    if by_tokens && record.tokens.source == Some(Source::Counted) {
        record.tokens.source = Some(Source::Estimated);
    }
}

fn operation_of(
    context: &CallContext,
    generation: &Generation,
    status: Option<u16>,
) -> (Operation, OperationClass) {
    if context.is_socket && context.method == Method::GET && refuses_sockets(status) {
        return (context.operation, OperationClass::Other);
    }
    let known = context.operation.class();
    if known != OperationClass::Other {
        return (context.operation, known);
    }
    let text = generation.tokens().all() > 0 || generation.usage().output.is_some();
    match (context.generates, text) {
        (false, true) => (Operation::Retrieve, OperationClass::Retrieve),
        (true, true) => (context.operation, OperationClass::Generation),
        _ => (context.operation, known),
    }
}

/// Whether this status means that a server does not support WebSockets. Agents then fall back to
/// HTTP.
fn refuses_sockets(status: Option<u16>) -> bool {
    matches!(status, Some(404 | 405 | 426 | 501))
}

fn timestamps(closing: &RecordInput<'_>, state: &mut CallState) -> CallTimestamps {
    let timeline = &mut state.run.generation.timeline;
    CallTimestamps {
        started_at: closing.started_at,
        received: closing.received,
        connected: closing.connected,
        sent: closing.sent,
        head: state.answered.filter(|at| *at >= closing.received),
        first_token: timeline.all.map(|span| span.first),
        first_answer: timeline.answer.map(|span| span.first),
        last_token: timeline.all.map(|span| span.last),
        stalls: std::mem::take(&mut timeline.stalled),
    }
}

fn status(upstream: Option<u16>, end: &End) -> Option<u16> {
    let ours = match end {
        End::Failed(kind) => Some(kind.status().as_u16()),
        _ => None,
    };
    upstream.or(ours)
}

/// The error type: the proxy's own, or the error in the body, or the status.
fn error_type(
    outcome: Outcome,
    facts: &Facts,
    end: &End,
    generation: &Generation,
) -> Option<String> {
    let of_body = generation.failure().map(str::to_owned);
    match (outcome, end) {
        (outcome, End::Failed(kind)) if outcome != Outcome::Complete => {
            Some(kind.as_str().to_owned())
        }
        (Outcome::HttpError, _) => of_body.or(facts.status.map(|status| status.to_string())),
        (Outcome::UpstreamReset, End::Complete) => Some(UNTERMINATED.to_owned()),
        (Outcome::UpstreamReset, _) => Some(FailureKind::Reset.as_str().to_owned()),
        (Outcome::ErrorEvent, _) => {
            of_body.or(verdict::no_answer(facts, generation).map(str::to_owned))
        }
        _ => of_body,
    }
}

/// Whether a response that was generated in the background reports its usage for the first time.
fn counts_now(context: &CallContext, generation: &Generation) -> bool {
    let id = generation.response_id.as_deref();
    let known = id.filter(|_| generation.usage().output.is_some());
    known.is_some_and(|id| context.shared.background.counts_now(id))
}

/// The token counts. They are unknown if the text was not read completely or was generated for
/// another call.
fn tokens(
    context: &CallContext,
    generation: &Generation,
    verdict: &CallVerdict,
    input: Option<u64>,
) -> Tokens {
    let facts = &verdict.facts;
    if !context.generates && !counts_now(context, generation) {
        return Tokens::default();
    }
    let dialect = DIALECTS.registration(facts.dialect);
    let accepted = facts.status.is_some_and(|status| status < 300);
    let queued = generation.is_queued();
    let known = facts.readable && !facts.lagged && dialect.generates && accepted;
    let of_text = context.operation.class() == OperationClass::Generation;
    let unread = generation.is_unread() && of_text && verdict.outcome == Outcome::Complete;
    let counted = generation.tokens();
    // The output may be pictures, sounds or bare token ids.
    let textless = dialect.beyond_text == BeyondText::WholeAnswers && counted.all() == 0;
    let known = known && context.generates && !unread && !queued && !textless;
    let normalised = Normalised {
        answer: known.then_some(counted.answer),
        reasoning: known.then_some(counted.reasoning),
        tool_call: known.then_some(counted.tool_call),
        output: known.then_some(counted.all()),
        input: input.filter(|_| !queued),
    };
    // An error instead of an answer is not billed, even if a gateway reports usage for it.
    let reported = match verdict.outcome {
        Outcome::HttpError => Usage::default(),
        _ => generation.usage(),
    };
    Tokens {
        source: source(&reported, &normalised),
        normalised,
        reported,
    }
}

/// The source of the output count: the provider, or our own count. If nothing is generated, the
/// source of the input count.
fn source(reported: &Usage, normalised: &Normalised) -> Option<Source> {
    let by_provider = |known: Option<u64>| known.map(|_| Source::Reported);
    let by_us = |known: Option<u64>| known.map(|_| Source::Counted);
    by_provider(reported.output)
        .or(by_us(normalised.output))
        .or(by_provider(reported.input))
        .or(by_us(normalised.input))
}

fn durations(closing: &RecordInput<'_>, generation: &Generation, status: Option<u16>) -> Seconds {
    let timeline = &generation.timeline;
    let first = timeline.all.map(|span| span.first);
    let first_answer = timeline.answer.map(|span| span.first);
    let between = |from: Option<Instant>, to: Option<Instant>| Some(seconds_between(from?, to?));
    let received = Some(closing.received);
    let waited = |seconds: &f64| closing.asked || *seconds > 0.0;
    // On an upgraded connection chunks do not wait for the agent.
    let can_wait = status.is_some_and(|status| status != 101);
    Seconds {
        ttft: between(received, first).filter(waited),
        ttft_upstream: between(closing.sent, first).filter(waited),
        first_answer: between(received, first_answer).filter(waited),
        connect: between(received, closing.connected),
        upload: between(closing.connected, closing.sent),
        last_token: between(received, timeline.all.map(|span| span.last)),
        longest_gap: timeline.longest_gap.map(seconds),
        duration: between(received, Some(closing.ended)),
        agent_blocked: can_wait.then(|| seconds(timeline.agent_blocked())),
        server_tools: timeline.all.map(|span| seconds(span.paused())),
    }
}

fn speeds(
    context: &CallContext,
    closing: &RecordInput<'_>,
    facts: &Facts,
    generation: &Generation,
    unavailable: Option<TpsUnavailable>,
) -> Tps {
    let counted = generation.tokens();
    let timeline = &generation.timeline;
    if !context.generates {
        return Tps::default();
    }
    let is_known = unavailable.is_none();
    let output = timeline.all.filter(|_| is_known);
    let duration = seconds_between(closing.received, closing.ended);
    let total_unavailable = verdict::total_unavailable(facts, generation);
    let known = total_unavailable.is_none() && duration > 0.0;
    let output = output.and_then(|span| span.rate(counted.all()));
    Tps {
        output,
        answer: is_known
            .then(|| verdict::answer_rate(&context.measure, generation))
            .flatten(),
        total: known.then(|| counted.all() as f64 / duration),
        reported: reported_rate(output, generation),
        prefill: prefill_rate(closing, generation),
        unavailable,
        total_unavailable,
    }
}

fn reported_rate(output: Option<f64>, generation: &Generation) -> Option<f64> {
    let reported = hidden::sendable(generation).filter(|tokens| *tokens > 0)? as f64;
    let normalised = generation.tokens().all() as f64;
    Some(output? * reported / normalised).filter(|rate| rate.is_finite())
}

/// Uncached input tokens per second between the last byte of the request and the first token.
fn prefill_rate(closing: &RecordInput<'_>, generation: &Generation) -> Option<f64> {
    let usage = generation.usage();
    let input = usage.input.or(closing.input)?;
    let fresh = input.saturating_sub(usage.cached_input.unwrap_or(0));
    let waited = seconds_between(closing.sent?, generation.timeline.all?.first);
    (fresh > 0 && waited > 0.0 && closing.streamed == Some(true)).then(|| fresh as f64 / waited)
}
