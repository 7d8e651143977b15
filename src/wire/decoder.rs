//! From the bytes of a response body to events.

use super::{Broken, Limits, Reader, Sink, reader};
use crate::call::Dialect;

/// How events are cut out of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value per line.
    Ndjson,
    /// One JSON value, read whole.
    Json,
    /// A JSON array that grows.
    JsonArray,
    /// Amazon's binary event stream.
    AwsEventStream,
    /// WebSocket frames, either direction.
    WebSocket,
}

/// What of a response head decides how its body is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: u16,
    /// `content-type` as sent.
    pub content_type: Option<&'a str>,
    /// `content-encoding` as sent.
    pub content_encoding: Option<&'a str>,
}

/// Reads one response body.
pub struct Decoder {
    dialect: Dialect,
    framing: Framing,
    _reader: Box<dyn Reader>,
    messages: u64,
    comments: u64,
}

impl Decoder {
    /// A decoder for the body behind `head`.
    pub fn new(dialect: Dialect, _head: &ResponseHead<'_>, limits: Limits) -> Self {
        Decoder::with_framing(dialect, Framing::Sse, None, limits)
    }

    /// A decoder for a body whose framing is known. For [`Framing::WebSocket`],
    /// `encoding` is the `sec-websocket-extensions` that were agreed on.
    pub fn with_framing(
        dialect: Dialect,
        framing: Framing,
        _encoding: Option<&str>,
        _limits: Limits,
    ) -> Self {
        Decoder {
            dialect,
            framing,
            _reader: reader(dialect),
            messages: 0,
            comments: 0,
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// [`Broken`] once the rest of the body cannot be read, and ever after.
    pub fn push(&mut self, _bytes: &[u8], _sink: Sink<'_>) -> Result<(), Broken> {
        Ok(())
    }

    /// The body is over.
    ///
    /// # Errors
    /// As for [`Decoder::push`].
    pub fn finish(&mut self, _sink: Sink<'_>) -> Result<(), Broken> {
        Ok(())
    }

    /// The dialect, as the wire confirmed or corrected it.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether events are given as they arrive. `false`: the whole body is read by
    /// [`Decoder::finish`]. The body's first bytes may correct what its head said.
    pub fn is_stream(&self) -> bool {
        self.framing != Framing::Json
    }

    /// Wire events so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// SSE comments so far.
    pub fn comments(&self) -> u64 {
        self.comments
    }
}
