//! The protocol between backend and client of the benchmark: the prompt of a request, and events with their sending
//! time.

use crate::chunked::{LAST_CHUNK, push_chunk};
use memchr::memmem;
use rustix::time::{ClockId, clock_gettime};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Text before the sending time in every event with text.
const MARK: &[u8] = b"\"obfuscation\":\"";
const DIGITS: usize = 20;
/// Words of the generated text, one or two tokens each.
const WORDS: [&str; 12] = [
    " river", " boats", " carried", " grain", ",", " and", " the", " towns", " along", " it",
    " grew", ".",
];

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// LiteLLM's master key, which all peers get.
pub const KEY: &str = "sk-bench-0123456789abcdef0123456789abcdef";
const PROMPT: &[u8] = b"Tell me of rivers: ";

/// The requested behaviour of the backend, sent in the prompt because every gateway forwards it.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamRequest {
    pub events: u32,
    /// Microseconds between two events; 0 sends them as fast as possible.
    pub interval_us: u64,
    /// Microseconds before the first event, so that streams do not send in step.
    pub phase_us: u64,
    /// The number of events per write. If the number is above 1, a multiple of it is sent without a pace.
    pub per_write: u32,
    /// Bytes per chunk of a paced event; 0 sends it as one chunk.
    pub per_chunk: u32,
    /// Whether the end has no `usage`, so that a peer must count tokens itself.
    pub without_usage: bool,
    /// Whether head, events and end are one write, as for a call of one token.
    pub one_write: bool,
    /// The requested and answering model, `bench-N`; 0 is the one that gateways know.
    pub model: u32,
}

impl StreamRequest {
    /// The request in the form of an SDK's, with the header lines that a peer needs.
    pub fn request(self, headers: &str) -> Vec<u8> {
        self.request_to("", headers, "")
    }

    /// The request with a path prefix, and with a prompt that continues with `more`, which must not need escaping.
    pub fn request_to(self, prefix: &str, headers: &str, more: &str) -> Vec<u8> {
        let body = self.body(more);
        format!(
            "POST {prefix}/v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n\
             authorization: Bearer {KEY}\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    pub fn body(self, more: &str) -> String {
        let StreamRequest {
            events,
            interval_us,
            phase_us,
            per_write,
            per_chunk,
            without_usage,
            one_write,
            model,
        } = self;
        let (without_usage, one_write) = (u32::from(without_usage), u32::from(one_write));
        let name = model_name(model);
        format!(
            "{{\"model\":\"{name}\",\"stream\":true,\"stream_options\":{{\"include_usage\":true}},\"temperature\":0.7,\"max_tokens\":1024,\
             \"messages\":[{{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"}},\
             {{\"role\":\"user\",\"content\":\"Tell me of rivers: \
             {events} events, {interval_us} us apart, after {phase_us} us, {per_write} a write, \
             {per_chunk} bytes a chunk, {without_usage} without usage, {one_write} for one write, model {model}.{more}\"}}]}}"
        )
    }

    pub fn end(&self) -> String {
        if self.without_usage {
            "data: [DONE]\n\n".to_owned()
        } else {
            end(self.events, &answering_model(self.model))
        }
    }

    /// Parses the beginning of a request's body; `None` if it has another format.
    pub fn of_body(body: &[u8]) -> Option<StreamRequest> {
        let start = memmem::find(body, PROMPT)? + PROMPT.len();
        let mut numbers = body[start..]
            .split(|byte| !byte.is_ascii_digit())
            .filter(|digits| !digits.is_empty())
            .filter_map(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
        Some(StreamRequest {
            events: numbers.next()? as u32,
            interval_us: numbers.next()?,
            phase_us: numbers.next()?,
            per_write: numbers.next()? as u32,
            per_chunk: numbers.next()? as u32,
            without_usage: numbers.next()? > 0,
            one_write: numbers.next()? > 0,
            model: numbers.next()? as u32,
        })
    }
}

fn model_name(model: u32) -> String {
    match model {
        0 => "bench".to_owned(),
        number => format!("bench-{number}"),
    }
}

pub fn answering_model(model: u32) -> Cow<'static, str> {
    match model {
        0 => "bench-2026-01-01".into(),
        number => format!("bench-{number}").into(),
    }
}

/// Appends event `index` of a response with the current time as its sending time.
pub fn push_event(index: u32, spec: &StreamRequest, scratch: &mut String, out: &mut Vec<u8>) {
    scratch.clear();
    write_event(index, now(), &answering_model(spec.model), scratch);
    let size = match spec.per_chunk as usize {
        0 => scratch.len(),
        size => size,
    };
    for chunk in scratch.as_bytes().chunks(size) {
        push_chunk(chunk, out);
    }
}

pub fn write_event(index: u32, instant: u64, model: &str, out: &mut String) {
    let word = WORDS[index as usize % WORDS.len()];
    let _ = write!(
        out,
        "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
         \"model\":\"{model}\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0123456789\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{word}\"}},\"logprobs\":null,\"finish_reason\":null}}],\
         \"usage\":null,\"obfuscation\":\"{instant:020}\"}}\n\n"
    );
}

pub fn push_end(spec: &StreamRequest, out: &mut Vec<u8>) {
    push_chunk(spec.end().as_bytes(), out);
    out.extend_from_slice(LAST_CHUNK);
}

/// The end of a stream: finish reason, usage, terminator.
pub fn end(events: u32, model: &str) -> String {
    format!(
        "data: {{\"id\":\"end\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"{model}\",\
         \"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\
         \"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{events},\"total_tokens\":{}}}}}\n\ndata: [DONE]\n\n",
        events + 5
    )
}

/// Calls back with the sending time of every event in `body` and removes these events.
pub fn take_instants(body: &mut Vec<u8>, each: impl FnMut(u64)) {
    let taken = instants(body, each);
    // The rest may end with the beginning of a mark.
    let keep = (body.len() - taken).min(MARK.len() + DIGITS - 1);
    body.drain(..body.len() - keep);
}

/// Calls back with the sending time of every event in `body`. Returns the end of the last one.
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
