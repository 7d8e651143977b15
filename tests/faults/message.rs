//! Parses an HTTP/1 message as its receiver got it, complete or not.

use super::script::Disconnect;

/// The received part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedMessage {
    pub interim: usize,
    /// The second word of the first line: a status or a target. `None` if the head is incomplete.
    pub what: Option<String>,
    /// The body without framing.
    pub body: Vec<u8>,
    pub trailers: String,
    pub end: MessageEnd,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageEnd {
    /// The body is complete by its framing.
    Whole,
    /// The connection closed before the end.
    Short,
    Reset,
    Malformed,
}

impl MessageEnd {
    fn broken(gone: Option<Disconnect>) -> MessageEnd {
        match gone {
            Some(Disconnect::Reset) => MessageEnd::Reset,
            _ => MessageEnd::Short,
        }
    }
}

pub fn response(raw: &[u8], gone: Option<Disconnect>) -> ObservedMessage {
    read(raw, gone, true)
}

pub fn request(raw: &[u8], gone: Option<Disconnect>) -> ObservedMessage {
    read(raw, gone, false)
}

fn read(mut raw: &[u8], gone: Option<Disconnect>, until_close: bool) -> ObservedMessage {
    let mut seen = ObservedMessage {
        interim: 0,
        what: None,
        body: Vec::new(),
        trailers: String::new(),
        end: MessageEnd::broken(gone),
        error: None,
    };
    let head = loop {
        let Some((head, rest)) = head(raw) else {
            return seen;
        };
        raw = rest;
        match head.split_whitespace().nth(1) {
            Some(status) if until_close && status.starts_with('1') => seen.interim += 1,
            what => {
                seen.what = what.map(str::to_owned);
                break head;
            }
        }
    };
    seen.error = field(&head, "x-tokengauge-error");
    if field(&head, "transfer-encoding").is_some() {
        chunked(raw, gone, &mut seen);
    } else if let Some(length) = field(&head, "content-length") {
        let length = length.parse().expect("a length");
        seen.body = raw[..raw.len().min(length)].to_vec();
        if raw.len() >= length {
            seen.end = MessageEnd::Whole;
        }
    } else {
        seen.body = raw.to_vec();
        if gone == Some(Disconnect::Closed) || !until_close {
            seen.end = MessageEnd::Whole;
        }
    }
    seen
}

pub fn is_whole(raw: &[u8]) -> bool {
    request(raw, None).end != MessageEnd::Short
}

fn head(raw: &[u8]) -> Option<(String, &[u8])> {
    let end = memchr::memmem::find(raw, b"\r\n\r\n")? + 4;
    Some((
        String::from_utf8_lossy(&raw[..end]).into_owned(),
        &raw[end..],
    ))
}

fn field(head: &str, name: &str) -> Option<String> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let field = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
    field.map(|(_, value)| value.trim().to_owned())
}

fn chunked(mut raw: &[u8], gone: Option<Disconnect>, seen: &mut ObservedMessage) {
    let broken = MessageEnd::broken(gone);
    loop {
        let Some(end) = memchr::memmem::find(raw, b"\r\n") else {
            let digits = raw.iter().take_while(|byte| byte.is_ascii_hexdigit());
            let bad = !raw.is_empty() && digits.count() == 0;
            seen.end = if bad { MessageEnd::Malformed } else { broken };
            return;
        };
        let line = String::from_utf8_lossy(&raw[..end]);
        let size = line.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else {
            seen.end = MessageEnd::Malformed;
            return;
        };
        raw = &raw[end + 2..];
        if size == 0 {
            if let Some(end) = memchr::memmem::find(&[b"\r\n", raw].concat(), b"\r\n\r\n") {
                seen.trailers = String::from_utf8_lossy(&raw[..end]).into_owned();
                seen.end = MessageEnd::Whole;
            }
            return;
        }
        let here = size.min(raw.len());
        seen.body.extend_from_slice(&raw[..here]);
        raw = &raw[here..];
        if raw.len() >= 2 && !raw.starts_with(b"\r\n") {
            seen.end = MessageEnd::Malformed;
            return;
        }
        if raw.len() < 2 {
            seen.end = broken;
            return;
        }
        raw = &raw[2..];
    }
}
