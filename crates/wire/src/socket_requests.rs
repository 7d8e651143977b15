//! The agent's messages on a WebSocket with several answers: only those that ask for an answer,
//! since the wait for it begins with them.

use super::framing::{Item, Splitter};
use super::json::Text;
use super::websocket::WebSocket;
use super::{DecodeError, Limits, Reader, Registration};
use memchr::memmem;
use serde::Deserialize;
use std::sync::Arc;
use tokengauge_core::memory::{Memory, SMALL_BODY};

/// A message of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketRequest<'a> {
    /// It sets up how all answers are generated: the JSON object with the setup.
    Setup(&'a [u8]),
    /// It asks for an answer: the whole message.
    Answer(&'a [u8]),
    /// It asks for an answer, unless the server decides that the agent has not finished.
    PossibleAnswer,
    /// It asks for an answer and is longer than [`SMALL_BODY`]: it is not parsed, since that
    /// would delay forwarding.
    Oversized,
}

/// How a dialect works over a WebSocket that carries several answers.
pub struct SocketProtocol {
    /// Makes a reader of the server's messages, if they differ from those over HTTP.
    pub reader: Option<fn() -> Box<dyn Reader>>,
    /// Classifies a message of the agent.
    pub read_request: fn(&[u8]) -> Option<SocketRequest<'_>>,
    /// Byte strings, without spaces, that identify messages that ask for an answer and are too
    /// long to be parsed.
    pub long_requests: &'static [&'static [u8]],
}

impl SocketProtocol {
    /// OpenAI's protocol, for Realtime and responses: `response.create` asks for an answer.
    pub const RESPONSE_CREATE: SocketProtocol = SocketProtocol {
        reader: None,
        read_request: response_create,
        long_requests: &[b"type\":\"response.create\""],
    };
}

/// Bytes at each end of a long message that are searched for its type.
const ENDS: usize = 512;

/// Reads the agent's messages on a connection.
pub struct SocketRequests {
    protocol: &'static SocketProtocol,
    frames: WebSocket,
    broken: Option<DecodeError>,
}

impl SocketRequests {
    /// `extensions` is the `sec-websocket-extensions` that were agreed on.
    pub fn new(
        dialect: impl Into<&'static Registration>,
        extensions: Option<&str>,
        limits: Limits,
    ) -> Self {
        SocketRequests::within(&Memory::unbounded(), dialect, extensions, limits)
    }

    /// The same, within the limits of `memory`.
    pub fn within(
        memory: &Arc<Memory>,
        dialect: impl Into<&'static Registration>,
        extensions: Option<&str>,
        limits: Limits,
    ) -> Self {
        let protocol = dialect.into().socket;
        SocketRequests {
            protocol: protocol.unwrap_or(&SocketProtocol::RESPONSE_CREATE),
            frames: WebSocket::new(extensions, &limits, memory),
            broken: None,
        }
    }

    /// Takes the next bytes from the agent.
    ///
    /// # Errors
    /// [`DecodeError`] once the rest cannot be read, and ever after.
    pub fn push(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(SocketRequest<'_>),
    ) -> Result<(), DecodeError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let protocol = self.protocol;
        let result = self.frames.push(bytes, &mut |item| {
            let Item::Event { payload, .. } = item else {
                return;
            };
            let found = if payload.len() > SMALL_BODY {
                long(protocol.long_requests, payload)
            } else {
                (protocol.read_request)(payload)
            };
            if let Some(found) = found {
                each(found);
            }
        });
        self.broken = result.err();
        result
    }
}

/// Classifies a message that is not parsed: SDKs write its type first or last.
fn long<'p>(asks: &[&[u8]], payload: &'p [u8]) -> Option<SocketRequest<'p>> {
    let ends = [&payload[..ENDS], &payload[payload.len() - ENDS..]];
    let has = |end: &[u8]| {
        let text: Vec<u8> = end.iter().copied().filter(|byte| *byte != b' ').collect();
        asks.iter().any(|asks| memmem::find(&text, asks).is_some())
    };
    ends.into_iter()
        .any(has)
        .then_some(SocketRequest::Oversized)
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
