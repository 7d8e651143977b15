//! OpenAI Realtime over WebSocket, both directions. Each response of the connection
//! is a turn, and counts as a choice.

use super::decoder::{Item, Splitter};
use super::json::{Object, Text, parse};
use super::openai_responses::{Response, StreamEvent, Texts};
use super::openai_usage::Identity;
use super::websocket::WebSocket;
use super::{Broken, Limits, Malformed, Reader, Sink};
use crate::call::Event;
use crate::memory::Memory;
use serde::Deserialize;
use std::sync::Arc;

/// Reads what the server sends.
#[derive(Default)]
pub(crate) struct Realtime {
    identity: Identity,
    texts: Texts,
    turn: u32,
    in_turn: bool,
}

#[derive(Deserialize)]
struct Session<'a> {
    #[serde(borrow, default)]
    model: Text<'a>,
}

impl Reader for Realtime {
    fn event(&mut self, _: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        let event: StreamEvent<'_> = parse(payload)?;
        match &*event.r#type {
            "session.created" | "session.updated" => {
                let raw = event.session.ok_or(Malformed)?;
                let session: Object<Session<'_>> = serde_json::from_str(raw.get())?;
                let session = session.0.ok_or(Malformed)?;
                self.identity.note("", &session.model, sink);
            }
            "response.created" => self.begin(sink),
            "response.done" => {
                let raw = event.response.ok_or(Malformed)?;
                let response = serde_json::from_str(raw.get())?;
                if let Some(usage) = &event.usage.0 {
                    usage.give(sink);
                }
                self.end(&response, sink);
            }
            "error" => sink(Event::Error(&event.error_word())),
            kind if kind.starts_with("response.") => {
                self.texts.read(self.turn, &event, sink)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.event("", payload, sink)
    }
}

impl Realtime {
    fn begin(&mut self, sink: Sink<'_>) {
        self.in_turn = true;
        sink(Event::TurnStarted);
    }

    fn end(&mut self, response: &Response<'_>, sink: Sink<'_>) {
        if !self.in_turn {
            self.begin(sink);
        }
        self.identity.note(&response.id, &response.model, sink);
        self.identity.service_tier(&response.service_tier, sink);
        self.texts.copies(self.turn, response, sink);
        response.outcome(self.turn, sink);
        sink(Event::TurnEnded);
        self.in_turn = false;
        self.turn = self.turn.saturating_add(1);
        self.texts = Texts::default();
    }
}

/// Reads what the agent sends over a Realtime connection: only whether it asks for
/// a response, which is when the wait for one begins.
pub struct RealtimeRequests {
    frames: WebSocket,
    broken: Option<Broken>,
}

impl RealtimeRequests {
    /// `extensions` is the `sec-websocket-extensions` that were agreed on.
    pub fn new(extensions: Option<&str>, limits: Limits) -> Self {
        RealtimeRequests::within(&Memory::unbounded(), extensions, limits)
    }

    /// The same, that holds what `memory` allows.
    pub(crate) fn within(memory: &Arc<Memory>, extensions: Option<&str>, limits: Limits) -> Self {
        RealtimeRequests {
            frames: WebSocket::new(extensions, &limits, memory),
            broken: None,
        }
    }

    /// Takes the next bytes of the agent's side; how many times they ask for a
    /// response (`response.create`).
    ///
    /// # Errors
    /// [`Broken`] once the rest cannot be read, and ever after.
    pub fn push(&mut self, bytes: &[u8]) -> Result<u64, Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let mut asked = 0;
        let result = self
            .frames
            .push(bytes, &mut |item| asked += u64::from(asks(&item)));
        self.broken = result.err();
        result.map(|()| asked)
    }
}

fn asks(item: &Item<'_>) -> bool {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    let Item::Event { payload, .. } = item else {
        return false;
    };
    serde_json::from_slice::<Request<'_>>(payload)
        .is_ok_and(|request| &*request.r#type == "response.create")
}
