//! Converts a finished call to spans: the agent's call (SERVER) and its child, the request to the
//! upstream (CLIENT), which receivers show as the LLM call. Only the CLIENT span has `gen_ai.*`
//! attributes, so that receivers count no token twice.

use super::conventions::{self as names, Name};
use crate::export::otlp::Conventions;
use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::borrow::Cow;
use std::str::FromStr;
use std::time::Instant;
use tokengauge_core::call::{CallRecord, Dialect, Outcome};
use tokengauge_core::dimension::DIMENSIONS;
use tokengauge_core::prompt::PromptPart;
use tokengauge_core::time::rfc3339_millis;
use tokengauge_core::trace::{CallTrace, TraceContext};
use tokengauge_meter::FinishedCall;

#[derive(Clone, Debug)]
pub struct Spans {
    pub conventions: Conventions,
    /// Whether CLIENT spans also carry attributes for Langfuse.
    pub langfuse: bool,
    pub scope: InstrumentationScope,
}

pub(super) struct Attributes {
    conventions: Conventions,
    pub(super) list: Vec<KeyValue>,
}

impl Attributes {
    pub(super) fn new(conventions: Conventions) -> Attributes {
        Attributes {
            conventions,
            list: Vec::with_capacity(32),
        }
    }

    pub(super) fn convention(&mut self, name: Name, value: Option<impl Into<Value>>) {
        if let (Some(name), Some(value)) = (name.by(self.conventions), value) {
            self.list.push(KeyValue::new(name, value));
        }
    }

    pub(super) fn ours(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.list.push(KeyValue::new(name, value));
        }
    }
}

impl Spans {
    /// The spans of a call that is traced and sampled. A call without an upstream has only a SERVER
    /// span.
    pub fn of(&self, finished_call: &FinishedCall) -> Vec<SpanData> {
        let Some(trace) = finished_call.trace.filter(|trace| trace.server.sampled()) else {
            return Vec::new();
        };
        let mut spans = vec![self.server(finished_call, &trace)];
        if finished_call.record.endpoint.is_some() {
            spans.push(self.client(finished_call, &trace));
        }
        spans
    }

    fn server(&self, finished_call: &FinishedCall, trace: &CallTrace) -> SpanData {
        let record = &finished_call.record;
        let error = names::error_type(record).filter(|_| !refused(record));
        let failed = error.is_some();
        let mut attributes = Attributes::new(self.conventions);
        http(&mut attributes, record);
        attributes.convention(names::URL_PATH, record.path.clone());
        attributes.convention(names::ROUTE, record.path.clone());
        attributes.convention(names::ERROR_TYPE, error);
        of_call(&mut attributes, finished_call);
        SpanData {
            parent_span_id: parent(trace.parent),
            parent_span_is_remote: trace.parent.is_some(),
            status: status(record, failed),
            ..self.span(finished_call, trace.server, SpanKind::Server, attributes)
        }
    }

    fn client(&self, finished_call: &FinishedCall, trace: &CallTrace) -> SpanData {
        let record = &finished_call.record;
        let error = names::error_type(record);
        let failed = error.is_some();
        let mut attributes = Attributes::new(self.conventions);
        http(&mut attributes, record);
        attributes.convention(names::ERROR_TYPE, error);
        generation(&mut attributes, finished_call);
        of_call(&mut attributes, finished_call);
        phases(&mut attributes, finished_call);
        if self.langfuse {
            of_langfuse(&mut attributes, finished_call);
        }
        SpanData {
            start_time: finished_call.timestamps.wall(forwarded(finished_call)),
            parent_span_id: parent(Some(trace.server)),
            status: status(record, failed),
            events: events(finished_call),
            ..self.span(
                finished_call,
                trace.upstream(),
                SpanKind::Client,
                attributes,
            )
        }
    }

    fn span(
        &self,
        finished_call: &FinishedCall,
        context: TraceContext,
        span_kind: SpanKind,
        attributes: Attributes,
    ) -> SpanData {
        SpanData {
            span_context: SpanContext::new(
                TraceId::from(context.trace_id),
                SpanId::from(context.span_id),
                TraceFlags::new(context.flags),
                false,
                state(finished_call),
            ),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind,
            name: name(&finished_call.record).into(),
            start_time: finished_call.timestamps.started_at,
            end_time: finished_call.timestamps.wall(finished_call.ended),
            attributes: attributes.list,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

fn parent(context: Option<TraceContext>) -> SpanId {
    context.map_or(SpanId::INVALID, |context| SpanId::from(context.span_id))
}

/// `{operation} {model}`, or method and route if the call is not a generation.
fn name(record: &CallRecord) -> String {
    let Some(operation) = names::operation(record) else {
        return format!("call {}", record.route);
    };
    let model = record
        .model_requested
        .as_deref()
        .or(record.model.as_deref());
    model.map_or_else(
        || operation.to_owned(),
        |model| format!("{operation} {model}"),
    )
}

/// The agent's `tracestate`; empty if it is invalid.
fn state(finished_call: &FinishedCall) -> TraceState {
    let state = finished_call.trace_state.as_deref();
    let state = state.and_then(|state| TraceState::from_str(state).ok());
    state.unwrap_or_default()
}

/// When the request was forwarded: the time it was received plus the overhead for the heads, but
/// not after any event of the upstream.
fn forwarded(finished_call: &FinishedCall) -> Instant {
    let timestamps = &finished_call.timestamps;
    let upstream = [timestamps.connected, timestamps.sent, timestamps.head];
    let first = upstream.into_iter().flatten().min();
    let took = finished_call.head_overhead.unwrap_or_default();
    let forwarded = timestamps.received + took;
    forwarded.min(first.unwrap_or(finished_call.ended))
}

/// A 4xx response is an error of the agent, so the SERVER span is not marked as failed.
fn refused(record: &CallRecord) -> bool {
    let its_own = matches!(record.outcome, Outcome::HttpError | Outcome::Rejected);
    its_own
        && record
            .status
            .is_some_and(|status| (400..500).contains(&status))
}

fn status(record: &CallRecord, failed: bool) -> Status {
    if failed {
        Status::error(record.outcome.as_str())
    } else {
        Status::Unset
    }
}

fn http(attributes: &mut Attributes, record: &CallRecord) {
    let method = record.method.as_deref().map(names::method);
    attributes.convention(names::METHOD, method.map(str::to_owned));
    attributes.convention(names::STATUS_CODE, record.status.map(i64::from));
}

fn of_call(attributes: &mut Attributes, finished_call: &FinishedCall) {
    let record = &finished_call.record;
    attributes.ours("tokengauge.call.id", Some(record.id.clone()));
    for row in DIMENSIONS {
        if let Some(name) = row.attribute {
            attributes.ours(name, (row.value)(record).map(Cow::into_owned));
        }
    }
    // The error type of the body, if any, in addition to the conventions' `error.type`.
    attributes.ours("tokengauge.error_type", record.error_type.clone());
    attributes.convention(names::USER, record.user.clone());
    attributes.ours("tokengauge.session.id", record.session.clone());
    attributes.ours("tokengauge.parent_agent", record.parent_agent.clone());
    attributes.ours("tokengauge.warm_up", record.warm_up.then_some(true));
    attributes.ours("tokengauge.ttft", record.seconds.ttft);
    attributes.ours("tokengauge.duration", record.seconds.duration);
    attributes.ours("tokengauge.output_tps", record.tps.output);
    let unavailable = record.tps.unavailable.map(|reason| reason.as_str());
    attributes.ours("tokengauge.output_tps.unavailable", unavailable);
    attributes.ours("tokengauge.cost_usd", record.cost_usd);
    let priced = record.cost_source.map(|source| source.as_str());
    attributes.ours("tokengauge.cost_source", priced);
    attributes.ours("tokengauge.retry_of", record.retry_of.clone());
    let wait = record.wait.as_deref();
    attributes.ours("tokengauge.wait.kind", wait.map(|wait| wait.kind.as_str()));
    attributes.ours("tokengauge.wait.seconds", wait.map(|wait| wait.seconds));
    let overhead = finished_call.head_overhead.map(|cost| cost.as_secs_f64());
    attributes.ours("tokengauge.overhead", overhead);
}

fn generation(attributes: &mut Attributes, finished_call: &FinishedCall) {
    let record = &finished_call.record;
    let address = record.endpoint.as_deref().map(names::address);
    let host = address.map(|(host, _)| host.to_owned());
    attributes.convention(names::SERVER_ADDRESS, host);
    let port = address.and_then(|(_, port)| port).map(i64::from);
    attributes.convention(names::SERVER_PORT, port);
    let operation = names::operation(record);
    if operation.is_none() || record.dialect == Dialect::Unknown {
        return;
    }
    attributes.convention(names::OPERATION, operation);
    attributes.convention(names::PROVIDER, Some(names::provider(record)));
    attributes.convention(names::REQUEST_MODEL, record.model_requested.clone());
    attributes.convention(names::REQUEST_STREAM, record.streamed.filter(|is| *is));
    attributes.convention(names::RESPONSE_MODEL, record.model.clone());
    attributes.convention(names::RESPONSE_ID, finished_call.response_id.clone());
    let conversation = record
        .session
        .clone()
        .filter(|_| !finished_call.guessed_session);
    attributes.convention(names::CONVERSATION, conversation);
    asked(attributes, finished_call);
    let reasons = texts(&record.finish_reasons);
    attributes.convention(names::FINISH_REASONS, reasons);
    let first = record
        .seconds
        .ttft
        .filter(|_| record.streamed == Some(true));
    attributes.convention(names::TIME_TO_FIRST_CHUNK, first);
    tokens(attributes, record);
}

fn tokens(attributes: &mut Attributes, record: &CallRecord) {
    let (reported, ours) = (&record.tokens.reported, &record.tokens.normalised);
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
    attributes.convention(names::INPUT_TOKENS, count(reported.input.or(ours.input)));
    attributes.convention(names::OUTPUT_TOKENS, count(reported.output.or(ours.output)));
    attributes.convention(names::CACHE_READ_TOKENS, count(reported.cached_input));
    attributes.convention(names::CACHE_CREATION_TOKENS, count(reported.cache_write));
    attributes.convention(names::REASONING_TOKENS, count(reported.reasoning));
    attributes.ours("tokengauge.tokens.normalised", count(ours.output));
    if let Some(prompt) = &record.prompt {
        for part in PromptPart::ALL {
            attributes.ours(part.attribute(), count(Some(prompt.get(*part))));
        }
    }
}

fn asked(attributes: &mut Attributes, finished_call: &FinishedCall) {
    if names::provider(&finished_call.record) == "openai" {
        let api = names::openai_api(finished_call.record.dialect);
        attributes.convention(names::OPENAI_API_TYPE, api);
    }
    let Some(asked) = finished_call.request_parameters.as_deref() else {
        return;
    };
    let settings = &asked.settings;
    let choices = asked.choices.filter(|choices| *choices != 1);
    attributes.convention(names::REQUEST_CHOICES, choices.map(i64::from));
    attributes.convention(names::REQUEST_SEED, settings.seed);
    attributes.convention(names::REQUEST_TEMPERATURE, settings.temperature);
    attributes.convention(names::REQUEST_TOP_P, settings.top_p);
    attributes.convention(names::REQUEST_TOP_K, settings.top_k);
    attributes.convention(names::REQUEST_MAX_TOKENS, settings.max_tokens);
    attributes.convention(names::REQUEST_FREQUENCY_PENALTY, settings.frequency_penalty);
    attributes.convention(names::REQUEST_PRESENCE_PENALTY, settings.presence_penalty);
    attributes.convention(
        names::REQUEST_STOP_SEQUENCES,
        texts(&settings.stop_sequences),
    );
    attributes.convention(
        names::OUTPUT_TYPE,
        settings.output_type.map(|kind| kind.as_str()),
    );
    let formats: Vec<_> = settings.encoding_format.iter().cloned().collect();
    attributes.convention(names::REQUEST_ENCODING_FORMATS, texts(&formats));
    attributes.convention(names::DIMENSIONS, settings.dimensions);
    let tier = asked.service_tier.clone();
    let tier =
        tier.filter(|tier| tier != "auto" && names::provider(&finished_call.record) == "openai");
    attributes.convention(names::OPENAI_REQUEST_TIER, tier);
}

fn texts(all: &[String]) -> Option<Value> {
    let all: Vec<StringValue> = all.iter().cloned().map(Into::into).collect();
    (!all.is_empty()).then_some(Value::Array(Array::String(all)))
}

fn of_langfuse(attributes: &mut Attributes, finished_call: &FinishedCall) {
    attributes.ours("gen_ai.usage.cost", finished_call.record.cost_usd);
    let first = finished_call.timestamps.first_token;
    let first = first.map(|first| finished_call.timestamps.wall(first));
    let first = first.map(|first| rfc3339_millis(first).to_string());
    attributes.ours("langfuse.observation.completion_start_time", first);
}

/// Adds the duration of each phase in seconds; their sum is the duration of the call. A call that
/// ended early has the remaining time in the phase in which it ended.
fn phases(attributes: &mut Attributes, finished_call: &FinishedCall) {
    let timestamps = &finished_call.timestamps;
    let answered = timestamps.first_token.or(timestamps.head);
    let phases = [
        ("tokengauge.phase.connect", timestamps.connected),
        ("tokengauge.phase.upload", timestamps.sent),
        ("tokengauge.phase.wait", answered),
        ("tokengauge.phase.generate", timestamps.last_token),
    ];
    let mut at = timestamps.received;
    let mut unfinished = None;
    for (name, end) in phases {
        let Some(end) = end else {
            let began = name != "tokengauge.phase.generate";
            unfinished = unfinished.or(began.then_some(name));
            continue;
        };
        attributes.ours(name, Some(tokengauge_core::call::seconds_between(at, end)));
        at = at.max(end);
        unfinished = None;
    }
    let rest = tokengauge_core::call::seconds_between(at, finished_call.ended);
    let name = unfinished.unwrap_or("tokengauge.phase.finish");
    attributes.ours(name, Some(rest));
    attributes.ours(
        "tokengauge.stalls",
        i64::try_from(finished_call.record.stalls).ok(),
    );
    attributes.ours(
        "tokengauge.longest_gap",
        finished_call.record.seconds.longest_gap,
    );
}

/// The events `first_token`, `first_answer`, and a `stall` for each gap that was kept. Other gaps
/// are counted as dropped.
fn events(finished_call: &FinishedCall) -> SpanEvents {
    let timestamps = &finished_call.timestamps;
    let event = |name: &'static str, at: Instant, attributes: Vec<KeyValue>| {
        Event::new(name, timestamps.wall(at), attributes, 0)
    };
    let mut events = SpanEvents::default();
    let firsts = [
        ("first_token", timestamps.first_token),
        ("first_answer", timestamps.first_answer),
    ];
    for (name, at) in firsts {
        events
            .events
            .extend(at.map(|at| event(name, at, Vec::new())));
    }
    for (at, gap) in &timestamps.stalls {
        let gap = KeyValue::new("tokengauge.gap", gap.as_secs_f64());
        events.events.push(event("stall", *at, vec![gap]));
    }
    let untold = finished_call
        .record
        .stalls
        .saturating_sub(timestamps.stalls.len() as u64);
    events.dropped_count = u32::try_from(untold).unwrap_or(u32::MAX);
    events.events.sort_by_key(|event| event.timestamp);
    events
}
