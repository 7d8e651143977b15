//! What backend and client of the benchmark say to each other: the request's headers,
//! the events with the instant they were sent at, and chunked bodies.

use memchr::memmem;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;

/// Stands before the sending instant in every event with text.
const MARK: &[u8] = b"\"obfuscation\":\"";
/// Decimal digits of an instant.
const DIGITS: usize = 20;
/// Some text to generate: a token or two each.
const WORDS: [&str; 12] = [
    " river", " boats", " carried", " grain", ",", " and", " the", " towns", " beside", " it",
    " grew", ".",
];

/// Nanoseconds of the clock that all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How the backend shall answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// Events with text.
    pub events: u32,
    /// Between two of them; 0 sends them as fast as they go.
    pub interval_us: u64,
    /// Before the first, so that streams do not beat in time.
    pub phase_us: u64,
    /// Events of one write; a multiple of it is sent, unpaced, where it is above 1.
    pub per_write: u32,
}

impl Ask {
    /// The request for it, as an SDK would send it.
    pub fn request(self) -> Vec<u8> {
        let body = r#"{"model":"bench","stream":true,"messages":[{"role":"user","content":"Tell me of rivers."}]}"#;
        let Ask {
            events,
            interval_us,
            phase_us,
            per_write,
        } = self;
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             x-events: {events}\r\nx-interval: {interval_us}\r\nx-phase: {phase_us}\r\nx-per-write: {per_write}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Takes over what a header line of the request says.
    pub fn header(&mut self, name: &str, value: &str) {
        let number = || value.parse().unwrap_or(0);
        match name {
            "x-events" => self.events = number() as u32,
            "x-interval" => self.interval_us = number(),
            "x-phase" => self.phase_us = number(),
            "x-per-write" => self.per_write = number() as u32,
            _ => {}
        }
    }
}

/// Appends an event with text, stamped with the present, as one chunk of a chunked body.
pub fn push_event(index: u32, scratch: &mut String, out: &mut Vec<u8>) {
    scratch.clear();
    let word = WORDS[index as usize % WORDS.len()];
    let _ = write!(
        scratch,
        "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
         \"model\":\"bench-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
         \"usage\":null,\"obfuscation\":\"{:020}\"}}\n\n",
        now()
    );
    push_chunk(scratch, out);
}

/// Appends what ends a stream: the finish, the usage, the terminator, the last chunk.
pub fn push_end(events: u32, out: &mut Vec<u8>) {
    push_chunk(
        &format!(
            "data: {{\"id\":\"end\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"bench-2026-01-01\",\
             \"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\
             \"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{events},\"total_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
            events + 5
        ),
        out,
    );
    out.extend_from_slice(b"0\r\n\r\n");
}

fn push_chunk(payload: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n", payload.len()).as_bytes());
    out.extend_from_slice(payload.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Takes the chunked coding off a body that comes in pieces of any size.
#[derive(Debug, Default)]
pub enum Dechunk {
    /// In the line before a chunk, with its size so far.
    #[default]
    Start,
    /// In the line before a chunk, with its size so far.
    Size(usize),
    /// In a chunk, with what is missing of it and of the line end after it.
    Data(usize),
    /// After the last chunk, with the bytes of the final line end seen.
    Last(usize),
    /// The body is over.
    Over,
}

impl Dechunk {
    /// Appends the payload of `input` to `out`; tells whether the body is over.
    pub fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> bool {
        while !input.is_empty() {
            let taken = match *self {
                Dechunk::Data(missing) => {
                    let taken = missing.min(input.len());
                    // The last two bytes of what is missing are the line end.
                    let payload = missing.saturating_sub(2).min(taken);
                    out.extend_from_slice(&input[..payload]);
                    *self = if taken == missing {
                        Dechunk::Start
                    } else {
                        Dechunk::Data(missing - taken)
                    };
                    taken
                }
                Dechunk::Over => return true,
                _ => {
                    self.line_byte(input[0]);
                    1
                }
            };
            input = &input[taken..];
        }
        matches!(self, Dechunk::Over)
    }

    fn line_byte(&mut self, byte: u8) {
        let digit = (byte as char).to_digit(16).map(|digit| digit as usize);
        *self = match (&*self, byte, digit) {
            (Dechunk::Start, _, Some(digit)) => Dechunk::Size(digit),
            (Dechunk::Size(size), _, Some(digit)) => Dechunk::Size(size * 16 + digit),
            (Dechunk::Size(0), b'\n', _) => Dechunk::Last(0),
            (Dechunk::Size(size), b'\n', _) => Dechunk::Data(size + 2),
            (Dechunk::Size(size), ..) => Dechunk::Size(*size),
            (Dechunk::Last(1), ..) => Dechunk::Over,
            (Dechunk::Last(_), ..) => Dechunk::Last(1),
            _ => Dechunk::Start,
        };
    }
}

/// Calls back with the sending instant of every event in `body` and takes them out of it.
pub fn take_instants(body: &mut Vec<u8>, mut each: impl FnMut(u64)) {
    let mut from = 0;
    while let Some(found) = memmem::find(&body[from..], MARK) {
        let start = from + found + MARK.len();
        let Some(digits) = body.get(start..start + DIGITS) else {
            break;
        };
        each(digits.iter().fold(0, |sum, digit| {
            sum * 10 + u64::from(digit.wrapping_sub(b'0'))
        }));
        from = start + DIGITS;
    }
    // What is left may end with the beginning of a mark.
    let keep = (body.len() - from).min(MARK.len() + DIGITS - 1);
    body.drain(..body.len() - keep);
}
