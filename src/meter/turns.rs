//! A Realtime connection: one record for each response on it. A turn begins with the
//! agent's `response.create`, or, where the server starts one itself, with
//! `response.created`; it is over with `response.done`. A connection on which nothing
//! was generated makes one record of its own.

use super::call::State;
use super::head::{Head, id};
use super::record::{self, Closing};
use super::run::Run;
use crate::call::{Bytes, Dialect, Event};
use crate::observer::{End, Frame, Side};
use crate::trace::CallTrace;
use crate::wire::{Broken, Decoder, Framing, Limits, RealtimeRequests};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use uuid::Uuid;

/// Requests for a response that wait for one.
const MAX_ASKED: usize = 16;

/// The turns of one connection.
pub(crate) struct Turns {
    /// `None` once the upstream's side cannot be read any more.
    decoder: Option<Box<Decoder>>,
    requests: RealtimeRequests,
    /// When the agent asked for responses that have not begun.
    asked: VecDeque<Instant>,
    turn: Option<Turn>,
    /// Responses that run at once: their turn is over with the last of them.
    depth: u32,
    /// Turns that were recorded.
    recorded: u64,
    /// Who said first that nothing more comes.
    left: Option<Side>,
}

/// A turn under way.
#[derive(Clone, Copy)]
struct Turn {
    id: Uuid,
    started_at: SystemTime,
    received: Instant,
}

impl Turns {
    /// For a connection that was upgraded; `None` where it does not speak Realtime.
    pub(crate) fn new(head: &Head, extensions: Option<&str>) -> Option<Turns> {
        (head.dialect == Dialect::OpenaiRealtime).then(|| {
            let (dialect, framing) = (Dialect::OpenaiRealtime, Framing::WebSocket);
            let (memory, limits) = (&head.shared.memory, Limits::default());
            let decoder =
                Decoder::with_framing_within(memory, dialect, framing, extensions, limits);
            Turns {
                decoder: Some(Box::new(decoder)),
                requests: RealtimeRequests::within(memory, extensions, limits),
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
                let asked = self.requests.push(&frame.bytes).unwrap_or(0);
                let room = MAX_ASKED.saturating_sub(self.asked.len());
                let asked = usize::try_from(asked).unwrap_or(room).min(room);
                self.asked.extend(std::iter::repeat_n(frame.at, asked));
            }
            Side::Upstream => self.answer(head, state, frame),
        }
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
            Event::TurnStarted => {
                self.depth += 1;
                self.begin(head, state, at);
            }
            Event::TurnEnded => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    state.run.generation.end_turn();
                    state.run.frame(head, at, true);
                    self.record(head, state, at, &End::Complete);
                }
            }
            Event::Delta { .. } => {
                self.begin(head, state, at);
                state.run.generation.event(event);
            }
            event => state.run.generation.event(event),
        }
    }

    /// Begins a turn where none is under way.
    fn begin(&mut self, head: &Arc<Head>, state: &mut State, at: Instant) {
        if self.turn.is_some() {
            return;
        }
        let received = self.asked.pop_front().unwrap_or(at);
        let since = received.saturating_duration_since(head.received);
        let started_at = head.started_at + since;
        let turn = Turn {
            id: id(started_at),
            started_at,
            received,
        };
        let registry = &head.shared.registry;
        let live = registry.begin(turn.id, head, received, started_at);
        live.streamed(true);
        live.warm_up(state.warm_up);
        state.run.live = Some(live);
        state.run.sent(received);
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
            ended: at,
            end,
            streamed: Some(true),
            dialect: Dialect::OpenaiRealtime,
            input: None,
            trace: self.trace(head),
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
            let finding = record::finding(head, state, closing);
            head.shared.subscribers.finished(finding);
        }
    }
}
