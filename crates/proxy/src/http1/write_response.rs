//! Response heads for HTTP/1 agents.

use super::encoder::BodyEncoder;
use super::field_names::FieldNames;
use super::head::digits;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, response};
use std::io::Write;

/// A field line is this long or shorter, mostly.
const USUAL_LINE: usize = 40;

/// The first piece of a body, which leaves with the head, is this long or shorter, mostly.
const FIRST_PIECE: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseContext {
    /// That of the request.
    pub method: Method,
    /// What the agent speaks.
    pub version: Version,
    /// The connection may serve another request.
    pub keep_alive: bool,
    /// The agent takes trailers.
    pub trailers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// There is none, or it is over.
    None,
    /// So many bytes.
    Known(u64),
    /// It ends somewhere.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct WrittenHead {
    pub encoder: BodyEncoder,
    /// The connection ends after this response.
    pub last: bool,
}

/// Writes a response head, and says how its body is framed.
pub(crate) fn write_response(
    head: &mut response::Parts,
    names: &FieldNames,
    reason: Option<&Bytes>,
    body: BodySize,
    context: &ResponseContext,
    text: &mut Vec<u8>,
) -> WrittenHead {
    text.reserve(64 + head.headers.len() * USUAL_LINE + FIRST_PIECE);
    write_status(head.status, reason, context.version, text);
    let framing = Framing {
        status: head.status,
        context,
    };
    let keep_alive = context.keep_alive && !framing.is_until_close(body, &head.headers);
    let last = update_connection_field(head, context.version, keep_alive);
    let announced = framing.write_fields(&head.headers, names, text);
    let encoder = match announced {
        Some(length) => BodyEncoder::Length(length),
        None => framing.write_framing(body, &head.headers, names, text),
    };
    text.extend_from_slice(b"\r\n");
    let encoder = if framing.may_have_body() {
        encoder
    } else {
        BodyEncoder::Length(0)
    };
    WrittenHead {
        last: last || encoder.is_until_close(),
        encoder,
    }
}

fn write_status(status: StatusCode, reason: Option<&Bytes>, version: Version, text: &mut Vec<u8>) {
    let line = match version {
        Version::HTTP_10 => b"HTTP/1.0 ",
        _ => b"HTTP/1.1 ",
    };
    text.extend_from_slice(line);
    text.extend_from_slice(status.as_str().as_bytes());
    text.push(b' ');
    match (reason, status.canonical_reason()) {
        (Some(reason), _) => text.extend_from_slice(reason),
        // Many readers expect one.
        (None, reason) => text.extend_from_slice(reason.unwrap_or("<none>").as_bytes()),
    }
    text.extend_from_slice(b"\r\n");
}

/// Adds to `connection` what the agent has to know (RFC 9112 §9.3, §9.6). Tells whether this is
/// the last response.
fn update_connection_field(head: &mut response::Parts, version: Version, keep_alive: bool) -> bool {
    let closes = crate::headers::has_token(&head.headers, &CONNECTION, "close");
    let says = match (version, keep_alive) {
        (Version::HTTP_10, true) => Some("keep-alive"),
        (Version::HTTP_10, false) => None,
        (_, true) => None,
        (_, false) => (!closes).then_some("close"),
    };
    if let Some(says) = says {
        head.headers
            .append(CONNECTION, HeaderValue::from_static(says));
    }
    !keep_alive || closes || head.status == StatusCode::SWITCHING_PROTOCOLS
}

struct Framing<'a> {
    status: StatusCode,
    context: &'a ResponseContext,
}

impl Framing<'_> {
    /// Writes the fields. Gives the length that they announce.
    fn write_fields(
        &self,
        headers: &HeaderMap,
        names: &FieldNames,
        text: &mut Vec<u8>,
    ) -> Option<u64> {
        let (mut last, mut nth, mut announced) = (None, 0, None);
        for (name, value) in headers {
            nth = if last == Some(name) { nth + 1 } else { 0 };
            last = Some(name);
            let value = value.as_bytes();
            match *name {
                CONTENT_LENGTH => match digits(value) {
                    Some(length) if announced.is_none() => announced = Some(length),
                    // A second one, or none that could be kept to.
                    _ => continue,
                },
                // Who writes the body says how.
                TRANSFER_ENCODING => continue,
                TRAILER if !self.may_be_chunked() => continue,
                // One line: some readers look at the first alone.
                TRAILER | CONNECTION if nth > 0 => {
                    text.truncate(text.len() - 2);
                    text.extend_from_slice(b", ");
                    text.extend_from_slice(value);
                    text.extend_from_slice(b"\r\n");
                    continue;
                }
                _ => {}
            }
            write_line(names.original(name, nth), value, text);
        }
        announced
    }

    /// Says how a body is framed of which the fields do not.
    fn write_framing(
        &self,
        body: BodySize,
        headers: &HeaderMap,
        names: &FieldNames,
        text: &mut Vec<u8>,
    ) -> BodyEncoder {
        let mut line = |name: &HeaderName, value: &str| {
            write_line(names.original(name, 0), value.as_bytes(), text);
        };
        match body {
            BodySize::Unknown if !self.may_be_chunked() => BodyEncoder::UntilClose,
            BodySize::Unknown => {
                line(&TRANSFER_ENCODING, "chunked");
                BodyEncoder::chunked(headers)
            }
            BodySize::None | BodySize::Known(0) => {
                if self.may_have_length() && self.context.method != Method::HEAD {
                    line(&CONTENT_LENGTH, "0");
                }
                BodyEncoder::Length(0)
            }
            BodySize::Known(_) if !self.may_have_length() => BodyEncoder::Length(0),
            BodySize::Known(length) => {
                text.extend_from_slice(names.original(&CONTENT_LENGTH, 0));
                // Writing to a vector does not fail.
                let _ = write!(text, ": {length}\r\n");
                BodyEncoder::Length(length)
            }
        }
    }

    /// Whether nothing but the close of the connection ends the body.
    fn is_until_close(&self, body: BodySize, headers: &HeaderMap) -> bool {
        let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
        matches!(body, BodySize::Unknown)
            && self.may_have_body()
            && !self.may_be_chunked()
            && lengths.all(|length| digits(length.as_bytes()).is_none())
    }

    fn may_be_chunked(&self) -> bool {
        self.context.version == Version::HTTP_11 && self.may_have_body()
    }

    fn may_have_body(&self) -> bool {
        self.context.method != Method::HEAD && self.may_have_length()
    }

    fn may_have_length(&self) -> bool {
        let none = matches!(
            self.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        !none && !self.status.is_informational()
    }
}

fn write_line(name: &[u8], value: &[u8], text: &mut Vec<u8>) {
    text.extend_from_slice(name);
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}
