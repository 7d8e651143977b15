//! What the agent sends over a WebSocket on which several answers are generated: only what
//! asks for an answer, which is when the wait for one begins.

use super::decoder::{Item, Splitter};
use super::json::Text;
use super::websocket::WebSocket;
use super::{Broken, Limits};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use tokengauge_core::call::Dialect;
use tokengauge_core::memory::{Memory, SMALL_BODY};

/// A message of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest<'a> {
    /// It says how all answers are to be generated: the JSON object of that.
    Setup(&'a [u8]),
    /// It asks for an answer: the whole message.
    Answer(&'a [u8]),
    /// It asks for an answer, unless the server thinks that the agent goes on.
    Perhaps,
    /// It asks for an answer and is longer than [`SMALL_BODY`]: what it says is not read, as
    /// that would hold up what the connection forwards.
    Long,
}

/// Bytes at each end of a long message in which it is looked for what it asks.
const ENDS: usize = 512;

/// Reads what the agent sends over a connection.
pub struct SocketRequests {
    dialect: Dialect,
    frames: WebSocket,
    broken: Option<Broken>,
}

impl SocketRequests {
    /// `extensions` is the `sec-websocket-extensions` that were agreed on.
    pub fn new(dialect: Dialect, extensions: Option<&str>, limits: Limits) -> Self {
        SocketRequests::within(&Memory::unbounded(), dialect, extensions, limits)
    }

    /// The same, that holds what `memory` allows.
    pub fn within(
        memory: &Arc<Memory>,
        dialect: Dialect,
        extensions: Option<&str>,
        limits: Limits,
    ) -> Self {
        SocketRequests {
            dialect,
            frames: WebSocket::new(extensions, &limits, memory),
            broken: None,
        }
    }

    /// Takes the next bytes of the agent's side.
    ///
    /// # Errors
    /// [`Broken`] once the rest cannot be read, and ever after.
    pub fn push(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(SocketRequest<'_>),
    ) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let dialect = self.dialect;
        let result = self.frames.push(bytes, &mut |item| {
            let Item::Event { payload, .. } = item else {
                return;
            };
            let found = match dialect {
                _ if payload.len() > SMALL_BODY => long(dialect, payload),
                Dialect::GeminiLive => live(payload),
                _ => response_create(payload),
            };
            if let Some(found) = found {
                each(found);
            }
        });
        self.broken = result.err();
        result
    }
}

/// What a message asks for that is not parsed: SDKs write its kind first or last.
fn long(dialect: Dialect, payload: &[u8]) -> Option<SocketRequest<'_>> {
    let asks: &[&[u8]] = match dialect {
        Dialect::GeminiLive => &[b"turnComplete\":true", b"turn_complete\":true"],
        _ => &[b"type\":\"response.create\""],
    };
    let ends = [&payload[..ENDS], &payload[payload.len() - ENDS..]];
    let has = |end: &[u8]| {
        let text: Vec<u8> = end.iter().copied().filter(|byte| *byte != b' ').collect();
        asks.iter().any(|asks| memmem::find(&text, asks).is_some())
    };
    ends.into_iter().any(has).then_some(SocketRequest::Long)
}

/// OpenAI's Realtime and responses.
fn response_create(payload: &[u8]) -> Option<SocketRequest<'_>> {
    #[derive(Deserialize)]
    struct Request<'a> {
        #[serde(borrow, default)]
        r#type: Text<'a>,
    }
    let request: Request<'_> = serde_json::from_slice(payload).ok()?;
    (&*request.r#type == "response.create").then_some(SocketRequest::Answer(payload))
}

/// Gemini Live; its SDKs write some members with underscores.
fn live(payload: &[u8]) -> Option<SocketRequest<'_>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        setup: Option<&'a RawValue>,
        #[serde(rename = "clientContent", alias = "client_content")]
        client_content: Option<ClientContent>,
        #[serde(borrow, rename = "toolResponse", alias = "tool_response")]
        tool_response: Option<&'a RawValue>,
        #[serde(borrow, rename = "realtimeInput", alias = "realtime_input")]
        realtime_input: Option<RealtimeInput<'a>>,
    }
    #[derive(Deserialize)]
    struct ClientContent {
        #[serde(rename = "turnComplete", alias = "turn_complete")]
        turn_complete: Option<bool>,
    }
    #[derive(Deserialize)]
    struct RealtimeInput<'a> {
        #[serde(borrow)]
        text: Option<&'a RawValue>,
        #[serde(borrow, rename = "activityEnd", alias = "activity_end")]
        activity_end: Option<&'a RawValue>,
        #[serde(borrow, rename = "audioStreamEnd", alias = "audio_stream_end")]
        audio_stream_end: Option<&'a RawValue>,
    }
    let message: Message<'_> = serde_json::from_slice(payload).ok()?;
    if let Some(setup) = message.setup {
        return Some(SocketRequest::Setup(setup.get().as_bytes()));
    }
    let complete = message.client_content.and_then(|it| it.turn_complete);
    if complete == Some(true) || message.tool_response.is_some() {
        return Some(SocketRequest::Answer(payload));
    }
    let input = message.realtime_input?;
    let ends = [input.text, input.activity_end, input.audio_stream_end];
    let ends = ends.iter().any(Option::is_some);
    ends.then_some(SocketRequest::Perhaps)
}
