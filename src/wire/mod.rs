//! Bytes to events. No clock, no sockets, no counting.
//!
//! A [`Decoder`] takes a response body in pieces of any size and calls back with
//! [`Event`]s. It undoes the content encoding, then the framing, then reads the
//! dialect: `encoding` → one of the framings → one [`Reader`] per dialect.

mod anthropic;
mod bedrock;
mod cohere;
mod detect;
mod embeddings;
mod encoding;
mod error_body;
mod event_stream;
mod gemini;
mod inject;
mod json_array;
mod ndjson;
mod ollama;
mod openai_chat;
mod openai_completions;
mod openai_realtime;
mod openai_responses;
mod request;
mod sse;
mod tgi;
mod websocket;

use crate::call::Event;

/// Takes events as they are found.
pub type Sink<'a> = &'a mut dyn FnMut(Event<'_>);

/// A wire event or body that is not what its dialect says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not what the dialect says it is")]
pub struct Malformed;

/// Reads one dialect. Gets whole wire events, never pieces of one.
trait Reader: Send {
    /// One event of a stream: its name where the framing has one (else empty), and
    /// its payload. [`Event::Message`] has been given already.
    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed>;

    /// A whole body that was not streamed. [`Event::Message`] has been given already.
    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed>;

    /// The stream is over: gives what only its end decides.
    fn finish(&mut self, _sink: Sink<'_>) {}
}
