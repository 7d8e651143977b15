//! Response bodies in every dialect, framing and encoding: nothing panics, and however a body
//! is cut, it says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokengauge::call::{Dialect, Event};
use tokengauge::wire::{Decoder, Framing, Limits, ResponseHead};

const DIALECTS: [Dialect; 15] = [
    Dialect::OpenaiChat,
    Dialect::OpenaiCompletions,
    Dialect::OpenaiResponses,
    Dialect::OpenaiRealtime,
    Dialect::Anthropic,
    Dialect::AnthropicComplete,
    Dialect::Gemini,
    Dialect::BedrockConverse,
    Dialect::BedrockInvoke,
    Dialect::Ollama,
    Dialect::CohereV1,
    Dialect::CohereV2,
    Dialect::Tgi,
    Dialect::Embeddings,
    Dialect::Rerank,
];
const TYPES: [Option<&str>; 5] = [
    Some("text/event-stream"),
    Some("application/x-ndjson"),
    Some("application/json"),
    Some("application/vnd.amazon.eventstream"),
    None,
];
const ENCODINGS: [Option<&str>; 5] = [
    None,
    Some("gzip"),
    Some("deflate"),
    Some("br"),
    Some("zstd"),
];

fuzz_target!(|input: &[u8]| {
    let [dialect, kind, encoding, cut, body @ ..] = input else {
        return;
    };
    let dialect = DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let kind = usize::from(*kind) % (TYPES.len() + 1);
    let encoding = ENCODINGS[usize::from(*encoding) % ENCODINGS.len()];
    let decoder = || match TYPES.get(kind) {
        Some(content_type) => {
            let head = ResponseHead {
                status: 200,
                content_type: *content_type,
                content_encoding: encoding,
            };
            Decoder::new(dialect, &head, limits())
        }
        None => Decoder::with_framing(dialect, Framing::WebSocket, None, limits()),
    };
    let whole = read(decoder(), body, body.len().max(1));
    let cut = read(decoder(), body, usize::from(*cut).max(1));
    // How far damaged compression can be read depends on where it was cut.
    if encoding.is_none() {
        assert_eq!(whole, cut);
    }
});

/// Small, so that bounds are met.
fn limits() -> Limits {
    Limits {
        event_bytes: 1 << 10,
        body_bytes: 1 << 12,
        decoded_bytes: 1 << 16,
    }
}

/// What a body says, cut into pieces of `length`, and whether it broke.
fn read(mut decoder: Decoder, body: &[u8], length: usize) -> (Vec<String>, bool) {
    let mut said = Vec::new();
    let mut broken = false;
    for piece in body.chunks(length) {
        broken |= decoder
            .push(piece, &mut |event| say(&mut said, &event))
            .is_err();
    }
    broken |= decoder.finish(&mut |event| say(&mut said, &event)).is_err();
    // How far a broken body could be read depends on where it was cut.
    if broken {
        (Vec::new(), true)
    } else {
        (said, false)
    }
}

fn say(said: &mut Vec<String>, event: &Event<'_>) {
    if let Event::Delta { text, .. } | Event::Model(text) = event {
        assert!(!text.is_empty());
    }
    said.push(format!("{event:?}"));
}
