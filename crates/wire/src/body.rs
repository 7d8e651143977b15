//! A body behind its encoding: what framing it has, and its bytes on their way there.

use super::event_stream::EventStream;
use super::framing::{Framing, Item, Splitter};
use super::json_array::JsonArray;
use super::ndjson::Ndjson;
use super::sse::Sse;
use super::websocket::WebSocket;
use super::{Broken, Limits, buffer};
use std::sync::Arc;
use tokengauge_core::memory::{Buffer, Memory};

/// The body behind its encoding.
pub(super) struct Body {
    framing: Framing,
    limits: Limits,
    memory: Arc<Memory>,
    splitting: Splitting,
}

enum Splitting {
    /// The first byte that is not white space decides, together with what the head said.
    Undecided(Choice),
    Events(Box<dyn Splitter>),
    Whole(Buffer),
    /// Neither events nor JSON.
    Unread,
    Nothing,
}

#[derive(Clone, Copy)]
struct Choice {
    declared: Option<Framing>,
    /// Whether an array is a stream of its elements.
    array_is_stream: bool,
}

impl Body {
    /// A body whose first bytes decide what it is, together with what the head said.
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
        let splitting = Splitting::Undecided(Choice {
            declared,
            array_is_stream,
        });
        Body {
            framing,
            limits,
            memory: Arc::clone(memory),
            splitting,
        }
    }

    /// An upgraded connection.
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
            splitting: Splitting::Events(splitter),
        }
    }

    /// A body whose framing is known.
    pub(super) fn framed(framing: Framing, limits: Limits, memory: &Arc<Memory>) -> Self {
        let splitting = match framing {
            Framing::Sse => events(Sse::new(&limits, memory)),
            Framing::Ndjson => events(Ndjson::new(&limits, memory)),
            Framing::JsonArray => events(JsonArray::new(&limits, memory)),
            Framing::AwsEventStream => events(EventStream::new(&limits, memory)),
            Framing::WebSocket => events(WebSocket::new(None, &limits, memory)),
            Framing::Json => Splitting::Whole(buffer(memory, limits.body_bytes)),
        };
        Body {
            framing,
            limits,
            memory: Arc::clone(memory),
            splitting,
        }
    }

    /// Takes the next decoded bytes.
    pub(super) fn push(
        &mut self,
        bytes: &[u8],
        each: &mut dyn FnMut(Item<'_>),
    ) -> Result<(), Broken> {
        match &mut self.splitting {
            Splitting::Events(splitter) => splitter.push(bytes, each),
            Splitting::Whole(body) => Ok(body.extend(bytes)?),
            Splitting::Undecided(choice) => match choice.decide(bytes) {
                Some(Decision { framing, from }) => {
                    *self = match framing {
                        Some(framing) => Body::framed(framing, self.limits, &self.memory),
                        None => Body {
                            splitting: Splitting::Unread,
                            ..Body::framed(Framing::Json, self.limits, &self.memory)
                        },
                    };
                    self.push(&bytes[from..], each)
                }
                None => Ok(()),
            },
            Splitting::Unread | Splitting::Nothing => Ok(()),
        }
    }

    /// The framing, as far as it is known.
    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// The bytes are over: gives what is still to be read.
    pub(super) fn finish(&mut self) -> Unfinished {
        match std::mem::replace(&mut self.splitting, Splitting::Nothing) {
            Splitting::Events(splitter) => Unfinished::Events(splitter),
            Splitting::Whole(body) => Unfinished::Whole(body),
            Splitting::Unread => Unfinished::Unread,
            Splitting::Undecided(_) | Splitting::Nothing => Unfinished::Nothing,
        }
    }
}

fn events(splitter: impl Splitter + 'static) -> Splitting {
    Splitting::Events(Box::new(splitter))
}

/// What is left to read when the bytes are over.
pub(super) enum Unfinished {
    Events(Box<dyn Splitter>),
    Whole(Buffer),
    Unread,
    Nothing,
}

/// The framing of a body, `None` where it cannot be read, and where its bytes begin.
struct Decision {
    framing: Option<Framing>,
    from: usize,
}

impl Choice {
    /// `None` while there is only white space, which means nothing in any framing.
    fn decide(self, bytes: &[u8]) -> Option<Decision> {
        if self.declared == Some(Framing::AwsEventStream) {
            return (!bytes.is_empty()).then_some(Decision {
                framing: self.declared,
                from: 0,
            });
        }
        let blank = |byte: &u8| byte.is_ascii_whitespace() || b"\xef\xbb\xbf".contains(byte);
        let from = bytes.iter().position(|byte| !blank(byte))?;
        Some(Decision {
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
            _ => None,
        }
    }
}

/// The framing that a media type stands for.
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
