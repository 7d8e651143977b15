//! Response bodies in every dialect, framing and encoding: nothing panics, memory is bounded, and cuts do not change
//! the result.

use tokengauge_core::call::{Dialect, Event};
use tokengauge_wire::{Decoder, Framing, Limits, ResponseHead, SocketRequest, SocketRequests};

pub const DIALECTS: &[Dialect] = Dialect::ALL;

/// How the type of a body is known: by its head, or by its reader.
const KINDS: [Kind; 12] = [
    Kind::Head(Some("text/event-stream")),
    Kind::Head(Some("application/x-ndjson")),
    Kind::Head(Some("application/json")),
    Kind::Head(Some("application/vnd.amazon.eventstream")),
    Kind::Head(None),
    Kind::Framing(Framing::WebSocket, None),
    Kind::Framing(Framing::WebSocket, Some("permessage-deflate")),
    Kind::Framing(Framing::Sse, None),
    Kind::Framing(Framing::Ndjson, None),
    Kind::Framing(Framing::Json, None),
    Kind::Framing(Framing::JsonArray, None),
    Kind::Framing(Framing::AwsEventStream, None),
];
const ENCODINGS: [Option<&str>; 7] = [
    None,
    Some("gzip"),
    Some("deflate"),
    Some("br"),
    Some("zstd"),
    Some("x-gzip, identity"),
    Some("deflate, gzip"),
];
/// Small enough that inputs reach the bounds.
const LIMITS: Limits = Limits {
    event_bytes: 1 << 10,
    body_bytes: 1 << 12,
    decoded_bytes: 1 << 16,
};

#[derive(Clone, Copy)]
enum Kind {
    Head(Option<&'static str>),
    Framing(Framing, Option<&'static str>),
}

pub fn run(input: &[u8]) {
    let [dialect, kind, encoding, cut, body @ ..] = input else {
        return;
    };
    let dialect = DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let encoding = ENCODINGS[usize::from(*encoding) % ENCODINGS.len()];
    let decoder = || match kind {
        Kind::Head(content_type) => {
            let head = ResponseHead {
                status: 200,
                content_type,
                content_encoding: encoding,
            };
            Decoder::new(dialect, &head, LIMITS)
        }
        Kind::Framing(Framing::WebSocket, extensions) => {
            Decoder::with_framing(dialect, Framing::WebSocket, extensions, LIMITS)
        }
        Kind::Framing(framing, _) => Decoder::with_framing(dialect, framing, encoding, LIMITS),
    };
    let whole = read(decoder(), body, body.len().max(1));
    let pieces = read(decoder(), body, usize::from(*cut).max(1));
    let socket = match kind {
        Kind::Framing(Framing::WebSocket, extensions) => Some(extensions),
        _ => None,
    };
    // How far damaged compression can be read depends on the cuts.
    if encoding.is_none() || socket.is_some() {
        assert_eq!(whole, pieces);
    }
    if let Some(extensions) = socket {
        let whole = asked(dialect, extensions, body, body.len().max(1));
        let pieces = asked(dialect, extensions, body, usize::from(*cut).max(1));
        assert_eq!(whole, pieces);
    }
}

/// Reads a body cut into pieces of `length`. Returns its content, and whether it broke.
pub fn read(mut decoder: Decoder, body: &[u8], length: usize) -> (Vec<String>, bool) {
    let mut said = Vec::new();
    let mut broken = false;
    for piece in body.chunks(length) {
        broken |= decoder
            .push(piece, &mut |event| say(&mut said, &event))
            .is_err();
    }
    broken |= decoder.finish(&mut |event| say(&mut said, &event)).is_err();
    // How far a broken body could be read depends on the cuts.
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

/// Requests in the bytes of the agent's side of a socket.
fn asked(
    dialect: Dialect,
    extensions: Option<&str>,
    body: &[u8],
    length: usize,
) -> Option<Vec<String>> {
    let mut requests = SocketRequests::new(dialect, extensions, LIMITS);
    let mut asked = Vec::new();
    for piece in body.chunks(length) {
        let mut each = |request: SocketRequest<'_>| asked.push(format!("{request:?}"));
        requests.push(piece, &mut each).ok()?;
    }
    Some(asked)
}
