//! Connections with several responses: Realtime, responses over WebSocket and Gemini Live. Each
//! response makes one record.
//!
//! A turn begins with the agent's message that asks for it. If the server starts a turn itself, the
//! turn begins with the server's first message. A connection that generated nothing makes one
//! record.

use super::call_state::CallState;
use super::clip::clip;
use super::context::{CallContext, id};
use super::live::Registry;
use super::live_generation::LiveGeneration;
use super::record::{self, RecordInput};
use super::request::Request;
use http::{HeaderMap, header};
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_accounting::attribution::request_facts;
use tokengauge_core::call::{Bytes, Dialect, Event, OperationClass, Outcome, RequestFacts};
use tokengauge_core::observer::{Chunk, End, Side};
use tokengauge_core::trace::CallTrace;
use tokengauge_wire::{DIALECTS, Decoder, Framing, Limits, SocketRequest, SocketRequests};
use uuid::Uuid;

const MAX_PENDING: usize = 16;

/// How long to wait for the response to a request that the server may ignore. A later turn does not
/// belong to that request.
const UNCERTAIN_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_SESSION: usize = 200;

pub(crate) struct RealtimeTurns {
    dialect: Dialect,
    registry: Arc<Registry>,
    /// `None` after the upstream's messages became unreadable.
    decoder: Option<Box<Decoder>>,
    /// The reader of requests; `None` while it reads, and after reading failed.
    requests: Option<Box<SocketRequests>>,
    pending: VecDeque<PendingResponse>,
    turn: Option<Turn>,
    /// The number of concurrent responses. A turn ends with the last of them.
    depth: u32,
    recorded: u64,
    closed_by: Option<Side>,
}

struct PendingResponse {
    at: Instant,
    request: Option<Box<Request>>,
    /// Whether the server will certainly respond, if only with an error.
    is_certain: bool,
    /// Whether the request only prepares a later one, so that nothing is generated for it.
    prepares: bool,
}

impl PendingResponse {
    fn new(at: Instant, is_certain: bool) -> PendingResponse {
        PendingResponse {
            at,
            request: None,
            is_certain,
            prepares: false,
        }
    }
}

#[derive(Clone, Copy)]
struct Turn {
    id: Uuid,
    started_at: SystemTime,
    received: Instant,
    /// When the model finished, if the turn ended later.
    generated: Option<Instant>,
    prepares: bool,
    /// Whether the agent asked for this turn. Otherwise the server began it.
    is_asked: bool,
}

impl RealtimeTurns {
    /// Creates the turns of an upgraded connection; `None` if the dialect has no turns.
    pub(crate) fn new(
        context: &CallContext,
        registry: &Arc<Registry>,
        headers: &HeaderMap,
    ) -> Option<RealtimeTurns> {
        let extensions = headers.get(header::SEC_WEBSOCKET_EXTENSIONS);
        let extensions = extensions.and_then(|extensions| extensions.to_str().ok());
        let dialect = context.dialect;
        let socket = DIALECTS.registration(dialect).socket;
        socket.is_some().then(|| {
            let (memory, limits) = (&context.shared.memory, Limits::default());
            let framing = Framing::WebSocket;
            let decoder =
                Decoder::with_framing_within(memory, dialect, framing, extensions, limits);
            let requests = SocketRequests::within(memory, dialect, extensions, limits);
            RealtimeTurns {
                dialect,
                registry: Arc::clone(registry),
                decoder: Some(Box::new(decoder)),
                requests: Some(Box::new(requests)),
                pending: VecDeque::new(),
                turn: None,
                depth: 0,
                recorded: 0,
                closed_by: None,
            }
        })
    }

    pub(crate) fn over(&mut self, from: Side) {
        self.closed_by.get_or_insert(from);
    }

    pub(crate) fn chunk(
        &mut self,
        context: &Arc<CallContext>,
        state: &mut CallState,
        from: Side,
        chunk: &Chunk,
    ) {
        match from {
            Side::Agent => {
                state.bytes.request += chunk.bytes.len() as u64;
                let Some(mut requests) = self.requests.take() else {
                    return;
                };
                let mut each = |request: SocketRequest<'_>| self.ask(context, chunk.at, request);
                let read = requests.push(&chunk.bytes, &mut each);
                if read.is_err() {
                    context.shared.counters.body_skipped();
                }
                self.requests = read.is_ok().then_some(requests);
                self.next(context, state);
            }
            Side::Upstream => self.answer(context, state, chunk),
        }
    }

    fn ask(&mut self, context: &Arc<CallContext>, at: Instant, request: SocketRequest<'_>) {
        let asked = match request {
            SocketRequest::Setup(setup) => {
                if let Some(request) = self.request(context, setup) {
                    *context.request() = request;
                }
                return;
            }
            SocketRequest::Response(message) if self.dialect == Dialect::OpenaiResponses => {
                PendingResponse {
                    request: self.request(context, message).map(Box::new),
                    prepares: prepares(message),
                    ..PendingResponse::new(at, true)
                }
            }
            // A Realtime server refuses a response with an error that may also have another cause.
            SocketRequest::Response(_) => {
                PendingResponse::new(at, self.dialect == Dialect::GeminiLive)
            }
            SocketRequest::PossibleResponse => PendingResponse::new(at, false),
            SocketRequest::Oversized => {
                context.shared.counters.body_skipped();
                PendingResponse::new(at, self.dialect != Dialect::OpenaiRealtime)
            }
        };
        if self.dialect == Dialect::GeminiLive {
            // New input replaces earlier requests.
            self.pending.clear();
        }
        if self.pending.len() < MAX_PENDING {
            self.pending.push_back(asked);
        }
    }

    fn request(&self, context: &CallContext, message: &[u8]) -> Option<Request> {
        let rules = &context.measure.attribution;
        let facts = request_facts(self.dialect, rules, message)?;
        // Vertex names a model by its full resource name.
        let short = |name: String| match name.rsplit_once('/') {
            Some((_, short)) if self.dialect == Dialect::GeminiLive => short.to_owned(),
            _ => name,
        };
        let facts = RequestFacts {
            model: facts.model.map(short),
            stream: Some(true),
            ..facts
        };
        Some(context.request().of_message(facts, message))
    }

    fn answer(&mut self, context: &Arc<CallContext>, state: &mut CallState, chunk: &Chunk) {
        state.bytes.response += chunk.bytes.len() as u64;
        let Some(mut decoder) = self.decoder.take() else {
            return;
        };
        let sink = &mut |event: Event<'_>| self.event(context, state, chunk.at, event);
        let read = decoder.push(&chunk.bytes, sink);
        state.run.chunk(context, chunk.at, true);
        match read {
            Ok(()) => self.decoder = Some(decoder),
            Err(error) => state.unreadable(context, error),
        }
    }

    pub(crate) fn give_up(&mut self) {
        self.decoder = None;
    }

    fn event(
        &mut self,
        context: &Arc<CallContext>,
        state: &mut CallState,
        at: Instant,
        event: Event<'_>,
    ) {
        match event {
            Event::Session(session) => {
                if !session.chars().any(char::is_control) {
                    let _ = context.session.set(clip(session, MAX_SESSION).into());
                }
            }
            Event::TurnStarted => {
                self.depth += 1;
                self.begin(context, state, at);
            }
            Event::TurnEnded => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 && self.turn.is_some() {
                    state.run.generation.end_turn();
                    state.run.chunk(context, at, true);
                    self.record(context, state, at, &End::Complete);
                    self.next(context, state);
                }
            }
            Event::Delta { .. } => {
                self.begin(context, state, at);
                state.run.generation.event(event);
            }
            Event::End => {
                if let Some(turn) = &mut self.turn {
                    turn.generated = Some(at);
                }
                state.run.generation.event(event);
            }
            Event::Error(_) if self.turn.is_none() => {
                // The error may have another cause. A TTFT that starts too late is less wrong than
                // a TTFT from a request that was refused.
                if self.pending.front().is_some_and(|asked| !asked.is_certain) {
                    self.pending.pop_front();
                }
                state.run.generation.event(event);
            }
            event => state.run.generation.event(event),
        }
    }

    /// Begins the next requested turn, if no turn is in flight and the server will certainly
    /// respond. Otherwise the server begins the turn.
    fn next(&mut self, context: &Arc<CallContext>, state: &mut CallState) {
        let read = self.decoder.is_some() || self.recorded == 0;
        let begins = |asked: &&PendingResponse| asked.is_certain && self.turn.is_none() && read;
        if let Some(asked) = self.pending.front().filter(begins) {
            let at = asked.at;
            self.begin(context, state, at);
        }
    }

    fn begin(&mut self, context: &Arc<CallContext>, state: &mut CallState, at: Instant) {
        if self.turn.is_some() {
            return;
        }
        if self.dialect == Dialect::GeminiLive {
            let stale = |asked: &PendingResponse| {
                !asked.is_certain && at.saturating_duration_since(asked.at) > UNCERTAIN_TIMEOUT
            };
            self.pending.retain(|asked| !stale(asked));
        }
        let asked = self.pending.pop_front();
        let received = asked.as_ref().map_or(at, |asked| asked.at);
        let prepares = asked.as_ref().is_some_and(|asked| asked.prepares);
        let is_asked = asked.is_some();
        if let Some(request) = asked.and_then(|asked| asked.request) {
            *context.request() = *request;
        }
        // If the agent names no session, the connection is the session.
        let _ = context
            .session
            .get_or_init(|| context.id.to_string().into());
        let since = received.saturating_duration_since(context.received);
        let started_at = context.started_at + since;
        let turn = Turn {
            id: id(started_at),
            started_at,
            received,
            generated: None,
            prepares,
            is_asked,
        };
        let live = self.registry.begin(turn.id, context, received);
        live.streamed(true);
        live.warm_up(state.warm_up);
        state.run.live = Some(live);
        state.run.sent(received);
        // An error between two turns belongs to neither of them.
        state.run.generation.error = None;
        self.turn = Some(turn);
    }

    fn record(&mut self, context: &CallContext, state: &mut CallState, at: Instant, end: &End) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        if let Some(live) = &state.run.live {
            live.mark_ended();
        }
        self.depth = 0;
        self.recorded += 1;
        state.run.finish(context, at, true);
        let closing = RecordInput {
            id: turn.id,
            started_at: turn.started_at,
            received: turn.received,
            connected: None,
            sent: Some(turn.received),
            asked: turn.is_asked,
            ended: turn.generated.unwrap_or(at),
            end,
            streamed: Some(true),
            dialect: self.dialect,
            input: None,
            trace: self.trace(context),
            class: turn.prepares.then_some(OperationClass::Other),
        };
        let finished_call = record::finished_call(context, state, closing);
        state.run.conclude(context, &finished_call, true);
        state.run = LiveGeneration::continuing(state.run.generation.next());
        state.bytes = Bytes::default();
        context.shared.subscribers.finished(finished_call);
    }

    /// The spans of the recorded turn. The first turn has the spans that were propagated to the
    /// upstream. Later turns are children in the same trace.
    fn trace(&self, context: &CallContext) -> Option<CallTrace> {
        let first = context.trace.as_deref().copied()?;
        if self.recorded <= 1 {
            return Some(first);
        }
        let tracer = context.shared.tracer.as_ref();
        tracer.map(|tracer| tracer(Some(first.server)))
    }

    pub(crate) fn end(
        &mut self,
        context: &CallContext,
        state: &mut CallState,
        at: Instant,
        end: &End,
    ) {
        if self.turn.is_some() {
            // If the agent closed before the upstream, the turn was cancelled and not reset.
            let end = match (self.closed_by, end) {
                (Some(Side::Agent), End::Complete | End::UpstreamReset) => &End::ClientCancelled,
                _ => end,
            };
            self.record(context, state, at, end);
        } else if self.recorded == 0 {
            state.run.generation.terminated |= *end == End::Complete;
            let mut closing = RecordInput::of_call(context, state, at, end, None);
            closing.streamed = Some(true);
            closing.dialect = self.dialect;
            let mut finished_call = record::finished_call(context, state, closing);
            if finished_call.record.outcome == Outcome::Complete {
                // The agent asked for nothing.
                finished_call.record.operation_class = OperationClass::Other;
            }
            context.shared.subscribers.finished(finished_call);
        }
    }
}

/// Whether a `response.create` asks for no generation.
fn prepares(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Create {
        generate: Option<bool>,
    }
    let create: Option<Create> = serde_json::from_slice(message).ok();
    create.and_then(|create| create.generate) == Some(false)
}
