use super::encoder::BodyEncoder;
use super::field_names::FieldNames;
use super::head::digits;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, response};
use std::io::Write;

const USUAL_LINE: usize = 40;

/// Usual maximum length of the first piece of a body, which is sent with the head.
const FIRST_PIECE: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct ResponseContext {
    pub method: Method,
    /// HTTP version of the agent.
    pub version: Version,
    pub keep_alive: bool,
    pub trailers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodySize {
    /// The response has no body, or the body has ended.
    None,
    Known(u64),
    Unknown,
}

#[derive(Debug)]
pub(crate) struct WrittenHead {
    pub encoder: BodyEncoder,
    pub last: bool,
}

/// Writes a response head and returns how its body is framed.
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
        // Many parsers expect a reason phrase.
        (None, reason) => text.extend_from_slice(reason.unwrap_or("<none>").as_bytes()),
    }
    text.extend_from_slice(b"\r\n");
}

/// Adds the fields to `connection` that the agent needs (RFC 9112 §9.3, §9.6). Returns whether this is the last
/// response.
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
                    // A second length, or a length that the body cannot match.
                    _ => continue,
                },
                // The encoder of the body declares it.
                TRANSFER_ENCODING => continue,
                TRAILER if !self.may_be_chunked() => continue,
                // One line, because some parsers read only the first.
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

    /// Declares the framing of a body if the fields do not declare it.
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
