//! A connection with several answers (Realtime, responses over WebSocket, Gemini Live): one
//! record for each. A turn begins with the message of the agent that asks for it, or, where
//! the server starts one itself, with what it says first. A connection on which nothing was
//! generated makes one record of its own.

use super::call::State;
use super::generation::clip;
use super::head::{Head, id};
use super::record::{self, Closing};
use super::request;
use super::run::Run;
use crate::call::{Bytes, Dialect, Event, OperationClass, Outcome, RequestFacts};
use crate::observer::{End, Frame, Side};
use crate::trace::CallTrace;
use crate::wire::{Broken, Decoder, Framing, Limits, SocketRequest, SocketRequests};
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use uuid::Uuid;

/// Requests for an answer that wait for one.
const MAX_ASKED: usize = 16;

/// How long a request may wait that the server need not answer: a later turn is not its answer.
const PERHAPS_WITHIN: Duration = Duration::from_secs(10);

/// Characters kept of the server's id of a session.
const MAX_SESSION: usize = 200;

/// The turns of one connection.
pub(crate) struct Turns {
    dialect: Dialect,
    /// `None` once the upstream's side cannot be read any more.
    decoder: Option<Box<Decoder>>,
    /// `None` while it reads.
    requests: Option<Box<SocketRequests>>,
    /// What the agent asked for and has not begun.
    asked: VecDeque<Asked>,
    turn: Option<Turn>,
    /// Answers that run at once: their turn is over with the last of them.
    depth: u32,
    /// Turns that were recorded.
    recorded: u64,
    /// Who said first that nothing more comes.
    left: Option<Side>,
}

/// A request for an answer.
struct Asked {
    at: Instant,
    request: Option<Box<request::Request>>,
    /// Whether an answer comes to it, if only an error.
    is_certain: bool,
    /// Whether it only prepares a later request: nothing is generated for it.
    prepares: bool,
}

impl Asked {
    fn plainly(at: Instant, is_certain: bool) -> Asked {
        Asked {
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

impl Turns {
    /// For a connection that was upgraded; `None` where it speaks none of these dialects.
    pub(crate) fn new(head: &Head, extensions: Option<&str>) -> Option<Turns> {
        let dialect = head.dialect;
        let spoken = [
            Dialect::OpenaiRealtime,
            Dialect::OpenaiResponses,
            Dialect::GeminiLive,
        ];
        spoken.contains(&dialect).then(|| {
            let (memory, limits) = (&head.shared.memory, Limits::default());
            let framing = Framing::WebSocket;
            let decoder =
                Decoder::with_framing_within(memory, dialect, framing, extensions, limits);
            let requests = SocketRequests::within(memory, dialect, extensions, limits);
            Turns {
                dialect,
                decoder: Some(Box::new(decoder)),
                requests: Some(Box::new(requests)),
                asked: VecDeque::new(),
                turn: None,
                depth: 0,
                recorded: 0,
                left: None,
            }
        })
    }

    /// One side sends nothing more.
    pub(crate) fn over(&mut self, from: Side) {
        self.left.get_or_insert(from);
    }

    /// Bytes came from one side.
    pub(crate) fn frame(&mut self, head: &Arc<Head>, state: &mut State, from: Side, frame: &Frame) {
        match from {
            Side::Agent => {
                state.bytes.request += frame.bytes.len() as u64;
                let Some(mut requests) = self.requests.take() else {
                    return;
                };
                let mut each = |request: SocketRequest<'_>| self.ask(head, frame.at, request);
                let read = requests.push(&frame.bytes, &mut each);
                self.requests = read.is_ok().then_some(requests);
                self.next(head, state);
            }
            Side::Upstream => self.answer(head, state, frame),
        }
    }

    /// The agent asks for something.
    fn ask(&mut self, head: &Arc<Head>, at: Instant, request: SocketRequest<'_>) {
        let asked = match request {
            SocketRequest::Setup(setup) => {
                if let Some(request) = self.request(head, setup) {
                    *head.request() = request;
                }
                return;
            }
            SocketRequest::Answer(message) if self.dialect == Dialect::OpenaiResponses => Asked {
                request: self.request(head, message).map(Box::new),
                prepares: prepares(message),
                ..Asked::plainly(at, true)
            },
            // Realtime refuses with an error that may be of something else.
            SocketRequest::Answer(_) => Asked::plainly(at, self.dialect == Dialect::GeminiLive),
            SocketRequest::Perhaps => Asked::plainly(at, false),
        };
        if self.dialect == Dialect::GeminiLive {
            // What is said now takes the place of what was asked before.
            self.asked.clear();
        }
        if self.asked.len() < MAX_ASKED {
            self.asked.push_back(asked);
        }
    }

    /// What a message says of the answers it asks for.
    fn request(&self, head: &Head, message: &[u8]) -> Option<request::Request> {
        let rules = &head.measure.attribution;
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
        Some(head.request().of_message(facts, message))
    }

    fn answer(&mut self, head: &Arc<Head>, state: &mut State, frame: &Frame) {
        state.bytes.response += frame.bytes.len() as u64;
        let Some(mut decoder) = self.decoder.take() else {
            return;
        };
        let sink = &mut |event: Event<'_>| self.event(head, state, frame.at, event);
        let read = decoder.push(&frame.bytes, sink);
        state.run.frame(head, frame.at, true);
        match read {
            Ok(()) => self.decoder = Some(decoder),
            Err(Broken::Memory) => state.lag(head, 1),
            Err(_) => state.broken = true,
        }
    }

    /// Nothing more is read of the upstream's side.
    pub(crate) fn give_up(&mut self) {
        self.decoder = None;
    }

    fn event(&mut self, head: &Arc<Head>, state: &mut State, at: Instant, event: Event<'_>) {
        match event {
            Event::Session(session) => {
                if !session.chars().any(char::is_control) {
                    let _ = head.session.set(clip(session, MAX_SESSION).into());
                }
            }
            Event::TurnStarted => {
                self.depth += 1;
                self.begin(head, state, at);
            }
            Event::TurnEnded => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 && self.turn.is_some() {
                    state.run.generation.end_turn();
                    state.run.frame(head, at, true);
                    self.record(head, state, at, &End::Complete);
                    self.next(head, state);
                }
            }
            Event::Delta { .. } => {
                self.begin(head, state, at);
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
                if self.asked.front().is_some_and(|asked| !asked.is_certain) {
                    self.asked.pop_front();
                }
                state.run.generation.event(event);
            }
            event => state.run.generation.event(event),
        }
    }

    /// Begins the turn that was asked for next, where none is under way and it is certain that
    /// there will be one; else the server begins it.
    fn next(&mut self, head: &Arc<Head>, state: &mut State) {
        let read = self.decoder.is_some() || self.recorded == 0;
        let begins = |asked: &&Asked| asked.is_certain && self.turn.is_none() && read;
        if let Some(asked) = self.asked.front().filter(begins) {
            let at = asked.at;
            self.begin(head, state, at);
        }
    }

    /// Begins a turn where none is under way.
    fn begin(&mut self, head: &Arc<Head>, state: &mut State, at: Instant) {
        if self.turn.is_some() {
            return;
        }
        if self.dialect == Dialect::GeminiLive {
            let stale = |asked: &Asked| {
                !asked.is_certain && at.saturating_duration_since(asked.at) > PERHAPS_WITHIN
            };
            self.asked.retain(|asked| !stale(asked));
        }
        let asked = self.asked.pop_front();
        let received = asked.as_ref().map_or(at, |asked| asked.at);
        let prepares = asked.as_ref().is_some_and(|asked| asked.prepares);
        let is_asked = asked.is_some();
        if let Some(request) = asked.and_then(|asked| asked.request) {
            *head.request() = *request;
        }
        // The connection is the session of those that name none.
        let _ = head.session.get_or_init(|| head.id.to_string().into());
        let since = received.saturating_duration_since(head.received);
        let started_at = head.started_at + since;
        let turn = Turn {
            id: id(started_at),
            started_at,
            received,
            generated: None,
            prepares,
            is_asked,
        };
        let registry = &head.shared.registry;
        let live = registry.begin(turn.id, head, received, started_at);
        live.streamed(true);
        live.warm_up(state.warm_up);
        state.run.live = Some(live);
        state.run.sent(received);
        // One that came between turns is of neither.
        state.run.generation.error = None;
        self.turn = Some(turn);
    }

    /// Records the turn under way, and makes ready for the next.
    fn record(&mut self, head: &Head, state: &mut State, at: Instant, end: &End) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        if let Some(live) = &state.run.live {
            live.over();
        }
        self.depth = 0;
        self.recorded += 1;
        state.run.finish(head, at, true);
        let closing = Closing {
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
            trace: self.trace(head),
            class: turn.prepares.then_some(OperationClass::Other),
        };
        let finding = record::finding(head, state, closing);
        state.run.conclude(head, finding.throughput(), true);
        state.run = Run::behind(state.run.generation.next());
        state.bytes = Bytes::default();
        head.shared.subscribers.finished(finding);
    }

    /// The spans of the turn just recorded: the first has those that the upstream was told
    /// of, later ones follow below it in the same trace.
    fn trace(&self, head: &Head) -> Option<CallTrace> {
        let first = head.trace.as_deref().copied()?;
        if self.recorded <= 1 {
            return Some(first);
        }
        let tracer = head.shared.tracer.as_ref();
        tracer.map(|tracer| tracer(Some(first.server)))
    }

    /// The connection is over.
    pub(crate) fn end(&mut self, head: &Head, state: &mut State, at: Instant, end: &End) {
        if self.turn.is_some() {
            // An upstream closes when the agent has: that broke nothing off.
            let end = match (self.left, end) {
                (Some(Side::Agent), End::Complete | End::UpstreamReset) => &End::ClientCancelled,
                _ => end,
            };
            self.record(head, state, at, end);
        } else if self.recorded == 0 {
            state.run.generation.terminated |= *end == End::Complete;
            let mut closing = Closing::of_call(head, state, at, end, None);
            closing.streamed = Some(true);
            closing.dialect = self.dialect;
            let mut finding = record::finding(head, state, closing);
            if finding.record.outcome == Outcome::Complete {
                // Nothing was asked for.
                finding.record.operation_class = OperationClass::Other;
            }
            head.shared.subscribers.finished(finding);
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
