//! From the bytes of a response body to events: encoding, framing, dialect.

use super::encoding::Encoding;
use super::event_stream::EventStream;
use super::json_array::JsonArray;
use super::ndjson::Ndjson;
use super::repeat::{Repeat, Seen};
use super::sse::Sse;
use super::websocket::WebSocket;
use super::{Broken, Limits, Reader, Sink, json, reader, repair::repair, sniff};
use crate::call::{Dialect, Event};
use serde_json::value::RawValue;

/// Events that may correct the dialect, counted from the first.
const EVENTS_SNIFFED: u64 = 4;

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

/// What a framing finds.
pub(super) enum Item<'a> {
    /// A comment.
    Comment,
    /// A wire event: its name where the framing has one, and its payload.
    Event { name: &'a str, payload: &'a [u8] },
    /// An error beside the wire events: llama-box's SSE line `error: {…}`.
    Error { payload: &'a [u8] },
    /// A wire event that is an error by its framing, with its type.
    Exception(&'a str),
    /// A wire event that is damaged.
    Unparsed,
}

/// Cuts wire events out of bytes.
pub(super) trait Splitter: Send {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), Broken>;

    /// The bytes are over: gives what only their end completes.
    fn finish(&mut self, each: &mut dyn FnMut(Item<'_>));
}

/// Reads one response body.
pub struct Decoder {
    encoding: Encoding,
    body: Body,
    events: Events,
    broken: Option<Broken>,
}

impl Decoder {
    /// A decoder for the body behind `head`.
    pub fn new(dialect: Dialect, head: &ResponseHead<'_>, limits: Limits) -> Self {
        let declared = head.content_type.and_then(framing_of);
        let body = Body::undecided(declared, dialect, limits);
        Decoder::build(dialect, body, head.content_encoding, &limits)
    }

    /// A decoder for a body whose framing is known. For [`Framing::WebSocket`],
    /// `encoding` is the `sec-websocket-extensions` that were agreed on.
    pub fn with_framing(
        dialect: Dialect,
        framing: Framing,
        encoding: Option<&str>,
        limits: Limits,
    ) -> Self {
        match framing {
            Framing::WebSocket => {
                let splitter = Box::new(WebSocket::new(encoding, &limits));
                let body = Body {
                    framing,
                    limits,
                    splitting: Splitting::Events(splitter),
                };
                Decoder::build(dialect, body, None, &limits)
            }
            _ => Decoder::build(dialect, Body::framed(framing, limits), encoding, &limits),
        }
    }

    fn build(dialect: Dialect, body: Body, encoding: Option<&str>, limits: &Limits) -> Self {
        let (encoding, broken) = match Encoding::new(encoding, limits) {
            Ok(encoding) => (encoding, None),
            Err(broken) => (Encoding::default(), Some(broken)),
        };
        Decoder {
            encoding,
            body,
            events: Events::new(dialect),
            broken,
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// [`Broken`] once the rest of the body cannot be read, and ever after.
    pub fn push(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), Broken> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        let (body, events) = (&mut self.body, &mut self.events);
        let result = if self.encoding.is_identity() {
            body.push(bytes, &mut |item| events.take(item, sink))
        } else {
            self.encoding.push(bytes, &mut |decoded| {
                body.push(decoded, &mut |item| events.take(item, sink))
            })
        };
        self.broken = result.err();
        result
    }

    /// The body is over.
    ///
    /// # Errors
    /// As for [`Decoder::push`].
    pub fn finish(&mut self, sink: Sink<'_>) -> Result<(), Broken> {
        let events = &mut self.events;
        match std::mem::replace(&mut self.body.splitting, Splitting::Nothing) {
            Splitting::Events(mut splitter) => {
                if self.broken.is_none() {
                    splitter.finish(&mut |item| events.take(item, sink));
                }
                events.reader.finish(sink);
            }
            Splitting::Whole(body) if self.broken.is_none() => events.body(&body, sink),
            Splitting::Unread => events.take(Item::Unparsed, sink),
            Splitting::Whole(_) | Splitting::Undecided(_) | Splitting::Nothing => {}
        }
        self.broken.map_or(Ok(()), Err)
    }

    /// The dialect, as the wire confirmed or corrected it.
    pub fn dialect(&self) -> Dialect {
        self.events.dialect
    }

    /// Whether events are given as they arrive. `false`: the whole body is read by
    /// [`Decoder::finish`]. The body's first bytes may correct what its head said.
    pub fn is_stream(&self) -> bool {
        self.body.framing != Framing::Json
    }

    /// Wire events so far.
    pub fn messages(&self) -> u64 {
        self.events.messages
    }

    /// SSE comments so far.
    pub fn comments(&self) -> u64 {
        self.events.comments
    }
}

/// The body behind its encoding.
struct Body {
    framing: Framing,
    limits: Limits,
    splitting: Splitting,
}

enum Splitting {
    /// The first byte that is not white space decides, together with what the head said.
    Undecided(Choice),
    Events(Box<dyn Splitter>),
    Whole(Vec<u8>),
    /// Neither events nor JSON.
    Unread,
    Nothing,
}

#[derive(Clone, Copy)]
struct Choice {
    declared: Option<Framing>,
    dialect: Dialect,
}

impl Body {
    fn undecided(declared: Option<Framing>, dialect: Dialect, limits: Limits) -> Self {
        let framing = match (declared, dialect) {
            (Some(Framing::Json), Dialect::Gemini) => Framing::JsonArray,
            (Some(declared), _) => declared,
            (None, _) => Framing::Json,
        };
        let splitting = Splitting::Undecided(Choice { declared, dialect });
        Body {
            framing,
            limits,
            splitting,
        }
    }

    fn framed(framing: Framing, limits: Limits) -> Self {
        let splitter: Box<dyn Splitter> = match framing {
            Framing::Sse => Box::new(Sse::new(&limits)),
            Framing::Ndjson => Box::new(Ndjson::new(&limits)),
            Framing::JsonArray => Box::new(JsonArray::new(&limits)),
            Framing::AwsEventStream => Box::new(EventStream::new(&limits)),
            Framing::WebSocket => Box::new(WebSocket::new(None, &limits)),
            Framing::Json => {
                let splitting = Splitting::Whole(Vec::new());
                return Body {
                    framing,
                    limits,
                    splitting,
                };
            }
        };
        Body {
            framing,
            limits,
            splitting: Splitting::Events(splitter),
        }
    }

    fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), Broken> {
        match &mut self.splitting {
            Splitting::Events(splitter) => splitter.push(bytes, each),
            Splitting::Whole(body) if body.len() + bytes.len() > self.limits.body_bytes => {
                Err(Broken::TooLarge)
            }
            Splitting::Whole(body) => {
                body.extend_from_slice(bytes);
                Ok(())
            }
            Splitting::Undecided(choice) => match choice.decide(bytes) {
                Some(Decision { framing, from }) => {
                    *self = match framing {
                        Some(framing) => Body::framed(framing, self.limits),
                        None => Body {
                            splitting: Splitting::Unread,
                            ..Body::framed(Framing::Json, self.limits)
                        },
                    };
                    self.push(&bytes[from..], each)
                }
                None => Ok(()),
            },
            Splitting::Unread | Splitting::Nothing => Ok(()),
        }
    }
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
            (b'[', _) if self.dialect == Dialect::Gemini => Some(Framing::JsonArray),
            (b'{' | b'[', _) => Some(Framing::Json),
            (b'd' | b'e' | b'i' | b'r' | b':', _) | (_, Some(Framing::Sse)) => Some(Framing::Sse),
            (0, None) => Some(Framing::AwsEventStream),
            _ => None,
        }
    }
}

/// The framing that a media type stands for.
fn framing_of(content_type: &str) -> Option<Framing> {
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

/// The dialect's side: what wire events mean.
struct Events {
    dialect: Dialect,
    reader: Box<dyn Reader>,
    messages: u64,
    comments: u64,
    sniffed: u64,
    repeat: Repeat,
}

impl Events {
    fn new(dialect: Dialect) -> Self {
        Events {
            dialect,
            reader: reader(dialect),
            messages: 0,
            comments: 0,
            sniffed: 0,
            repeat: Repeat::new(dialect),
        }
    }

    fn take(&mut self, item: Item<'_>, sink: Sink<'_>) {
        match item {
            Item::Comment => self.comments += 1,
            Item::Event { name, payload } => {
                self.message(sink);
                self.event(name, payload, sink);
            }
            Item::Error { payload } => sink(Event::Error(&error_line(payload))),
            Item::Exception(word) => {
                self.message(sink);
                sink(Event::Error(if json::is_word(word) {
                    word
                } else {
                    "exception"
                }));
            }
            Item::Unparsed => {
                self.message(sink);
                sink(Event::Unparsed);
            }
        }
    }

    fn message(&mut self, sink: Sink<'_>) {
        self.messages += 1;
        sink(Event::Message);
    }

    fn event(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) {
        if payload.first() == Some(&b'[') && payload.trim_ascii() == b"[DONE]" {
            return sink(Event::End);
        }
        if let Some((segment, text)) = self.repeat.read(name, payload) {
            return sink(Event::Delta {
                segment,
                text: &text,
            });
        }
        self.confirm(name, payload);
        let result = if self.repeat.wants_to_learn() {
            let mut seen = Seen::default();
            let result = self.reader.event(name, payload, &mut |event| {
                seen.note(&event, payload);
                sink(event);
            });
            self.repeat.learn(name, payload, &seen);
            result
        } else {
            self.reader.event(name, payload, sink)
        };
        if result.is_err() {
            self.again(name, payload, sink);
        }
    }

    /// Reads an event that could not be read, once it has been repaired.
    fn again(&mut self, name: &str, payload: &[u8], sink: Sink<'_>) {
        let repaired = repair(payload);
        if repaired.is_none_or(|payload| self.reader.event(name, &payload, sink).is_err()) {
            sink(Event::Unparsed);
        }
    }

    fn body(&mut self, body: &[u8], sink: Sink<'_>) {
        let payload = body.trim_ascii();
        self.confirm("", payload);
        let repaired = repair(payload);
        let payload = repaired.as_deref().unwrap_or(payload);
        if serde_json::from_slice::<&RawValue>(payload).is_err() && payload.contains(&b'\n') {
            return self.lines(payload, sink);
        }
        self.message(sink);
        if self.reader.body(payload, sink).is_err() {
            sink(Event::Unparsed);
        }
    }

    /// A body that was not declared as lines, but is.
    fn lines(&mut self, body: &[u8], sink: Sink<'_>) {
        for line in body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
            if !line.is_empty() {
                self.take(
                    Item::Event {
                        name: "",
                        payload: line,
                    },
                    sink,
                );
            }
        }
        self.reader.finish(sink);
    }

    /// Lets the first events overrule what the path said.
    fn confirm(&mut self, name: &str, payload: &[u8]) {
        if self.sniffed >= EVENTS_SNIFFED {
            return;
        }
        self.sniffed += 1;
        let Some(seen) = sniff::sniff(name, payload) else {
            return;
        };
        self.sniffed = EVENTS_SNIFFED;
        if sniff::overrules(seen, self.dialect) {
            self.dialect = seen;
            self.reader = reader(seen);
            self.repeat = Repeat::new(seen);
        }
    }
}

fn error_line(payload: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let line: Option<Line<'_>> = serde_json::from_slice(payload).ok();
    let error = line.and_then(|line| line.error);
    error.map_or_else(
        || "error".into(),
        |error| json::error_kind(error).into_owned(),
    )
}
