//! Cost of reading: nanoseconds per wire event, by dialect, on synthetic streams of one token per event. Each event is
//! pushed separately, as read from a socket.
//!
//! Run all rows with `cargo bench --bench wire`, or add a part of a row's name to run only matching rows.

use base64::Engine;
use std::time::Instant;
use tokengauge_core::call::{Dialect, Event};
use tokengauge_test_support::wire::event_stream;
use tokengauge_wire::{Decoder, Framing, Limits};

/// The allocator of the released binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EVENTS: usize = 4_000;
const ROUNDS: usize = 15;
const WORDS: [&str; 12] = [
    " the", " model", " streams", ",", " token", " by", " token", ".", " 42", " naïve", " proxies",
    " gauge",
];

/// Makes the payload of an event from its index and its word.
type Payload = Box<dyn Fn(usize, &str) -> String>;

struct Case {
    name: &'static str,
    dialect: Dialect,
    framing: Framing,
    payload: Payload,
}

fn case(
    name: &'static str,
    dialect: Dialect,
    framing: Framing,
    payload: impl Fn(usize, &str) -> String + 'static,
) -> Case {
    Case {
        name,
        dialect,
        framing,
        payload: Box::new(payload),
    }
}

impl Case {
    fn events(&self) -> Vec<Vec<u8>> {
        let payload = |at: usize| (self.payload)(at, WORDS[at * 7 % WORDS.len()]);
        (0..EVENTS)
            .map(|at| self.framed(at, &payload(at)))
            .collect()
    }

    fn framed(&self, at: usize, payload: &str) -> Vec<u8> {
        match self.framing {
            Framing::Sse => format!("data: {payload}\n\n").into_bytes(),
            Framing::Ndjson => format!("{payload}\n").into_bytes(),
            Framing::JsonArray => {
                format!("{}{payload}\n", if at == 0 { "[" } else { "," }).into_bytes()
            }
            Framing::AwsEventStream if self.dialect == Dialect::BedrockInvoke => {
                event_stream::event("chunk", payload)
            }
            Framing::AwsEventStream => event_stream::event("contentBlockDelta", payload),
            Framing::WebSocket => {
                let mut frame = vec![0x81, 126];
                frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
                frame.extend_from_slice(payload.as_bytes());
                frame
            }
            Framing::Json => payload.as_bytes().to_vec(),
        }
    }
}

fn chat(delta: &str, more: &str) -> String {
    format!(
        "{{\"id\":\"chatcmpl-BQ2fT9Z1mJm0Yq2cXW4hD7rK5LpVe\",\"object\":\"chat.completion.chunk\",\"created\":1747000000,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_0392822090\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":null}}]{more}}}"
    )
}

/// Padding that varies like OpenAI's.
fn padding(at: usize) -> &'static str {
    &"aB3dE6gH9jK2mN5p"[..at * 5 % 16]
}

fn openai() -> Vec<Case> {
    use Dialect::{OpenaiChat, OpenaiCompletions, OpenaiRealtime, OpenaiResponses};
    vec![
        case("chat", OpenaiChat, Framing::Sse, |_, word| {
            chat(&format!("\"content\":\"{word}\""), ",\"usage\":null")
        }),
        case("chat, padded", OpenaiChat, Framing::Sse, |at, word| {
            let more = format!(",\"usage\":null,\"obfuscation\":\"{}\"", padding(at));
            chat(&format!("\"content\":\"{word}\""), &more)
        }),
        case(
            "chat, some escaped",
            OpenaiChat,
            Framing::Sse,
            |at, word| {
                let escape = if at % 3 == 2 { "\\n" } else { "" };
                chat(&format!("\"content\":\"{word}{escape}\""), "")
            },
        ),
        case("chat, tool call", OpenaiChat, Framing::Sse, |_, word| {
            chat(
                &format!(
                    "\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{word}\"}}}}]"
                ),
                "",
            )
        }),
        case(
            "chat, no two alike",
            OpenaiChat,
            Framing::Sse,
            |at, word| {
                chat(
                    &format!("\"content\":\"{word}\",\"seen\":{at}"),
                    ",\"usage\":null",
                )
            },
        ),
        case("completions", OpenaiCompletions, Framing::Sse, |_, word| {
            format!(
                "{{\"id\":\"cmpl-9fK2\",\"object\":\"text_completion\",\"created\":1747000000,\"model\":\"m\",\"choices\":[{{\"index\":0,\"text\":\"{word}\",\"logprobs\":null,\"finish_reason\":null,\"stop_reason\":null}}],\"usage\":null}}"
            )
        }),
        case("responses", OpenaiResponses, Framing::Sse, |at, word| {
            format!(
                "{{\"type\":\"response.output_text.delta\",\"sequence_number\":{at},\"item_id\":\"msg_68243f2c9a088191a3c0f2\",\"output_index\":0,\"content_index\":0,\"delta\":\"{word}\",\"logprobs\":[],\"obfuscation\":\"{}\"}}",
                padding(at)
            )
        }),
        case(
            "realtime",
            OpenaiRealtime,
            Framing::WebSocket,
            |at, word| {
                format!(
                    "{{\"type\":\"response.output_audio_transcript.delta\",\"event_id\":\"event_{at:08}\",\"response_id\":\"resp_1\",\"item_id\":\"item_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"{word}\"}}"
                )
            },
        ),
    ]
}

fn anthropic(word: &str) -> String {
    format!(
        "{{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{word}\"}}}}"
    )
}

fn others() -> Vec<Case> {
    use Dialect::{
        Anthropic, BedrockConverse, BedrockInvoke, CohereV1, CohereV2, Gemini, Ollama, Tgi,
    };
    let gemini = |at: usize, word: &str| {
        format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{word}\"}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":8,\"candidatesTokenCount\":{at},\"totalTokenCount\":{}}},\"modelVersion\":\"gemini-2.5-flash\",\"responseId\":\"tz8\"}}",
            at + 8
        )
    };
    vec![
        case("anthropic", Anthropic, Framing::Sse, |_, word| {
            anthropic(word)
        }),
        case("gemini, sse", Gemini, Framing::Sse, gemini),
        case("gemini, array", Gemini, Framing::JsonArray, gemini),
        case(
            "bedrock converse",
            BedrockConverse,
            Framing::AwsEventStream,
            |at, word| {
                format!(
                    "{{\"contentBlockIndex\":0,\"delta\":{{\"text\":\"{word}\"}},\"p\":\"{}\"}}",
                    padding(at)
                )
            },
        ),
        case(
            "bedrock invoke",
            BedrockInvoke,
            Framing::AwsEventStream,
            |at, word| {
                let start = "{\"type\":\"message_start\",\"message\":{\"content\":[]}}".to_owned();
                let native = if at == 0 { start } else { anthropic(word) };
                let native = base64::engine::general_purpose::STANDARD.encode(native);
                format!("{{\"bytes\":\"{native}\",\"p\":\"{}\"}}", padding(at))
            },
        ),
        case("ollama", Ollama, Framing::Ndjson, |at, word| {
            format!(
                "{{\"model\":\"llama3.2:3b\",\"created_at\":\"2025-05-12T09:30:00.{at:09}Z\",\"message\":{{\"role\":\"assistant\",\"content\":\"{word}\"}},\"done\":false}}"
            )
        }),
        case("cohere v1", CohereV1, Framing::Ndjson, |_, word| {
            format!(
                "{{\"is_finished\":false,\"event_type\":\"text-generation\",\"text\":\"{word}\"}}"
            )
        }),
        case("cohere v2", CohereV2, Framing::Sse, |_, word| {
            format!(
                "{{\"type\":\"content-delta\",\"index\":0,\"delta\":{{\"message\":{{\"content\":{{\"text\":\"{word}\"}}}}}}}}"
            )
        }),
        case("tgi", Tgi, Framing::Sse, |at, word| {
            format!(
                "{{\"index\":{at},\"token\":{{\"id\":{},\"text\":\"{word}\",\"logprob\":-0.{at},\"special\":false}},\"generated_text\":null,\"details\":null}}",
                at * 31
            )
        }),
    ]
}

fn best(events: usize, mut round: impl FnMut()) -> f64 {
    let mut time = || {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / events as f64
    };
    (0..ROUNDS).map(|_| time()).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds that a decoder takes for one event of a case.
fn measure(case: &Case, events: &[Vec<u8>]) -> f64 {
    best(events.len(), || {
        let mut decoder =
            Decoder::with_framing(case.dialect, case.framing, None, Limits::default());
        let mut texts = 0;
        for event in events {
            let mut sink =
                |event: Event<'_>| texts += usize::from(matches!(event, Event::Delta { .. }));
            decoder.push(event, &mut sink).expect("readable");
        }
        assert!(texts + 1 >= events.len(), "{} gives every text", case.name);
    })
}

/// The current speed of the machine: a plain parse of the first case's events.
fn yardstick() -> f64 {
    let events: Vec<String> = (0..EVENTS)
        .map(|_| chat("\"content\":\" gauge\"", ",\"usage\":null"))
        .collect();
    best(events.len(), || {
        for event in &events {
            std::hint::black_box(serde_json::from_str::<serde_json::Value>(event).expect("JSON"));
        }
    })
}

fn main() {
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    println!("{:<22} {:>12} {:>10}", "dialect", "bytes/event", "ns/event");
    for case in openai().into_iter().chain(others()) {
        if wanted
            .as_ref()
            .is_none_or(|wanted| case.name.contains(wanted.as_str()))
        {
            let events = case.events();
            let bytes = events.iter().map(Vec::len).sum::<usize>() / events.len();
            println!(
                "{:<22} {bytes:>12} {:>10.0}",
                case.name,
                measure(&case, &events)
            );
        }
    }
    println!(
        "yardstick: {:.0} ns to parse the first event as serde_json::Value",
        yardstick()
    );
}
