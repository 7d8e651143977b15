//! Cost of measuring after the tap: nanoseconds per wire event through the whole observer of a call (decode, count,
//! timeline, live figures, Prometheus). Each event is a separate chunk with one token, as read from a socket.
//!
//! Run all rows with `cargo bench --bench tap`, or add a part of a row's name to run only matching rows.

use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_config::Measure;
use tokengauge_core::observer::{CallStart, Chunk, End, ObservedCall, Observer, Side};
use tokengauge_meter::{Meter, RecentCalls, Subscriber};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_test_support::wire::event_stream;

/// The allocator of the released binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EVENTS: usize = 4_000;
const ROUNDS: usize = 15;
const TIMEOUT: Duration = Duration::from_secs(30);
const WORDS: [&str; 12] = [
    " the", " model", " streams", ",", " token", " by", " token", ".", " 42", " naïve", " proxies",
    " gauge",
];

struct Case {
    name: &'static str,
    path: &'static str,
    content_type: &'static str,
    events: Vec<Bytes>,
}

fn case(
    name: &'static str,
    path: &'static str,
    content_type: &'static str,
    event: impl Fn(usize, &str) -> Vec<u8>,
) -> Case {
    let events = (0..EVENTS).map(|at| event(at, WORDS[at * 7 % WORDS.len()]).into());
    Case {
        name,
        path,
        content_type,
        events: events.collect(),
    }
}

const SSE: &str = "text/event-stream";
const AWS: &str = "application/vnd.amazon.eventstream";

fn sse(payload: &str) -> Vec<u8> {
    format!("data: {payload}\n\n").into_bytes()
}

fn anthropic(word: &str) -> String {
    format!(
        r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{word}"}}}}"#
    )
}

fn websocket(payload: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 126];
    frame.extend((payload.len() as u16).to_be_bytes());
    frame.extend(payload.as_bytes());
    frame
}

fn openai() -> Vec<Case> {
    let chat = |field: &str, word: &str| {
        sse(&format!(
            r#"{{"id":"chatcmpl-BQ2fT9Z1mJm0Yq2cXW4hD7rK5LpVe","object":"chat.completion.chunk","created":1747000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_0392822090","choices":[{{"index":0,"delta":{{"{field}":"{word}"}},"logprobs":null,"finish_reason":null}}],"usage":null}}"#
        ))
    };
    let path = "/v1/chat/completions";
    vec![
        case("chat", path, SSE, move |_, word| chat("content", word)),
        case("chat, reasoning", path, SSE, move |_, word| {
            chat("reasoning_content", word)
        }),
        case("completions", "/v1/completions", SSE, |_, word| {
            sse(&format!(
                r#"{{"id":"cmpl-9fK2","object":"text_completion","created":1747000000,"model":"m","choices":[{{"index":0,"text":"{word}","logprobs":null,"finish_reason":null}}],"usage":null}}"#
            ))
        }),
        case("responses", "/v1/responses", SSE, |at, word| {
            sse(&format!(
                r#"{{"type":"response.output_text.delta","sequence_number":{at},"item_id":"msg_68243f2c9a088191a3c0f2","output_index":0,"content_index":0,"delta":"{word}","logprobs":[]}}"#
            ))
        }),
        case("realtime", "/v1/realtime?model=m", "", |at, word| {
            websocket(&format!(
                r#"{{"type":"response.output_audio_transcript.delta","event_id":"event_{at:08}","response_id":"resp_1","item_id":"item_1","output_index":0,"content_index":0,"delta":"{word}"}}"#
            ))
        }),
    ]
}

fn others() -> Vec<Case> {
    let base64 = base64::engine::general_purpose::STANDARD;
    vec![
        case("anthropic", "/v1/messages", SSE, |at, word| {
            // Anthropic adds spaces to hide the length of a text.
            let event = anthropic(word);
            let (open, brace) = event.split_at(event.len() - 1);
            sse(&format!("{open}{}{brace}", " ".repeat(at * 5 % 16)))
        }),
        case(
            "gemini",
            "/v1beta/models/g:streamGenerateContent?alt=sse",
            SSE,
            |at, word| {
                sse(&format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{{"text":"{word}"}}],"role":"model"}},"index":0}}],"usageMetadata":{{"promptTokenCount":8,"candidatesTokenCount":{at}}},"modelVersion":"gemini-2.5-flash","responseId":"tz8"}}"#
                ))
            },
        ),
        case(
            "bedrock converse",
            "/model/m/converse-stream",
            AWS,
            |_, word| {
                let payload =
                    format!(r#"{{"contentBlockIndex":0,"delta":{{"text":"{word}"}},"p":"abcde"}}"#);
                event_stream::event("contentBlockDelta", &payload)
            },
        ),
        case(
            "bedrock invoke",
            "/model/m/invoke-with-response-stream",
            AWS,
            move |at, word| {
                // The first message identifies the JSON format, and the next, a text, opens the block.
                let native = if at == 0 {
                    base64
                        .encode(r#"{"type":"message_start","message":{"model":"m","content":[]}}"#)
                } else {
                    base64.encode(anthropic(word))
                };
                event_stream::event("chunk", &format!(r#"{{"bytes":"{native}","p":"abcde"}}"#))
            },
        ),
        case("ollama", "/api/chat", "application/x-ndjson", |at, word| {
            format!(
                "{{\"model\":\"llama3.2:3b\",\"created_at\":\"2025-05-12T09:30:00.{at:09}Z\",\"message\":{{\"role\":\"assistant\",\"content\":\"{word}\"}},\"done\":false}}\n"
            )
            .into_bytes()
        }),
        case("cohere v2", "/v2/chat", SSE, |_, word| {
            sse(&format!(
                r#"{{"type":"content-delta","index":0,"delta":{{"message":{{"content":{{"text":"{word}"}}}}}}}}"#
            ))
        }),
        case("tgi", "/generate_stream", SSE, |at, word| {
            sse(&format!(
                r#"{{"index":{at},"token":{{"id":7,"text":"{word}","logprob":-0.1,"special":false}},"generated_text":null,"details":null}}"#
            ))
        }),
    ]
}

/// A meter with the subscribers of a real process.
struct Bench {
    meter: Arc<Meter>,
    recent: Arc<RecentCalls>,
    start: Instant,
}

impl Bench {
    fn new() -> Bench {
        let (measure, start) = (Measure::default(), Instant::now());
        let prometheus = Prometheus::new(&[], &measure);
        let recent = RecentCalls::new(10);
        let subscribers: Vec<Arc<dyn Subscriber>> = vec![prometheus, Arc::clone(&recent) as _];
        Bench {
            meter: Meter::new(measure, subscribers),
            recent,
            start,
        }
    }

    fn begin(&self, case: &Case) -> Arc<dyn ObservedCall> {
        let call = self.meter.begin(CallStart {
            received: self.start,
            started_at: SystemTime::UNIX_EPOCH,
            method: &Method::POST,
            uri: &Uri::from_static(case.path),
            headers: &HeaderMap::new(),
            peer: None,
            port: None,
            route: &"bench".into(),
            upstream: &"bench".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        });
        call.connected(self.start, true);
        call.sent(self.start);
        let mut headers = HeaderMap::new();
        let status = if case.content_type.is_empty() {
            StatusCode::SWITCHING_PROTOCOLS
        } else {
            headers.insert(
                header::CONTENT_TYPE,
                HeaderValue::from_static(case.content_type),
            );
            StatusCode::OK
        };
        call.head(self.start, status, &headers);
        call
    }

    /// Nanoseconds per event of one call, and the tokens of its record.
    fn round(&self, case: &Case) -> (f64, u64) {
        let call = self.begin(case);
        let tunnel = case.content_type.is_empty();
        let begun = Instant::now();
        for (event, bytes) in case.events.iter().enumerate() {
            let at = self.start + Duration::from_millis(10 * event as u64);
            let chunk = Chunk::new(at, bytes.clone());
            if tunnel {
                call.tunnel_chunk(Side::Upstream, black_box(chunk));
            } else {
                call.response_chunk(black_box(chunk));
            }
        }
        let spent = begun.elapsed().as_nanos() as f64 / case.events.len() as f64;
        call.ended(self.start + Duration::from_secs(60), End::ClientCancelled);
        assert!(self.meter.flush(TIMEOUT), "the call is recorded");
        let finished_call = &self.recent.newest(1)[0];
        (
            spent,
            finished_call.record.tokens.normalised.output.unwrap_or(0),
        )
    }
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    println!(
        "{:<20} {:>12} {:>12} {:>10}",
        "dialect", "bytes/event", "ns/event", "tokens"
    );
    let bench = Bench::new();
    for case in openai().iter().chain(&others()) {
        if wanted
            .as_ref()
            .is_some_and(|wanted| !case.name.contains(wanted.as_str()))
        {
            continue;
        }
        let rounds: Vec<_> = (0..ROUNDS).map(|_| bench.round(case)).collect();
        let best = rounds
            .iter()
            .map(|(spent, _)| *spent)
            .fold(f64::INFINITY, f64::min);
        let bytes = case.events.iter().map(Bytes::len).sum::<usize>() / case.events.len();
        let tokens = rounds[0].1;
        println!("{:<20} {bytes:>12} {best:>12.0} {tokens:>10}", case.name);
        assert!(
            tokens + 1 >= EVENTS as u64,
            "{}: {tokens} tokens are too few",
            case.name
        );
    }
}
