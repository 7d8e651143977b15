//! Framings: how a body is split into wire events.

use super::DecodeError;

/// How a body is split into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON value per line.
    Ndjson,
    /// One JSON value for the whole body.
    Json,
    /// A JSON array whose elements arrive one by one.
    JsonArray,
    /// Amazon's binary event stream.
    AwsEventStream,
    /// WebSocket frames in one direction.
    WebSocket,
}

pub(super) enum Item<'a> {
    Comment,
    /// A wire event. The name is empty if the framing has no names.
    Event {
        name: &'a str,
        payload: &'a [u8],
    },
    /// An error outside of wire events: llama-box's SSE line `error: {…}`.
    Error {
        payload: &'a [u8],
    },
    /// A wire event that the framing marks as an error, with its type.
    Exception(&'a str),
    Unparsed,
}

pub(super) trait Splitter: Send {
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), DecodeError>;

    /// Emits the items that only the end of the bytes completes.
    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>));
}
