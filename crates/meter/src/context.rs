//! Everything that is known about a call from its request head on.

use super::nesting::ProxyHop;
use super::operation;
use super::request::Request;
use super::route_stats::RouteStats;
use super::shared::Shared;
use super::worker::Executor;
use crate::settings::Measure;
use http::{HeaderMap, Method, header};
use parking_lot::{Mutex, MutexGuard};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::attribution::{Attribution, HeaderAttribution, WorkloadAssignment};
use tokengauge_accounting::{Accounting, AdmissionRequest, LimitedCall};
use tokengauge_core::call::{Dialect, Operation, OperationClass, RequestFacts};
use tokengauge_core::experiment::AssignedVariant;
use tokengauge_core::observer::{Admission, CallStart, RequestBody, UnmeasuredChunks};
use tokengauge_core::payer::Payer;
use tokengauge_core::time::duration_since_1970;
use tokengauge_core::trace::{self, CallTrace, PropagatedTrace, TraceContext};
use tokengauge_wire as wire;
use uuid::{NoContext, Timestamp, Uuid};

pub(crate) struct CallContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) measure: Arc<Measure>,
    pub(crate) accounting: Arc<Accounting>,
    pub(crate) route_stats: Arc<RouteStats>,
    pub(super) assignment: WorkloadAssignment,
    pub(crate) id: Uuid,
    pub(crate) received: Instant,
    pub(crate) unmeasured_chunks: Arc<UnmeasuredChunks>,
    pub(crate) started_at: SystemTime,
    pub(crate) dialect: Dialect,
    pub(crate) operation: Operation,
    pub(crate) method: Method,
    pub(crate) path: Box<str>,
    pub(crate) generates: bool,
    /// Whether the path is unknown, so that only the response shows if this is a generation.
    pub(crate) sniffs: bool,
    pub(super) path_model: Option<Box<str>>,
    /// Whether the path asks for a stream; `None` if the path does not say.
    pub(super) path_stream: Option<bool>,
    /// Whether the response has no body, even if its head announces one.
    pub(super) bodiless: bool,
    pub(crate) attribution: Option<Box<HeaderAttribution>>,
    pub(crate) payer: Arc<Payer>,
    pub(crate) key_hash: Option<Box<str>>,
    variant: Option<Box<AssignedVariant>>,
    /// A hash that identifies the agent; `None` unless sessions are guessed by conversation.
    conversation: Option<u64>,
    /// The budgets and quotas from which this call reserves; `None` if no limit applies.
    pub(super) limited: Option<Box<LimitedCall>>,
    pub(super) is_socket: bool,
    /// The session of a connection with several responses, used if the agent names none.
    pub(super) session: OnceLock<Box<str>>,
    pub(crate) trace: Option<Box<CallTrace>>,
    /// The position of this proxy in a chain of proxies; `None` if the trace does not show it.
    pub(crate) hop: Option<ProxyHop>,
    pub(crate) trace_state: Option<Box<str>>,
    /// The worker holds this lock while it reads, so other threads must use `try_lock`.
    pub(crate) request: Mutex<Request>,
}

impl CallContext {
    pub(crate) fn new(shared: &Arc<Shared>, start: &CallStart<'_>) -> CallContext {
        let is_socket = operation::is_socket(start.headers);
        let detected = if is_socket {
            wire::detect_socket(start.method, start.uri)
        } else {
            wire::detect(start.method, start.uri)
        };
        let dialect = start.dialect.unwrap_or(detected.dialect);
        let measure = shared.measure.load_full();
        let accounting = shared.accounting.load_full();
        let rules = &measure.attribution;
        let attribution = HeaderAttribution::of(start.headers, start.uri, start.port, rules);
        let payer = rules.payers.payer(start);
        let key_hash = rules.payers.key_hash(start);
        let assignment = WorkloadAssignment::new(&measure.workloads, start, attribution.as_deref());
        let limited = LimitedCall::new(&accounting, start);
        let generates = operation::generates(start.method, detected.operation, is_socket);
        let is_unknown = dialect == Dialect::Unknown && !is_socket;
        let sniffs = generates && is_unknown && !operation::is_of_stored(start.uri);
        let encoding = wire::content_encoding(start.headers);
        let request = if sniffs && operation::is_json(start.headers) != Some(false) {
            let limit = copied(start.headers, measure.sniffed_bytes());
            Request::waiting(&shared.memory, limit)
        } else {
            let limit = copied(start.headers, measure.body_bytes);
            Request::new(dialect, &shared.memory, limit)
        };
        let request = request.encoded(encoding, &shared.memory, measure.body_bytes);
        let tracer = shared.tracer.as_ref();
        let propagated = tracer.and_then(|_| PropagatedTrace::of_headers(start.headers));
        let parent = TraceContext::of_headers(start.headers)
            .or_else(|| propagated.map(|propagated| propagated.request));
        let trace = tracer.map(|tracer| Box::new(tracer(parent)));
        let sampled = trace.as_ref().filter(|trace| trace.server.sampled());
        let request = request.traced(sampled.is_some());
        let propagating = trace.as_ref().filter(|trace| trace.propagates);
        let class = detected.operation.class();
        let answers = generates && (class == OperationClass::Generation || start.dialect.is_some());
        let hop = propagating.map(|trace| shared.spans.enter(trace, propagated, answers));
        let continued = sampled.filter(|trace| trace.continues());
        let from_headers = attribution.as_deref();
        let converses = generates && class != OperationClass::Embedding;
        let conversation =
            (converses && rules.guess_sessions).then(|| agent_hash(start, from_headers));
        CallContext {
            conversation,
            shared: Arc::clone(shared),
            measure,
            accounting,
            trace_state: continued.and_then(|_| trace::state(start.headers)),
            trace,
            hop,
            route_stats: shared.route_stats.of(start.route, start.upstream),
            assignment,
            id: id(start.started_at),
            received: start.received,
            unmeasured_chunks: Arc::new(UnmeasuredChunks::new(start.received)),
            started_at: start.started_at,
            dialect,
            operation: detected.operation,
            method: start.method.clone(),
            path: operation::template(start.uri),
            generates,
            sniffs,
            path_model: detected.model.map(String::into_boxed_str),
            path_stream: detected.stream,
            limited,
            bodiless: start.method == Method::HEAD,
            attribution,
            payer,
            key_hash,
            variant: start.variant.map(|variant| Box::new(variant.clone())),
            is_socket,
            session: OnceLock::new(),
            request: Mutex::new(request),
        }
    }

    pub(super) fn admit(&self, body: RequestBody<'_>) -> Admission {
        let Some(limited) = &self.limited else {
            return Admission::Granted;
        };
        let request = AdmissionRequest {
            accounting: &self.accounting,
            rules: &self.measure.attribution,
            attribution: self.attribution.as_deref(),
            payer: &self.payer,
            workloads: &self.measure.workloads,
            assignment: &self.assignment,
            route: &self.route_stats.route,
            upstream: &self.route_stats.upstream,
            dialect: self.dialect,
            path_model: self.path_model.as_deref(),
            started_at: self.started_at,
            body_bytes: self.measure.body_bytes,
            memory: &self.shared.admission_memory,
        };
        limited.admit(&request, body)
    }

    pub(crate) fn who(&self) -> Attribution {
        let request = self.request.try_lock();
        let facts = request
            .as_ref()
            .and_then(|request| request.facts.as_deref());
        self.attributed(facts)
    }

    pub(super) fn attributed(&self, facts: Option<&RequestFacts>) -> Attribution {
        let rules = &self.measure.attribution;
        let mut who = Attribution::merged(self.attribution.as_deref(), facts, rules);
        let has_hint = facts.is_some_and(|facts| facts.session_hint.is_some());
        if let Some(session) = self.session.get()
            && (who.session.is_none() || who.session_guess.is_some() && !has_hint)
        {
            who.session = Some(session.to_string());
            who.session_guess = None;
        }
        if let Some(chosen) = &self.variant {
            who.experiment = Some(chosen.experiment.to_string());
            who.variant = chosen.variant.as_deref().map(str::to_owned);
        }
        who
    }

    pub(crate) fn model_requested(&self) -> Option<String> {
        let of_body = || {
            let request = self.request.try_lock()?;
            request.facts.as_ref()?.model.clone()
        };
        self.path_model
            .as_deref()
            .map(str::to_owned)
            .or_else(of_body)
    }

    /// Whether a stream was requested, and whether several choices were, as far as it is known.
    pub(crate) fn asked(&self) -> (Option<bool>, bool) {
        let request = self.request.try_lock();
        let facts = request
            .as_ref()
            .and_then(|request| request.facts.as_deref());
        let stream = facts.and_then(|facts| facts.stream);
        let choices = facts.and_then(|facts| facts.choices);
        let several = choices.is_some_and(|choices| choices > 1);
        (self.path_stream.or(stream), several)
    }

    pub(crate) fn workload(&self) -> Option<&Arc<str>> {
        self.assignment
            .name(&self.measure.workloads, || self.model_requested())
    }

    /// A gap between chunks with tokens that is longer than this is a stall.
    pub(crate) fn stall_threshold(&self) -> Duration {
        let own = self
            .assignment
            .stall_threshold(&self.measure.workloads, || self.model_requested());
        own.unwrap_or(self.measure.stall_threshold)
    }

    pub(super) fn request(&self) -> MutexGuard<'_, Request> {
        self.request.lock()
    }

    pub(super) fn read_facts(&self, request: &mut Request) -> bool {
        let decodes = request.read(&self.measure.attribution);
        if let Some(seed) = self.conversation {
            let facts = request.facts.as_deref();
            if self.attributed(facts).session.is_none() {
                let session = || format!("prefix-{}", self.id);
                request.guess_session(&self.shared.conversations, seed, session);
            }
        }
        decodes
    }

    /// Handles the start of a response to an unknown path. Only the request of a stream may be
    /// needed later.
    pub(super) fn answered(self: &Arc<Self>, is_stream: bool) {
        let Some(mut request) = self.request.try_lock() else {
            return;
        };
        if !is_stream {
            return request.forget();
        }
        // The dialect is known only after some events. Until then the model decides the tokenizer.
        request.is_of(Dialect::Unknown);
        let is_whole = request.is_unread();
        drop(request);
        if is_whole {
            self.request_complete();
        }
    }

    pub(super) fn request_complete(self: &Arc<Self>) {
        let Some(mut request) = self.request.try_lock() else {
            return;
        };
        request.complete();
        if !request.is_unread() {
            return;
        }
        if !request.is_long() {
            self.read_facts(&mut request);
            return;
        }
        drop(request);
        let context = Arc::clone(self);
        let read = move |executor| {
            let read = executor == Executor::Background;
            if read && !context.read_facts(&mut context.request()) {
                context.shared.counters.body_skipped();
            }
        };
        if let Err(refused) = self.shared.worker.queue_urgent(Box::new(read)) {
            refused(Executor::Traffic);
            self.shared.counters.body_skipped();
            self.request().release();
        }
    }
}

/// A hash of the agent's address, its route and the attribution in its headers.
fn agent_hash(start: &CallStart<'_>, from_headers: Option<&HeaderAttribution>) -> u64 {
    let mut hasher = DefaultHasher::new();
    start.peer.hash(&mut hasher);
    start.route.hash(&mut hasher);
    from_headers
        .and_then(HeaderAttribution::agent)
        .hash(&mut hasher);
    hasher.finish()
}

/// How many bytes of a body to keep at most. It is 0 if `content-length` exceeds `limit`.
pub(super) fn copied(headers: &HeaderMap, limit: usize) -> usize {
    let length = headers.get(header::CONTENT_LENGTH);
    let length: Option<u64> = length.and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length| length > limit as u64) {
        0
    } else {
        limit
    }
}

/// A new UUID that sorts by `started_at`.
pub(crate) fn id(started_at: SystemTime) -> Uuid {
    let since = duration_since_1970(started_at);
    Uuid::new_v7(Timestamp::from_unix(
        NoContext,
        since.as_secs(),
        since.subsec_nanos(),
    ))
}
