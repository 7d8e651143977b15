//! Requests usage on behalf of the agent, and removes it from the response.
//!
//! [`rewrite_request`] adds `stream_options.include_usage` to requests that do not set it. OpenAI
//! then ends the stream with an event that has usage but no choices, and adds `"usage":null` to all
//! other events. [`UsageFilter`] removes both. It reads only uncompressed server-sent events.

use super::find::{USAGE, contains};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method};
use memchr::memmem;
use memchr::{memchr, memchr2};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokengauge_core::observer::Filter;

const MAX_HELD: usize = 64 * 1024;

/// The value of a member of a JSON object, which may be `null`. `None` if the member is absent.
#[derive(Clone, Copy, Default)]
struct Member<'a>(Option<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Member<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Member(Some(raw)))
    }
}

/// The members of a request that decide whether usage can be requested.
#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow, default)]
    stream: Member<'a>,
    #[serde(borrow, default)]
    stream_options: Member<'a>,
}

#[derive(Deserialize)]
struct StreamOptions<'a> {
    #[serde(borrow, default)]
    include_usage: Member<'a>,
}

/// Whether [`rewrite_request`] can edit the body of a request with this head.
pub fn may_rewrite(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::POST && is_plain(headers, "application/json")
}

/// Whether a [`UsageFilter`] can read the body of a response with this head.
pub fn can_filter(headers: &HeaderMap) -> bool {
    is_plain(headers, "text/event-stream")
}

/// Whether a body has this media type and no content coding.
fn is_plain(headers: &HeaderMap, media_type: &str) -> bool {
    let sent = headers.get(CONTENT_TYPE);
    let sent = sent.and_then(|value| value.to_str().ok());
    let essence = sent.and_then(|sent| sent.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(media_type))
        && !headers.contains_key(CONTENT_ENCODING)
}

/// The request body with usage requested, otherwise unchanged. `None` if the body does not request
/// a stream, sets `include_usage`, or cannot be read.
pub fn rewrite_request(body: &[u8]) -> Option<Bytes> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let request: Request<'_> = serde_json::from_slice(body).ok()?;
    let stream = request.stream.0.filter(|raw| raw.get() == "true")?.get();
    let Some(options) = request.stream_options.0.map(RawValue::get) else {
        let end = offset(body, stream)? + stream.len();
        return replaced(
            body,
            end,
            end,
            r#","stream_options":{"include_usage":true}"#,
        );
    };
    let start = offset(body, options)?;
    if options == "null" {
        let end = start + options.len();
        return replaced(body, start, end, r#"{"include_usage":true}"#);
    }
    let inside = options.strip_prefix('{')?.trim_ascii_start();
    let parsed: StreamOptions<'_> = serde_json::from_str(options).ok()?;
    match (parsed.include_usage.0, inside) {
        (Some(_), _) => None,
        (None, "}") => replaced(body, start + 1, start + 1, r#""include_usage":true"#),
        (None, _) => replaced(body, start + 1, start + 1, r#""include_usage":true,"#),
    }
}

fn offset(whole: &[u8], part: &str) -> Option<usize> {
    (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)
}

fn replaced(body: &[u8], start: usize, end: usize, with: &str) -> Option<Bytes> {
    let parts = [body.get(..start)?, with.as_bytes(), body.get(end..)?];
    Some(Bytes::from(parts.concat()))
}

/// Removes the usage from a stream that only the proxy requested. The result does not depend on how
/// the bytes are cut into chunks. At most one event is held back.
#[derive(Debug, Default)]
pub struct UsageFilter {
    held: Vec<u8>,
    line_bytes: usize,
    after_cr: bool,
    /// Whether the last complete event was removed, so that the rest of its line end must also be
    /// removed.
    taken_out: bool,
    mode: Mode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Start,
    /// Events are held back until they are complete.
    Hold,
    /// The current event is too long to be held back.
    PassEvent,
    /// The body is not an event stream.
    PassAll,
}

impl Filter for UsageFilter {
    fn push(&mut self, bytes: Bytes) -> Bytes {
        let mut blank = 0;
        if self.mode == Mode::Start {
            // White space that keeps the connection alive is forwarded at once.
            let first = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
            let Some(first) = first else { return bytes };
            let is_json = matches!(bytes[first], b'{' | b'[');
            self.mode = if is_json { Mode::PassAll } else { Mode::Hold };
            blank = first;
        }
        if self.mode == Mode::PassAll {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len());
        out.extend_from_slice(&bytes[..blank]);
        self.lines(&bytes[blank..], &mut out);
        if out == bytes {
            bytes
        } else {
            Bytes::from(out)
        }
    }

    fn finish(&mut self) -> Bytes {
        let mut out = Vec::new();
        self.event(&mut out);
        Bytes::from(out)
    }
}

impl UsageFilter {
    fn lines(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
            rest = &rest[1..];
            if !self.held.is_empty() || self.mode == Mode::PassEvent {
                self.keep(b"\n", out);
            } else if !self.taken_out {
                out.push(b'\n');
            }
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let crlf = rest[end..].starts_with(b"\r\n");
            let behind = end + if crlf { 2 } else { 1 };
            self.after_cr = rest[end] == b'\r' && behind == rest.len() && !crlf;
            let is_blank = self.line_bytes + end == 0;
            self.line_bytes = 0;
            self.keep(&rest[..behind], out);
            if is_blank {
                self.event(out);
            }
            rest = &rest[behind..];
        }
        self.line_bytes += rest.len();
        self.keep(rest, out);
    }

    fn keep(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.mode == Mode::PassEvent {
            out.extend_from_slice(bytes);
        } else {
            self.held.extend_from_slice(bytes);
            if self.held.len() > MAX_HELD {
                self.mode = Mode::PassEvent;
                out.append(&mut self.held);
            }
        }
    }

    fn event(&mut self, out: &mut Vec<u8>) {
        let edit = edit(&self.held);
        self.taken_out = edit == Edit::TakeOut;
        match edit {
            Edit::Leave => out.extend_from_slice(&self.held),
            Edit::Cut(start, end) => {
                out.extend_from_slice(&self.held[..start]);
                out.extend_from_slice(&self.held[end..]);
            }
            Edit::TakeOut => {}
        }
        self.held.clear();
        if self.mode == Mode::PassEvent {
            self.mode = Mode::Hold;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Edit {
    Leave,
    Cut(usize, usize),
    TakeOut,
}

fn edit(event: &[u8]) -> Edit {
    // This cheap check rules out most events of a backend that ignores the option.
    if !contains(event, &USAGE) {
        return Edit::Leave;
    }
    let Some((start, payload)) = only_data(event) else {
        return Edit::Leave;
    };
    let (usage, choices) = match serde_json::from_slice::<Chunk<'_>>(payload) {
        Ok(Chunk {
            usage: Member(Some(usage)),
            choices,
        }) => (usage.get(), choices.0),
        _ => return Edit::Leave,
    };
    if usage == "null" {
        let member = offset(payload, usage).and_then(|at| member(payload, at, at + usage.len()));
        return member.map_or(Edit::Leave, |(from, to)| {
            Edit::Cut(start + from, start + to)
        });
    }
    let inside = choices.and_then(|choices| choices.get().strip_prefix('['));
    match inside.map(str::trim_ascii_start) {
        Some("]") if usage.starts_with('{') => Edit::TakeOut,
        _ => Edit::Leave,
    }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    usage: Member<'a>,
    #[serde(borrow, default)]
    choices: Member<'a>,
}

/// The only `data` of an event, and its offset. `None` if there are several.
fn only_data(event: &[u8]) -> Option<(usize, &[u8])> {
    let mut found = None;
    let mut at = 0;
    while at < event.len() {
        let end = memchr2(b'\n', b'\r', &event[at..]).map_or(event.len(), |end| at + end);
        if event[at..end].starts_with(b"data:") {
            if found.is_some() {
                return None;
            }
            found = Some((at + 5, &event[at + 5..end]));
        }
        at = end + 1;
    }
    found.filter(|(_, payload)| payload.trim_ascii().first() == Some(&b'{'))
}

/// The range of the member with the value at `start..end`, including the comma that separates it
/// from other members.
fn member(payload: &[u8], start: usize, end: usize) -> Option<(usize, usize)> {
    let key = memmem::rfind(&payload[..start], USAGE.needle())?;
    let before = payload[..key].trim_ascii_end();
    match before.last() {
        Some(b',') => Some((before.len() - 1, end)),
        Some(b'{') => {
            let comma = memchr(b',', &payload[end..]);
            let close = memchr(b'}', &payload[end..])?;
            Some((
                key,
                end + comma
                    .filter(|comma| *comma < close)
                    .map_or(0, |comma| comma + 1),
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn a_media_type_is_read_without_its_parameters() {
        let mut headers = HeaderMap::new();
        assert!(!may_rewrite(&Method::POST, &headers));
        let mut typed = |media_type| {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            may_rewrite(&Method::POST, &headers)
        };
        assert!(typed("Application/JSON; charset=utf-8"));
        assert!(!typed("application/jsonl"));
    }
}
