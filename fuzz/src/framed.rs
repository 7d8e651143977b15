//! Messages in every framing and content coding must have the same content, however the bytes are cut, masked,
//! fragmented and compressed.

use super::wire::{DIALECTS, read};
use serde_json::Value;
use tokengauge_core::call::Dialect;
use tokengauge_test_support::wire::encode::{self, CODINGS};
use tokengauge_test_support::wire::event_stream;
use tokengauge_test_support::wire::frames::{Frame, socket};
use tokengauge_wire::{Decoder, Framing, Limits};

/// Without event names, which only some framings have.
const FRAMINGS: [Framing; 5] = [
    Framing::Ndjson,
    Framing::Sse,
    Framing::JsonArray,
    Framing::AwsEventStream,
    Framing::WebSocket,
];

pub fn run(input: &[u8]) {
    let [dialect, how, cut, mask, rest @ ..] = input else {
        return;
    };
    let dialect = DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let lines = rest.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let messages: Vec<Vec<u8>> = lines.filter(|line| is_line(line)).map(Vec::from).collect();
    if messages.is_empty() {
        return;
    }
    let framing = FRAMINGS[usize::from(*how) % FRAMINGS.len()];
    let flags = how / 8;
    let frame = Frame {
        mask: (flags & 1 == 1).then_some([*mask, 2, 3, 4]),
        fragment: (flags & 2 == 2).then_some(usize::from(*mask).max(1)),
        ping: flags & 4 == 4,
        deflate: flags & 8 == 8,
    };
    let plain = framed(framing, &messages, &frame);
    let decoder = |coding: Option<&str>| {
        let agreed = match framing {
            Framing::WebSocket => frame.deflate.then_some("permessage-deflate"),
            _ => coding,
        };
        Decoder::with_framing(dialect, framing, agreed, Limits::default())
    };
    let told = |framing, bytes: &[u8]| {
        let decoder = Decoder::with_framing(dialect, framing, None, Limits::default());
        read(decoder, bytes, bytes.len().max(1))
    };
    // A socket carries several responses.
    let expected = match (dialect, framing) {
        (Dialect::OpenaiResponses, Framing::WebSocket) => {
            told(framing, &socket(&messages, &Frame::default()))
        }
        _ => told(Framing::Ndjson, &framed(Framing::Ndjson, &messages, &frame)),
    };
    let length = usize::from(*cut).max(1);
    assert_eq!(read(decoder(None), &plain, length), expected, "{framing:?}");
    if framing != Framing::WebSocket {
        let coding = CODINGS[usize::from(*mask) % CODINGS.len()];
        let coded = encode::encode(coding, &plain);
        let read = read(decoder(Some(coding)), &coded, length);
        assert_eq!(read, expected, "{framing:?} in {coding}");
    }
}

/// JSON without the additional line ends of server-sent events.
fn is_line(line: &[u8]) -> bool {
    !line.contains(&b'\r') && serde_json::from_slice::<Value>(line).is_ok()
}

fn framed(framing: Framing, messages: &[Vec<u8>], frame: &Frame) -> Vec<u8> {
    let lines = |before: &[u8], after: &[u8]| {
        let lines = messages.iter().map(|line| [before, line, after].concat());
        lines.collect::<Vec<_>>().concat()
    };
    match framing {
        Framing::Ndjson | Framing::Json => lines(b"", b"\n"),
        Framing::Sse => lines(b"data: ", b"\n\n"),
        Framing::JsonArray => [&b"["[..], &messages.join(&b",\r\n"[..]), b"]"].concat(),
        Framing::AwsEventStream => {
            let text = |line: &Vec<u8>| String::from_utf8_lossy(line).into_owned();
            let frames = messages
                .iter()
                .map(|line| event_stream::event("", &text(line)));
            frames.collect::<Vec<_>>().concat()
        }
        Framing::WebSocket => socket(messages, frame),
    }
}
