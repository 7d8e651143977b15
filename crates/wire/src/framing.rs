//! Framings: how a body is split into wire events.

use super::DecodeError;

/// How a body is split into events.
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

pub(super) enum Item<'a> {
    /// A comment.
    Comment,
    /// A wire event: its name where the framing has one, and its payload.
    Event { name: &'a str, payload: &'a [u8] },
    /// An error outside of the wire events: llama-box's SSE line `error: {…}`.
    Error { payload: &'a [u8] },
    /// A wire event that the framing marks as an error, with its type.
    Exception(&'a str),
    /// A wire event that is damaged.
    Unparsed,
}

/// Splits bytes into wire events.
pub(super) trait Splitter: Send {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError>;

    /// The bytes have ended: emits what only their end completes.
    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>));
}
