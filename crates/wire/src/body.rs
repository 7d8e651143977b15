//! Detects the framing of a decoded body and splits the body into wire events.

use super::event_stream::EventStream;
use super::framing::{Framing, Item, Splitter};
use super::json_array::JsonArray;
use super::ndjson::Ndjson;
use super::sse::Sse;
use super::websocket::WebSocket;
use super::{DecodeError, Limits, buffer};
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};

pub(super) struct Body {
    framing: Framing,
    limits: Limits,
    memory: Arc<Memory>,
    state: BodyState,
}

enum BodyState {
    /// The framing depends on the head and on the first byte that is not white space.
    Undecided(FramingHints),
    Events(Box<dyn Splitter>),
    /// Boxed, because most responses are streams.
    Whole(Box<Buffer>),
    Unreadable,
    Finished,
}

#[derive(Clone, Copy)]
struct FramingHints {
    declared: Option<Framing>,
    array_is_stream: bool,
}

impl Body {
    pub(super) fn undecided(
        declared: Option<Framing>,
        array_is_stream: bool,
        limits: Limits,
        memory: &Arc<Memory>,
    ) -> Self {
        let framing = match declared {
            Some(Framing::Json) if array_is_stream => Framing::JsonArray,
            Some(declared) => declared,
            None => Framing::Json,
        };
        let state = BodyState::Undecided(FramingHints {
            declared,
            array_is_stream,
        });
        Body {
            framing,
            limits,
            memory: Arc::clone(memory),
            state,
        }
    }

    pub(super) fn websocket(
        extensions: Option<&str>,
        limits: Limits,
        memory: &Arc<Memory>,
    ) -> Self {
        let splitter = Box::new(WebSocket::new(extensions, &limits, memory));
        Body {
            framing: Framing::WebSocket,
            limits,
            memory: Arc::clone(memory),
            state: BodyState::Events(splitter),
        }
    }

    pub(super) fn framed(framing: Framing, limits: Limits, memory: &Arc<Memory>) -> Self {
        let state = match framing {
            Framing::Sse => events(Sse::new(&limits, memory)),
            Framing::Ndjson => events(Ndjson::new(&limits, memory)),
            Framing::JsonArray => events(JsonArray::new(&limits, memory)),
            Framing::AwsEventStream => events(EventStream::new(&limits, memory)),
            Framing::WebSocket => events(WebSocket::new(None, &limits, memory)),
            Framing::Json => BodyState::Whole(Box::new(buffer(memory, limits.body_bytes))),
        };
        Body {
            framing,
            limits,
            memory: Arc::clone(memory),
            state,
        }
    }

    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), DecodeError> {
        match &mut self.state {
            BodyState::Events(splitter) => splitter.push(bytes, each),
            BodyState::Whole(body) => Ok(body.extend(bytes)?),
            BodyState::Undecided(hints) => match hints.detect(bytes) {
                Some(DetectedFraming { framing, from }) => {
                    *self = match framing {
                        Some(framing) => Body::framed(framing, self.limits, &self.memory),
                        None => Body {
                            state: BodyState::Unreadable,
                            ..Body::framed(Framing::Json, self.limits, &self.memory)
                        },
                    };
                    self.push(&bytes[from..], each)
                }
                None => Ok(()),
            },
            BodyState::Unreadable | BodyState::Finished => Ok(()),
        }
    }

    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    pub(super) fn finish(&mut self) -> BodyRemainder {
        match std::mem::replace(&mut self.state, BodyState::Finished) {
            // The body is empty. Without a first element it is not a stream of array elements.
            BodyState::Undecided(hints) if hints.declared == Some(Framing::Json) => {
                self.framing = Framing::Json;
                BodyRemainder::Finished
            }
            BodyState::Events(splitter) => BodyRemainder::Events(splitter),
            BodyState::Whole(body) => BodyRemainder::Whole(body),
            BodyState::Unreadable => BodyRemainder::Unreadable,
            BodyState::Undecided(_) | BodyState::Finished => BodyRemainder::Finished,
        }
    }
}

fn events(splitter: impl Splitter + 'static) -> BodyState {
    BodyState::Events(Box::new(splitter))
}

pub(super) enum BodyRemainder {
    Events(Box<dyn Splitter>),
    Whole(Box<Buffer>),
    Unreadable,
    Finished,
}

/// The framing of a body (`None` if it cannot be read), and the offset at which the body begins.
struct DetectedFraming {
    framing: Option<Framing>,
    from: usize,
}

impl FramingHints {
    /// `None` while there is only white space, which has no meaning in any framing.
    fn detect(self, bytes: &[u8]) -> Option<DetectedFraming> {
        if self.declared == Some(Framing::AwsEventStream) {
            return (!bytes.is_empty()).then_some(DetectedFraming {
                framing: self.declared,
                from: 0,
            });
        }
        let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
        let from = bytes.iter().position(|byte| !blank(byte))?;
        Some(DetectedFraming {
            framing: self.framing(bytes[from]),
            from,
        })
    }

    fn framing(self, first: u8) -> Option<Framing> {
        match (first, self.declared) {
            (b'{', Some(Framing::Ndjson)) => Some(Framing::Ndjson),
            (b'[', _) if self.array_is_stream => Some(Framing::JsonArray),
            (b'{' | b'[', _) => Some(Framing::Json),
            (b'd' | b'e' | b'i' | b'r' | b':', _) | (_, Some(Framing::Sse)) => Some(Framing::Sse),
            (0, None) => Some(Framing::AwsEventStream),
            // The first line need not be an event, but `<` shows that the body is HTML.
            (first, Some(Framing::Ndjson)) if first != b'<' => Some(Framing::Ndjson),
            _ => None,
        }
    }
}

pub(super) fn framing_of(content_type: &str) -> Option<Framing> {
    let media_type = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    match media_type.as_str() {
        "text/event-stream" => Some(Framing::Sse),
        "application/x-ndjson"
        | "application/ndjson"
        | "application/stream+json"
        | "application/jsonl"
        | "application/x-jsonlines" => Some(Framing::Ndjson),
        "application/vnd.amazon.eventstream" => Some(Framing::AwsEventStream),
        json if json.ends_with("/json") || json.ends_with("+json") => Some(Framing::Json),
        _ => None,
    }
}
