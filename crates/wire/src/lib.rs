#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod anthropic;
mod bedrock;
mod body;
mod cohere;
mod cost;
mod decoder;
mod detect;
mod embeddings;
mod emit;
mod encoding;
mod engine_generate;
mod error_body;
mod event_stream;
mod event_template;
mod events;
mod find;
mod framing;
mod gemini;
mod gemini_interactions;
mod gemini_live;
mod head_models;
pub mod inject;
mod json;
mod json_array;
mod json_path;
mod lm_studio;
mod members;
mod mistral_conversations;
mod ndjson;
mod ollama;
mod openai_chat;
mod openai_completions;
mod openai_json;
mod openai_media;
mod openai_realtime;
mod openai_responses;
mod openai_usage;
mod own_error;
mod registration;
mod repair;
mod request;
mod sniff;
mod socket_protocol;
mod socket_requests;
mod sse;
mod strict;
mod tgi;
mod usage_names;
mod websocket;
mod word;

use std::sync::Arc;
use tokengauge_core::call::Event;
use tokengauge_core::memory::{Buffer, BufferError, Memory};

pub use decoder::{COPIES, Decoder, ResponseHead};
pub use detect::{Detected, Target, detect, detect_socket, percent_decoded};
pub use error_body::error_body;
pub use event_template::{CountFields, CountLiterals, Counts, Template};
pub use framing::Framing;
pub use gemini_live::is_gemini_live;
pub use head_models::HeadModels;
pub use json_path::{JsonPath, pick};
pub use members::Members;
pub use ollama::reads_forms_as_json;
pub use own_error::{OwnError, openai_error};
pub use registration::{BeyondText, Dialects, OverruledBy, Registration};
pub use request::{
    Part, Section, SectionKind, TextKind, conversation_texts, generation_settings, request_facts,
    request_sections, request_texts,
};
pub use socket_protocol::{SocketProtocol, SocketRequest};
pub use socket_requests::SocketRequests;
pub use strict::{BodyHead, ModellessMember};
pub use strict::{content_encoding, decoded, differences};
pub use usage_names::{USAGE_NAMES, UsageMeaning, UsageNames};

/// Every dialect. The first one in this order that recognises a path or an event is used. Dialects
/// with distinctive paths come first, dialects that match many paths come last.
pub static DIALECTS: Dialects = Dialects::new(&[
    &openai_realtime::REGISTRATION,
    &gemini_live::REGISTRATION,
    &openai_responses::REGISTRATION,
    &openai_chat::REGISTRATION,
    &openai_completions::REGISTRATION,
    &gemini::REGISTRATION,
    &ollama::REGISTRATION,
    &gemini_interactions::REGISTRATION,
    &engine_generate::ENGINE_GENERATE,
    &embeddings::EMBEDDINGS,
    &anthropic::MESSAGES,
    &anthropic::COMPLETE,
    &engine_generate::LLAMA_CPP,
    &lm_studio::REGISTRATION,
    &cohere::COHERE_V1,
    &cohere::COHERE_V2,
    &bedrock::CONVERSE,
    &bedrock::INVOKE,
    // Matches every path after `/conversations/`.
    &mistral_conversations::REGISTRATION,
    &openai_media::REGISTRATION,
    &embeddings::RERANK,
    // Matches every remaining `/generate`, and `/`.
    &tgi::REGISTRATION,
]);

/// Receives events as they are found.
pub type Sink<'a> = &'a mut dyn FnMut(Event<'_>);

/// Size limits of a decoder, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a wire event.
    pub event_bytes: usize,
    /// Maximum length of a body that is not streamed, after decompression.
    pub body_bytes: usize,
    /// Maximum total length of a body after decompression.
    pub decoded_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            event_bytes: 8 << 20,
            body_bytes: 16 << 20,
            decoded_bytes: 1 << 30,
        }
    }
}

/// Why the rest of a body cannot be read. It is still forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The content encoding is unknown or its bytes are invalid.
    #[error("the content encoding of the body is unknown or invalid")]
    Encoding,
    /// The framing cannot find the next event.
    #[error("the framing of the body is invalid: the next event cannot be found")]
    Framing,
    /// A wire event, a body or the decompressed bytes exceed their limit.
    #[error("the body or one of its events is longer than the measuring limit")]
    TooLarge,
    /// All measuring together has reached its memory limit.
    #[error("measuring has reached its memory limit")]
    Memory,
}

impl From<BufferError> for DecodeError {
    fn from(full: BufferError) -> Self {
        match full {
            BufferError::Limit => DecodeError::TooLarge,
            BufferError::Memory => DecodeError::Memory,
        }
    }
}

/// The number of bytes of incomplete data that each buffer of a decoder holds without counting
/// towards the memory limit, per open stream.
const FREE_BYTES: usize = 16 * 1024;

fn buffer(memory: &Arc<Memory>, limit: usize) -> Buffer {
    Buffer::with_free(memory, limit, FREE_BYTES)
}

/// The error for a wire event or a body that does not match its dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the event or body does not match its dialect")]
pub struct Malformed;

impl From<serde_json::Error> for Malformed {
    fn from(_: serde_json::Error) -> Self {
        Malformed
    }
}

/// Reads one dialect. Gets only complete wire events.
///
/// A reader that returns [`Malformed`] must not have emitted anything. The payload may be repaired
/// (lone surrogates, invalid UTF-8) and passed to it a second time.
pub trait Reader: Send {
    /// Reads one event of a stream. `name` is empty if the framing has no names. [`Event::Message`]
    /// was already emitted. `[DONE]` is not passed to readers.
    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed>;

    /// Reads a body that is not streamed. [`Event::Message`] was already emitted. In many dialects,
    /// the body has the same format as an event.
    fn body(&mut self, payload: &[u8], sink: Sink<'_>) -> Result<(), Malformed> {
        self.event("", payload, sink)
    }

    /// Emits what only the end of the stream decides.
    fn finish(&mut self, _sink: Sink<'_>) {}
}

/// Emits nothing. Unknown bodies are forwarded without being measured.
#[derive(Default)]
struct NullReader;

impl Reader for NullReader {
    fn event(&mut self, _: &str, _: &[u8], _: Sink<'_>) -> Result<(), Malformed> {
        Err(Malformed)
    }
}

/// Compiles and runs the example in "Adding a dialect".
#[cfg(doctest)]
#[doc = include_str!("../../../docs/contributing.md")]
struct Contributing;
