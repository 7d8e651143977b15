//! The protocol between backend and client of the benchmark: the request in the prompt, the
//! events with the instant they were sent at, and chunked bodies.

use anyhow::bail;
use memchr::memmem;
use rustix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;

/// Comes before the sending instant in every event with text.
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

/// The master key that LiteLLM requires; all peers get it.
pub const KEY: &str = "sk-bench-0123456789abcdef0123456789abcdef";
/// Comes before the parameters of a [`StreamRequest`] in the prompt.
const PROMPT: &[u8] = b"Tell me of rivers: ";

/// How the backend shall answer. It is part of the prompt, which every gateway forwards.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamRequest {
    /// Events with text.
    pub events: u32,
    /// Microseconds between two of them; 0 sends them without pauses.
    pub interval_us: u64,
    /// Microseconds before the first, so that streams do not send at the same moments.
    pub phase_us: u64,
    /// Events of one write; where it is above 1, a multiple of it is sent without pauses.
    pub per_write: u32,
    /// Bytes of one chunk of a paced event; 0 sends the event as one chunk.
    pub per_chunk: u32,
    /// Whether the end has no usage, so that the proxy must count.
    pub without_usage: bool,
}

impl StreamRequest {
    /// The HTTP request, as an SDK would send it, with the header lines that a peer needs.
    pub fn request(self, headers: &str) -> Vec<u8> {
        self.request_to("", headers, "")
    }

    /// The same with a prefix of the path, and with `more` appended to the prompt, which must
    /// not need escaping.
    pub fn request_to(self, prefix: &str, headers: &str, more: &str) -> Vec<u8> {
        let StreamRequest {
            events,
            interval_us,
            phase_us,
            per_write,
            per_chunk,
            without_usage,
        } = self;
        let without_usage = u32::from(without_usage);
        let body = format!(
            "{{\"model\":\"bench\",\"stream\":true,\"messages\":[{{\"role\":\"user\",\"content\":\"Tell me of rivers: \
             {events} events, {interval_us} us apart, after {phase_us} us, {per_write} a write, \
             {per_chunk} bytes a chunk, {without_usage} for no usage.{more}\"}}]}}"
        );
        format!(
            "POST {prefix}/v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             authorization: Bearer {KEY}\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    /// Parses the beginning of a request's body; `None` where it has no such prompt.
    pub fn of_body(body: &[u8]) -> Option<StreamRequest> {
        let start = memmem::find(body, PROMPT)? + PROMPT.len();
        let numbers = body[start..].split(|byte| !byte.is_ascii_digit());
        let mut numbers = numbers
            .filter(|digits| !digits.is_empty())
            .filter_map(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        Some(StreamRequest {
            events: numbers.next()? as u32,
            interval_us: numbers.next()?,
            phase_us: numbers.next()?,
            per_write: numbers.next()? as u32,
            per_chunk: numbers.next()? as u32,
            without_usage: numbers.next()? > 0,
        })
    }
}

/// Appends an event with text and the present instant, in chunks of `per_chunk` bytes.
pub fn push_event(index: u32, per_chunk: u32, scratch: &mut String, out: &mut Vec<u8>) {
    scratch.clear();
    write_event(index, now(), scratch);
    let size = match per_chunk as usize {
        0 => scratch.len(),
        size => size,
    };
    for chunk in scratch.as_bytes().chunks(size) {
        push_chunk(chunk, out);
    }
}

/// Writes the event `index` as the backend sends it at `instant`.
pub fn write_event(index: u32, instant: u64, out: &mut String) {
    let word = WORDS[index as usize % WORDS.len()];
    let _ = write!(
        out,
        "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
         \"model\":\"bench-2026-01-01\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
         \"usage\":null,\"obfuscation\":\"{instant:020}\"}}\n\n"
    );
}

/// Appends the events that end a stream, and the last chunk.
pub fn push_end(request: StreamRequest, out: &mut Vec<u8>) {
    let end = match request.without_usage {
        true => "data: [DONE]\n\n".to_owned(),
        false => end(request.events),
    };
    push_chunk(end.as_bytes(), out);
    out.extend_from_slice(b"0\r\n\r\n");
}

/// The events that end a stream: the finish reason, the usage, the terminator.
pub fn end(events: u32) -> String {
    format!(
        "data: {{\"id\":\"end\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"bench-2026-01-01\",\
         \"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{events},\"total_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
        events + 5
    )
}

fn push_chunk(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{:x}\r\n", payload.len()).as_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// Decodes a chunked body that comes in pieces of any size.
#[derive(Debug, Default)]
pub enum Dechunk {
    /// Before the first digit of a chunk's size.
    #[default]
    Start,
    /// In the line of a chunk's size, with the size so far.
    Size(usize),
    /// In a chunk, with the bytes that are missing of it and of the line end after it.
    Data(usize),
    /// After the last chunk, with the bytes of the final line end seen.
    Last(usize),
    /// The body is over.
    Over,
}

impl Dechunk {
    /// Appends the payload of `input` to `out`; returns whether the body has ended.
    ///
    /// # Errors
    /// Where a chunk has no size: the framing is broken.
    pub fn feed(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> anyhow::Result<bool> {
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
                Dechunk::Over => return Ok(true),
                _ => {
                    self.line_byte(input[0])?;
                    1
                }
            };
            input = &input[taken..];
        }
        Ok(matches!(self, Dechunk::Over))
    }

    fn line_byte(&mut self, byte: u8) -> anyhow::Result<()> {
        let digit = (byte as char).to_digit(16).map(|digit| digit as usize);
        *self = match (&*self, byte, digit) {
            (Dechunk::Start, _, Some(digit)) => Dechunk::Size(digit),
            (Dechunk::Size(size), _, Some(digit)) if *size < 1 << 32 => {
                Dechunk::Size(size * 16 + digit)
            }
            (Dechunk::Size(size), b'\r', _) => Dechunk::Size(*size),
            (Dechunk::Size(0), b'\n', _) => Dechunk::Last(0),
            (Dechunk::Size(size), b'\n', _) => Dechunk::Data(size + 2),
            (Dechunk::Last(0), b'\r', _) => Dechunk::Last(1),
            (Dechunk::Last(1), b'\n', _) => Dechunk::Over,
            _ => bail!("broken framing: byte {byte:#04x} in {self:?}"),
        };
        Ok(())
    }
}

/// Calls `each` with the sending instant of every event in `body`, and drains those events.
pub fn take_instants(body: &mut Vec<u8>, each: impl FnMut(u64)) {
    let taken = instants(body, each);
    // The rest may end with the beginning of a mark.
    let keep = (body.len() - taken).min(MARK.len() + DIGITS - 1);
    body.drain(..body.len() - keep);
}

/// Calls `each` with the sending instant of every event in `body`; returns where the last ends.
pub fn instants(body: &[u8], mut each: impl FnMut(u64)) -> usize {
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
    from
}
