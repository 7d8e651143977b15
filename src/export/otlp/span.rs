//! A finished call as spans: the call as the agent made it (SERVER), and below it the
//! request to the upstream (CLIENT), which is what receivers know as an LLM call. So that
//! nobody counts a token twice, only the second carries `gen_ai.*`.

use super::conventions::{self as names, Name};
use crate::call::{CallRecord, Dialect, Outcome};
use crate::config::Conventions;
use crate::meter::Finding;
use crate::trace::{CallTrace, TraceContext};
use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use std::time::Instant;

/// Turns calls into spans.
#[derive(Clone, Debug)]
pub struct Spans {
    /// Which names are used.
    pub conventions: Conventions,
    /// Whose spans they are.
    pub scope: InstrumentationScope,
}

/// Attributes under way.
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

    /// One of the conventions', where the value is known.
    pub(super) fn convention(&mut self, name: Name, value: Option<impl Into<Value>>) {
        if let (Some(name), Some(value)) = (name.by(self.conventions), value) {
            self.list.push(KeyValue::new(name, value));
        }
    }

    /// One of ours, where the value is known.
    pub(super) fn ours(&mut self, name: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.list.push(KeyValue::new(name, value));
        }
    }
}

impl Spans {
    /// The spans of a call that is traced and sampled. A call that went to no upstream has
    /// only its own.
    pub fn of(&self, finding: &Finding) -> Vec<SpanData> {
        let Some(trace) = finding.trace.filter(|trace| trace.server.sampled()) else {
            return Vec::new();
        };
        let mut spans = vec![self.server(finding, &trace)];
        if finding.record.endpoint.is_some() {
            spans.push(self.client(finding, &trace));
        }
        spans
    }

    fn server(&self, finding: &Finding, trace: &CallTrace) -> SpanData {
        let record = &finding.record;
        let failed = failed(record) && !refused(record);
        let mut attributes = Attributes::new(self.conventions);
        attributes.convention(names::STATUS_CODE, record.status.map(i64::from));
        attributes.convention(names::ERROR_TYPE, error_type(record).filter(|_| failed));
        of_call(&mut attributes, finding);
        SpanData {
            parent_span_id: parent(trace.parent),
            parent_span_is_remote: trace.parent.is_some(),
            status: status(record, failed),
            ..self.span(finding, trace.server, SpanKind::Server, attributes)
        }
    }

    fn client(&self, finding: &Finding, trace: &CallTrace) -> SpanData {
        let record = &finding.record;
        let failed = failed(record);
        let mut attributes = Attributes::new(self.conventions);
        attributes.convention(names::STATUS_CODE, record.status.map(i64::from));
        attributes.convention(names::ERROR_TYPE, error_type(record).filter(|_| failed));
        generation(&mut attributes, finding);
        of_call(&mut attributes, finding);
        phases(&mut attributes, finding);
        SpanData {
            parent_span_id: parent(Some(trace.server)),
            status: status(record, failed),
            events: events(finding),
            ..self.span(finding, trace.upstream(), SpanKind::Client, attributes)
        }
    }

    fn span(
        &self,
        finding: &Finding,
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
                TraceState::NONE,
            ),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind,
            name: name(&finding.record).into(),
            start_time: finding.moments.started_at,
            end_time: finding.moments.wall(finding.ended),
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

/// `{operation} {model}`; the route's where it is no generation.
fn name(record: &CallRecord) -> String {
    let Some(operation) = names::operation(record.operation) else {
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

/// An agent that left is no error of anybody's.
fn failed(record: &CallRecord) -> bool {
    !matches!(record.outcome, Outcome::Complete | Outcome::ClientCancelled)
}

/// An answer of the 4xx is the agent's business: no error of the one who served it.
fn refused(record: &CallRecord) -> bool {
    let its_own = matches!(record.outcome, Outcome::HttpError | Outcome::Rejected);
    its_own
        && record
            .status
            .is_some_and(|status| (400..500).contains(&status))
}

fn error_type(record: &CallRecord) -> Option<String> {
    let word = || record.outcome.as_str().to_owned();
    Some(record.error_type.clone().unwrap_or_else(word))
}

fn status(record: &CallRecord, failed: bool) -> Status {
    match failed {
        true => Status::error(record.outcome.as_str()),
        false => Status::Unset,
    }
}

/// What is known of the call as a whole.
fn of_call(attributes: &mut Attributes, finding: &Finding) {
    let record = &finding.record;
    attributes.ours("tokengauge.call.id", Some(record.id.clone()));
    attributes.ours("tokengauge.route", Some(record.route.clone()));
    attributes.ours("tokengauge.upstream", Some(record.upstream.clone()));
    attributes.ours("tokengauge.outcome", Some(record.outcome.as_str()));
    attributes.ours("tokengauge.workload", record.workload.clone());
    attributes.ours("tokengauge.session.id", record.session.clone());
    attributes.ours("tokengauge.agent", record.agent.clone());
    attributes.ours("tokengauge.parent_agent", record.parent_agent.clone());
    attributes.ours("tokengauge.experiment", record.experiment.clone());
    attributes.ours("tokengauge.variant", record.variant.clone());
    attributes.ours("tokengauge.warm_up", record.warm_up.then_some(true));
    attributes.ours("tokengauge.ttft", record.seconds.ttft);
    attributes.ours("tokengauge.duration", record.seconds.duration);
    attributes.ours("tokengauge.output_tps", record.tps.output);
    let unavailable = record.tps.unavailable.map(|reason| reason.as_str());
    attributes.ours("tokengauge.output_tps.unavailable", unavailable);
    attributes.ours("tokengauge.cost_usd", record.cost_usd);
    let priced = record.cost_source.map(|source| source.as_str());
    attributes.ours("tokengauge.cost_source", priced);
    let overhead = finding.head_overhead.map(|cost| cost.as_secs_f64());
    attributes.ours("tokengauge.overhead", overhead);
}

/// What the conventions tell of a generation.
fn generation(attributes: &mut Attributes, finding: &Finding) {
    let record = &finding.record;
    let address = record.endpoint.as_deref().map(names::address);
    let host = address.map(|(host, _)| host.to_owned());
    attributes.convention(names::SERVER_ADDRESS, host);
    let port = address.and_then(|(_, port)| port).map(i64::from);
    attributes.convention(names::SERVER_PORT, port);
    let operation = names::operation(record.operation);
    if operation.is_none() || record.dialect == Dialect::Unknown {
        return;
    }
    attributes.convention(names::OPERATION, operation);
    attributes.convention(names::PROVIDER, Some(names::provider(record)));
    attributes.convention(names::REQUEST_MODEL, record.model_requested.clone());
    attributes.convention(names::REQUEST_STREAM, record.streamed.filter(|is| *is));
    attributes.convention(names::RESPONSE_MODEL, record.model.clone());
    attributes.convention(names::RESPONSE_ID, finding.response_id.clone());
    let told = record.session.clone().filter(|_| !finding.guessed_session);
    attributes.convention(names::CONVERSATION, told);
    let reasons: Vec<StringValue> = record
        .finish_reasons
        .iter()
        .cloned()
        .map(Into::into)
        .collect();
    let reasons = (!reasons.is_empty()).then_some(Value::Array(Array::String(reasons)));
    attributes.convention(names::FINISH_REASONS, reasons);
    let first = record
        .seconds
        .ttft
        .filter(|_| record.streamed == Some(true));
    attributes.convention(names::TIME_TO_FIRST_CHUNK, first);
    tokens(attributes, record);
}

fn tokens(attributes: &mut Attributes, record: &CallRecord) {
    let (told, ours) = (&record.tokens.reported, &record.tokens.normalised);
    let count = |tokens: Option<u64>| tokens.and_then(|tokens| i64::try_from(tokens).ok());
    attributes.convention(names::INPUT_TOKENS, count(told.input.or(ours.input)));
    attributes.convention(names::OUTPUT_TOKENS, count(told.output.or(ours.output)));
    attributes.convention(names::CACHE_READ_TOKENS, count(told.cached_input));
    attributes.convention(names::CACHE_CREATION_TOKENS, count(told.cache_write));
    attributes.convention(names::REASONING_TOKENS, count(told.reasoning));
    attributes.ours("tokengauge.tokens.normalised", count(ours.output));
}

/// Where the time went, in seconds. Together they are the call's duration.
fn phases(attributes: &mut Attributes, finding: &Finding) {
    let moments = &finding.moments;
    let between = |from: Option<Instant>, to: Option<Instant>| {
        Some(to?.saturating_duration_since(from?).as_secs_f64())
    };
    let received = Some(moments.received);
    let (sent, first, last) = (moments.sent, moments.first_token, moments.last_token);
    attributes.ours(
        "tokengauge.phase.connect",
        between(received, moments.connected),
    );
    attributes.ours("tokengauge.phase.upload", between(moments.connected, sent));
    attributes.ours("tokengauge.phase.wait", between(sent, first));
    attributes.ours("tokengauge.phase.generate", between(first, last));
    let rest = last.or(moments.head);
    attributes.ours(
        "tokengauge.phase.finish",
        between(rest, Some(finding.ended)),
    );
    attributes.ours(
        "tokengauge.stalls",
        i64::try_from(finding.record.stalls).ok(),
    );
    attributes.ours("tokengauge.longest_gap", finding.record.seconds.longest_gap);
}

/// `first_token`, `first_answer`, and a `stall` for each gap that was kept; the others are
/// counted as dropped.
fn events(finding: &Finding) -> SpanEvents {
    let moments = &finding.moments;
    let event = |name: &'static str, at: Instant, attributes: Vec<KeyValue>| {
        Event::new(name, moments.wall(at), attributes, 0)
    };
    let mut events = SpanEvents::default();
    let firsts = [
        ("first_token", moments.first_token),
        ("first_answer", moments.first_answer),
    ];
    for (name, at) in firsts {
        events
            .events
            .extend(at.map(|at| event(name, at, Vec::new())));
    }
    for (at, gap) in &moments.stalls {
        let gap = KeyValue::new("tokengauge.gap", gap.as_secs_f64());
        events.events.push(event("stall", *at, vec![gap]));
    }
    let untold = finding
        .record
        .stalls
        .saturating_sub(moments.stalls.len() as u64);
    events.dropped_count = u32::try_from(untold).unwrap_or(u32::MAX);
    events.events.sort_by_key(|event| event.timestamp);
    events
}
