//! HTTP/2 frames written by hand, because libraries refuse to send invalid ones.

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const ACK: u8 = 1;

pub const INTERNAL_ERROR: u32 = 2;
pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

pub fn data(stream: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    frame(DATA, 0, stream, content)
}

pub fn end(stream: u32) -> Vec<u8> {
    frame(DATA, END_STREAM, stream, b"")
}

pub fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, code.to_be_bytes())
}

pub fn go_away(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, payload)
}

pub fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let pair =
        |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let payload: Vec<u8> = pairs.iter().flat_map(pair).collect();
    frame(SETTINGS, 0, 0, payload)
}

/// A header field without indexing or Huffman coding.
pub fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).expect("short");
        assert!(length < 127, "in one byte");
        [&[length][..], text.as_bytes()].concat()
    };
    [&[0][..], &text(name), &text(value)].concat()
}

/// A HEADERS frame with the response head of an event stream.
pub fn response(stream: u32) -> Vec<u8> {
    let block = [&[0x88][..], &field("content-type", "text/event-stream")].concat();
    frame(HEADERS, END_HEADERS, stream, block)
}

/// A `GET /` without a body.
pub fn request(stream: u32, session: &str) -> Vec<u8> {
    let block = block(session);
    frame(HEADERS, END_HEADERS | END_STREAM, stream, block)
}

pub fn block(session: &str) -> Vec<u8> {
    let pseudo = [0x82, 0x86, 0x84, 0x41, 1, b'h'];
    [&pseudo[..], &field("x-tokengauge-session", session)].concat()
}

/// Splits received bytes into frames: type, flags, stream, payload.
pub fn frames(mut raw: &[u8]) -> Vec<(u8, u8, u32, &[u8])> {
    let mut frames = Vec::new();
    while let Some((frame, rest)) = first(raw) {
        frames.push(frame);
        raw = rest;
    }
    frames
}

type Frame<'a> = (u8, u8, u32, &'a [u8]);

fn first(raw: &[u8]) -> Option<(Frame<'_>, &[u8])> {
    let (head, rest) = raw.split_first_chunk::<9>()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let (payload, rest) = rest.split_at_checked(length)?;
    Some(((head[3], head[4], stream, payload), rest))
}
