//! Decodes the bytes of a response body into events: encoding, framing, dialect.

use super::body::{Body, BodyRemainder, framing_of};
use super::encoding::Encoding;
use super::events::EventReader;
use super::framing::{Framing, Item};
use super::{DecodeError, Limits, Registration, Sink};
use std::sync::Arc;
use tokengauge_core::call::Dialect;
use tokengauge_core::memory::{Memory, Share};

/// The parts of a response head that decide how the body is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// Status code.
    pub status: u16,
    /// The value of `content-type`.
    pub content_type: Option<&'a str>,
    /// The value of `content-encoding`.
    pub content_encoding: Option<&'a str>,
}

/// Maximum length of an event that is read without counting memory.
const SHORT: usize = 64 * 1024;
/// How often a JSON text may be copied while it is read. A JSON text with escapes is copied once as a
/// whole and once as its longest string. The one thread that reads whole bodies may exceed the memory
/// limit by this many copies of one body.
pub const COPIES: usize = 2;

/// Reserves memory for reading an item. Returns `false` if the limit does not allow it. Parsed
/// structures have a separate limit.
fn allowed(parsing: &mut Share, item: &Item<'_>) -> bool {
    match item {
        Item::Event { payload, .. } | Item::Error { payload } if payload.len() > SHORT => {
            parsing.resize(payload.len().saturating_mul(COPIES))
        }
        _ => true,
    }
}

/// Reads one response body.
pub struct Decoder {
    encoding: Option<Box<Encoding>>,
    body: Body,
    events: EventReader,
    parsing: Share,
    broken: Option<DecodeError>,
}

impl Decoder {
    /// A decoder of the body after `head`.
    pub fn new(
        dialect: impl Into<&'static Registration>,
        head: &ResponseHead<'_>,
        limits: Limits,
    ) -> Self {
        Decoder::within(&Memory::unbounded(), dialect, head, limits)
    }

    /// A decoder of the body after `head` that counts its memory towards `memory`.
    pub fn within(
        memory: &Arc<Memory>,
        dialect: impl Into<&'static Registration>,
        head: &ResponseHead<'_>,
        limits: Limits,
    ) -> Self {
        let dialect = dialect.into();
        let declared = head.content_type.and_then(framing_of);
        let body = Body::undecided(declared, dialect.array_is_stream, limits, memory);
        Decoder::build(
            EventReader::new(dialect),
            body,
            head.content_encoding,
            &limits,
            memory,
        )
    }

    /// A decoder of a body with a known framing. For [`Framing::WebSocket`], `encoding` is the
    /// negotiated `sec-websocket-extensions`.
    pub fn with_framing(
        dialect: impl Into<&'static Registration>,
        framing: Framing,
        encoding: Option<&str>,
        limits: Limits,
    ) -> Self {
        let memory = Memory::unbounded();
        Decoder::with_framing_within(&memory, dialect, framing, encoding, limits)
    }

    /// A decoder of a body with a known framing that counts its memory towards `memory`.
    pub fn with_framing_within(
        memory: &Arc<Memory>,
        dialect: impl Into<&'static Registration>,
        framing: Framing,
        encoding: Option<&str>,
        limits: Limits,
    ) -> Self {
        let dialect = dialect.into();
        if framing == Framing::WebSocket {
            let body = Body::websocket(encoding, limits, memory);
            return Decoder::build(EventReader::of_socket(dialect), body, None, &limits, memory);
        }
        let body = Body::framed(framing, limits, memory);
        Decoder::build(EventReader::new(dialect), body, encoding, &limits, memory)
    }

    fn build(
        events: EventReader,
        body: Body,
        encoding: Option<&str>,
        limits: &Limits,
        memory: &Arc<Memory>,
    ) -> Self {
        let (encoding, broken) = match Encoding::new(encoding, limits, memory) {
            Ok(encoding) => (encoding, None),
            Err(broken) => (None, Some(broken)),
        };
        Decoder {
            encoding: encoding.map(Box::new),
            body,
            events,
            parsing: Share::empty(memory),
            broken,
        }
    }

    /// Decodes the next bytes of the body.
    ///
    /// # Errors
    /// [`DecodeError`] once the rest of the body cannot be read, and in every later call.
    pub fn push(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), DecodeError> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let (body, events, parsing) = (&mut self.body, &mut self.events, &mut self.parsing);
        let mut refused = false;
        let mut take = |item: Item<'_>| {
            if refused || !allowed(parsing, &item) {
                refused = true;
            } else {
                events.take(item, sink);
            }
        };
        let result = match &mut self.encoding {
            None => body.push(bytes, &mut take),
            Some(encoding) => encoding.push(bytes, &mut |decoded| body.push(decoded, &mut take)),
        };
        let result = if refused {
            Err(DecodeError::Memory)
        } else {
            result
        };
        let _ = self.parsing.resize(0);
        self.broken = result.err();
        result
    }

    /// Ends the body.
    ///
    /// # Errors
    /// [`DecodeError`] if the body cannot be read to its end.
    pub fn finish(&mut self, sink: Sink<'_>) -> Result<(), DecodeError> {
        let events = &mut self.events;
        match self.body.finish() {
            BodyRemainder::Events(mut splitter) => {
                if self.broken.is_none() {
                    splitter.finish(&mut |item| events.take(item, sink));
                }
                events.finish(sink);
            }
            BodyRemainder::Whole(body) if self.broken.is_none() => {
                self.parsing
                    .resize_over_limit(body.len().saturating_mul(COPIES));
                events.whole(body.as_slice(), sink);
                let _ = self.parsing.resize(0);
            }
            BodyRemainder::Unreadable => events.take(Item::Unparsed, sink),
            BodyRemainder::Whole(_) | BodyRemainder::Finished => {}
        }
        self.broken.map_or(Ok(()), Err)
    }

    /// The dialect. The first events may have corrected it.
    pub fn dialect(&self) -> Dialect {
        self.events.dialect()
    }

    /// Whether events are emitted as they arrive. If `false`, [`Decoder::finish`] reads the whole
    /// body. The first bytes of the body may change this.
    pub fn is_stream(&self) -> bool {
        self.body.framing() != Framing::Json
    }

    /// The number of wire events so far.
    pub fn messages(&self) -> u64 {
        self.events.messages()
    }

    /// The number of SSE comments so far.
    pub fn comments(&self) -> u64 {
        self.events.comments()
    }
}

#[cfg(test)]
mod tests;
