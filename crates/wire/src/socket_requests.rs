//! The agent's messages on a WebSocket with several answers: only those that ask for an answer,
//! since the wait for it begins with them.

use super::framing::{Item, Splitter};
use super::socket_protocol::{SocketProtocol, SocketRequest};
use super::websocket::WebSocket;
use super::{DecodeError, Limits, Registration};
use memchr::memmem;
use std::sync::Arc;
use tokengauge_core::memory::{Memory, SMALL_BODY};

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
