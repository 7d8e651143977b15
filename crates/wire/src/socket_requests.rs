//! Finds messages that request a response on a WebSocket with several responses, because latencies
//! begin with these messages.

use super::framing::{Item, Splitter};
use super::socket_protocol::{SocketProtocol, SocketRequest};
use super::websocket::WebSocket;
use super::{DecodeError, Limits, Registration};
use memchr::memmem;
use std::sync::Arc;
use tokengauge_core::memory::{Memory, SMALL_BODY};

/// The number of bytes at each end of a long message that are searched for its type.
const ENDS: usize = 512;

/// Reads the messages of the agent on one connection.
pub struct SocketRequests {
    protocol: &'static SocketProtocol,
    frames: WebSocket,
    broken: Option<DecodeError>,
}

impl SocketRequests {
    /// A reader for a connection. `extensions` is the negotiated `sec-websocket-extensions`.
    pub fn new(
        dialect: impl Into<&'static Registration>,
        extensions: Option<&str>,
        limits: Limits,
    ) -> Self {
        SocketRequests::within(&Memory::unbounded(), dialect, extensions, limits)
    }

    /// A reader for a connection that counts its memory towards `memory`.
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

    /// Reads the next bytes from the agent.
    ///
    /// # Errors
    /// [`DecodeError`] once the rest cannot be read, and in every later call.
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

/// Classifies a message without parsing it. SDKs write its type first or last.
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
