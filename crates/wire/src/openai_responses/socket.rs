//! OpenAI responses over WebSocket: each message is an event of the HTTP stream. Each response of
//! the connection is a turn and counts as a choice.

use super::super::json::parse;
use super::super::openai_usage::ResponseIdentity;
use super::super::{Malformed, Reader, Sink};
use super::{EmittedTexts, Response, StreamEvent, response};
use tokengauge_core::call::Event;

/// Reads the messages of the server.
#[derive(Default)]
pub struct ResponsesSocket {
    identity: ResponseIdentity,
    texts: EmittedTexts,
    turn: u32,
    in_turn: bool,
    /// Whether the last turn ended with an error. Its response may end again.
    failed: bool,
}

impl Reader for ResponsesSocket {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        match &*event.r#type {
            "response.created" => {
                let response = response(event.response)?;
                self.begin(sink);
                self.identity.note(&response.id, &response.model, sink);
            }
            "response.in_progress" | "response.queued" => {
                let response = response(event.response)?;
                self.identity.note(&response.id, &response.model, sink);
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => {
                let response = response(event.response)?;
                self.whole(&event, &response, sink);
            }
            "error" => self.error(&event, sink),
            "" if event.error.is_some() => self.error(&event, sink),
            _ => {
                self.texts.read(self.turn, &event, sink)?;
            }
        }
        Ok(())
    }
}

impl ResponsesSocket {
    fn begin(&mut self, sink: Sink<'_>) {
        self.in_turn = true;
        self.failed = false;
        sink(Event::TurnStarted);
    }

    fn end(&mut self, sink: Sink<'_>) {
        sink(Event::TurnEnded);
        self.in_turn = false;
        self.turn = self.turn.saturating_add(1);
        self.texts = EmittedTexts::default();
    }

    fn whole(&mut self, event: &StreamEvent<'_>, response: &Response<'_>, sink: Sink<'_>) {
        if !self.in_turn && self.failed {
            return;
        }
        if !self.in_turn {
            self.begin(sink);
        }
        self.identity.note(&response.id, &response.model, sink);
        self.identity.service_tier(&response.service_tier, sink);
        self.texts.copies(self.turn, response, sink);
        response.outcome(self.turn, sink);
        if let Some(timings) = &event.timings.0 {
            sink(Event::Engine(timings.report()));
        }
        sink(Event::End);
        self.end(sink);
    }

    fn error(&mut self, event: &StreamEvent<'_>, sink: Sink<'_>) {
        sink(Event::Error(&event.error_word()));
        self.end(sink);
        self.failed = true;
    }
}
