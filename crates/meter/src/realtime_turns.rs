//! A connection with several answers (Realtime, responses over WebSocket, Gemini Live): one
//! record for each. A turn begins with the message of the agent that asks for it, or, where
//! the server starts one itself, with what it says first. A connection on which nothing was
//! generated makes one record of its own.

use super::call_state::CallState;
use super::context::{CallContext, id};
use super::generation::clip;
use super::live_generation::LiveGeneration;
use super::record::{self, RecordInput};
use super::request;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::call::{Bytes, Dialect, Event, OperationClass, Outcome, RequestFacts};
use tokengauge_core::observer::{End, Frame, Side};
use tokengauge_core::trace::CallTrace;
use tokengauge_wire::{
    DIALECTS, DecodeError, Decoder, Framing, Limits, SocketRequest, SocketRequests,
};
use uuid::Uuid;

/// Requests for an answer that wait for one.
const MAX_PENDING: usize = 16;

/// How long a request may wait that the server need not answer: a later turn is not its answer.
const UNCERTAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Characters kept of the server's id of a session.
const MAX_SESSION: usize = 200;

/// The turns of one connection.
pub(crate) struct RealtimeTurns {
    dialect: Dialect,
    /// `None` once the upstream's side cannot be read any more.
    decoder: Option<Box<Decoder>>,
    /// `None` while it reads.
    requests: Option<Box<SocketRequests>>,
    /// What the agent asked for and has not begun.
    pending: VecDeque<PendingAnswer>,
    turn: Option<Turn>,
    /// Answers that run at once: their turn is over with the last of them.
    depth: u32,
    /// Turns that were recorded.
    recorded: u64,
    /// Who said first that nothing more comes.
    closed_by: Option<Side>,
}

/// A request for an answer.
struct PendingAnswer {
    at: Instant,
    request: Option<Box<request::Request>>,
    /// Whether an answer comes to it, if only an error.
    is_certain: bool,
    /// Whether it only prepares a later request: nothing is generated for it.
    prepares: bool,
}

impl PendingAnswer {
    fn new(at: Instant, is_certain: bool) -> PendingAnswer {
        PendingAnswer {
            at,
            request: None,
            is_certain,
            prepares: false,
        }
    }
}

/// A turn under way.
#[derive(Clone, Copy)]
struct Turn {
    id: Uuid,
    started_at: SystemTime,
    received: Instant,
    /// When the model was done, where that was before the turn was.
    generated: Option<Instant>,
    prepares: bool,
    /// Whether the agent asked for it: else the server began it by itself.
    is_asked: bool,
}

impl RealtimeTurns {
    /// For a connection that was upgraded; `None` where it speaks none of these dialects.
    pub(crate) fn new(context: &CallContext, extensions: Option<&str>) -> Option<RealtimeTurns> {
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

    /// One side sends nothing more.
    pub(crate) fn over(&mut self, from: Side) {
        self.closed_by.get_or_insert(from);
    }

    /// Bytes came from one side.
    pub(crate) fn frame(
        &mut self,
        context: &Arc<CallContext>,
        state: &mut CallState,
        from: Side,
        frame: &Frame,
    ) {
        match from {
            Side::Agent => {
                state.bytes.request += frame.bytes.len() as u64;
                let Some(mut requests) = self.requests.take() else {
                    return;
                };
                let mut each = |request: SocketRequest<'_>| self.ask(context, frame.at, request);
                let read = requests.push(&frame.bytes, &mut each);
                if read.is_err() {
                    context.shared.counters.body_skipped();
                }
                self.requests = read.is_ok().then_some(requests);
                self.next(context, state);
            }
            Side::Upstream => self.answer(context, state, frame),
        }
    }

    /// The agent asks for something.
    fn ask(&mut self, context: &Arc<CallContext>, at: Instant, request: SocketRequest<'_>) {
        let asked = match request {
            SocketRequest::Setup(setup) => {
                if let Some(request) = self.request(context, setup) {
                    *context.request() = request;
                }
                return;
            }
            SocketRequest::Answer(message) if self.dialect == Dialect::OpenaiResponses => {
                PendingAnswer {
                    request: self.request(context, message).map(Box::new),
                    prepares: prepares(message),
                    ..PendingAnswer::new(at, true)
                }
            }
            // Realtime refuses with an error that may be of something else.
            SocketRequest::Answer(_) => PendingAnswer::new(at, self.dialect == Dialect::GeminiLive),
            SocketRequest::PossibleAnswer => PendingAnswer::new(at, false),
            SocketRequest::Oversized => {
                context.shared.counters.body_skipped();
                PendingAnswer::new(at, self.dialect != Dialect::OpenaiRealtime)
            }
        };
        if self.dialect == Dialect::GeminiLive {
            // What is said now takes the place of what was asked before.
            self.pending.clear();
        }
        if self.pending.len() < MAX_PENDING {
            self.pending.push_back(asked);
        }
    }

    /// What a message says of the answers it asks for.
    fn request(&self, context: &CallContext, message: &[u8]) -> Option<request::Request> {
        let rules = &context.measure.attribution;
        let facts = request::facts(self.dialect, rules, message)?;
        // Vertex names a model with all that it belongs to.
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

    fn answer(&mut self, context: &Arc<CallContext>, state: &mut CallState, frame: &Frame) {
        state.bytes.response += frame.bytes.len() as u64;
        let Some(mut decoder) = self.decoder.take() else {
            return;
        };
        let sink = &mut |event: Event<'_>| self.event(context, state, frame.at, event);
        let read = decoder.push(&frame.bytes, sink);
        state.run.frame(context, frame.at, true);
        match read {
            Ok(()) => self.decoder = Some(decoder),
            Err(DecodeError::Memory) => state.lag(context, 1),
            Err(_) => state.broken = true,
        }
    }

    /// Nothing more is read of the upstream's side.
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
                    state.run.frame(context, at, true);
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
                // The error may be about something else. TTFT that begins too late is then less
                // wrong than TTFT from a request that was refused.
                if self.pending.front().is_some_and(|asked| !asked.is_certain) {
                    self.pending.pop_front();
                }
                state.run.generation.event(event);
            }
            event => state.run.generation.event(event),
        }
    }

    /// Begins the turn that was asked for next, where none is under way and it is certain that
    /// there will be one; else the server begins it.
    fn next(&mut self, context: &Arc<CallContext>, state: &mut CallState) {
        let read = self.decoder.is_some() || self.recorded == 0;
        let begins = |asked: &&PendingAnswer| asked.is_certain && self.turn.is_none() && read;
        if let Some(asked) = self.pending.front().filter(begins) {
            let at = asked.at;
            self.begin(context, state, at);
        }
    }

    /// Begins a turn where none is under way.
    fn begin(&mut self, context: &Arc<CallContext>, state: &mut CallState, at: Instant) {
        if self.turn.is_some() {
            return;
        }
        if self.dialect == Dialect::GeminiLive {
            let stale = |asked: &PendingAnswer| {
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
        // The connection is the session of those that name none.
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
        let registry = &context.shared.registry;
        let live = registry.begin(turn.id, context, received, started_at);
        live.streamed(true);
        live.warm_up(state.warm_up);
        state.run.live = Some(live);
        state.run.sent(received);
        // One that came between turns is of neither.
        state.run.generation.error = None;
        self.turn = Some(turn);
    }

    /// Records the turn under way, and makes ready for the next.
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
        state
            .run
            .conclude(context, finished_call.throughput(), true);
        state.run = LiveGeneration::continuing(state.run.generation.next());
        state.bytes = Bytes::default();
        context.shared.subscribers.finished(finished_call);
    }

    /// The spans of the turn just recorded: the first has those that the upstream knows
    /// of, later ones follow below it in the same trace.
    fn trace(&self, context: &CallContext) -> Option<CallTrace> {
        let first = context.trace.as_deref().copied()?;
        if self.recorded <= 1 {
            return Some(first);
        }
        let tracer = context.shared.tracer.as_ref();
        tracer.map(|tracer| tracer(Some(first.server)))
    }

    /// The connection is over.
    pub(crate) fn end(
        &mut self,
        context: &CallContext,
        state: &mut CallState,
        at: Instant,
        end: &End,
    ) {
        if self.turn.is_some() {
            // An upstream closes when the agent has: that broke nothing off.
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
                // Nothing was asked for.
                finished_call.record.operation_class = OperationClass::Other;
            }
            context.shared.subscribers.finished(finished_call);
        }
    }
}

/// Whether a `response.create` asks for nothing to be generated.
fn prepares(message: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Create {
        generate: Option<bool>,
    }
    let create: Option<Create> = serde_json::from_slice(message).ok();
    create.and_then(|create| create.generate) == Some(false)
}
