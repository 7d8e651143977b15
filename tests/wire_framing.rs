//! Encodings and framings with hostile and unusual bytes: readable data is read, unreadable data is reported, memory is
//! bounded, and nothing panics.

use tokengauge_core::call::{Dialect, Event};
use tokengauge_test_support::wire::encode::{encode, encoder, piece};
use tokengauge_test_support::wire::event_stream;
use tokengauge_test_support::wire::reading::{Reading, read, read_cut};
use tokengauge_wire::{DecodeError, Decoder, Framing, Limits, ResponseHead};

fn framed(dialect: Dialect, framing: Framing, body: &[u8]) -> Reading {
    read(
        Decoder::with_framing(dialect, framing, None, Limits::default()),
        body,
    )
}

fn headed(
    dialect: Dialect,
    content_type: Option<&str>,
    coding: Option<&str>,
    body: &[u8],
) -> Reading {
    let head = ResponseHead {
        status: 200,
        content_type,
        content_encoding: coding,
    };
    let whole = read(Decoder::new(dialect, &head, Limits::default()), body);
    let cut = read_cut(
        Decoder::new(dialect, &head, Limits::default()),
        body,
        1..body.len(),
    );
    assert_eq!(cut, whole, "byte by byte");
    whole
}

fn chunk(text: &str) -> String {
    format!(
        "{{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}"
    )
}

fn sse(texts: &[&str]) -> String {
    texts
        .iter()
        .map(|text| format!("data: {}\n\n", chunk(text)))
        .collect()
}

const SSE: Option<&str> = Some("text/event-stream");
const CHAT: Dialect = Dialect::OpenaiChat;

#[test]
fn events_read_alike_whatever_ends_their_lines_and_wherever_they_are_cut() {
    let (one, two) = (chunk("one \u{2028}\u{85}"), chunk("two"));
    let (head, tail) = two.split_at(1);
    for body in [
        format!("data: {one}\n\ndata: {two}\n\n"),
        format!("data: {one}\r\n\r\ndata: {two}\r\n\r\n"),
        format!("data: {one}\r\rdata: {two}\r\r"),
        format!("data:{one}\n\ndata:{two}\n\n"),
        format!("\u{feff}data: {one}\n\nevent: x\nid: 1\nretry: 5\ndata: {two}"),
        format!("\n\n\r\ndata: {one}\n\n\n\ndata: {head}\ndata: {tail}\n\n"),
        format!("data: {one}\n\nevent: ping\n\ndata\n\ndata:\n\ndata: {two}\n"),
        format!("unknown: field\ndata: {one}\n\n{two}\n"),
    ] {
        let reading = headed(CHAT, SSE, None, body.as_bytes());
        assert_eq!(reading.visible(), "one \u{2028}\u{85}two", "{body}");
        assert_eq!((reading.messages, reading.unparsed), (2, 0), "{body}");
    }
}

#[test]
fn comments_are_counted_and_mean_nothing_else() {
    let body = format!(": a\n\n{}:b\r\n\r\n:\n", sse(&["x"]));
    let reading = headed(CHAT, SSE, None, body.as_bytes());
    assert_eq!((reading.comments, reading.messages), (3, 1));
}

#[test]
fn one_damaged_event_costs_only_itself() {
    let body = format!(
        "{}data: {{\"choices\":[{{\n\ndata: <html>\n\n{}",
        sse(&["a"]),
        sse(&["b"])
    );
    let reading = headed(CHAT, SSE, None, body.as_bytes());
    assert_eq!(reading.visible(), "ab");
    let lost = (reading.messages, reading.unparsed, reading.skipped);
    assert_eq!(lost, (4, 0, 2));
}

#[test]
fn lone_surrogates_and_invalid_bytes_are_replaced_and_the_event_is_read() {
    let mut body = sse(&["\\ud83d", "\\udc00!", "\\ud83d\\ude00"]).into_bytes();
    body.extend_from_slice(b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n");
    let reading = headed(CHAT, SSE, None, &body);
    assert_eq!(reading.visible(), "\u{fffd}\u{fffd}!😀\u{fffd}");
    assert_eq!(reading.unparsed, 0);
    for (dialect, event) in [
        (
            CHAT,
            r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"\ud83d"}}]}}]}"#,
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"type":"response.output_item.done","item":{"type":"function_call","arguments":"\ud83d"}}"#,
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"type":"response.output_item.done","item":{"type":"message","content":"\ud83d"}}"#,
        ),
    ] {
        let reading = headed(dialect, SSE, None, format!("data: {event}\n\n").as_bytes());
        let texts: Vec<&str> = reading.segments.values().map(String::as_str).collect();
        assert_eq!((texts, reading.unparsed), (vec!["\u{fffd}"], 0), "{event}");
    }
}

#[test]
fn the_fast_path_gives_the_same_as_the_slow_path() {
    // These events look equal except for their text, but each differs in one more place.
    let events = [
        chunk("plain"),
        chunk("escaped \\\" \\n \\u00e9"),
        chunk("as before"),
        chunk(""),
        chunk("again"),
        chunk("lone \\ud83d"),
        chunk("control \u{1}"),
        chunk("two\",\"refusal\":\"No"),
        chunk("end").replace(
            "\"choices\"",
            "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2},\"choices\"",
        ),
        chunk("third").replace("{\"delta\"", "{\"index\":1,\"delta\""),
        chunk("back"),
        chunk("cut\\"),
        chunk("x\\ud83d\\ude00"),
    ];
    let body: String = events
        .iter()
        .map(|event| format!("data: {event}\n\n"))
        .collect();
    let reading = headed(CHAT, SSE, None, body.as_bytes());
    let texts: Vec<(u32, u32, &str)> = reading
        .segments
        .iter()
        .map(|(at, text)| (at.choice, at.index, text.as_str()))
        .collect();
    let first = "plainescaped \" \n éas beforeagainlone \u{fffd}twoendbackx😀";
    assert_eq!(texts, [(0, 0, first), (0, 1, "No"), (1, 0, "third")]);
    let lost = (reading.unparsed, reading.skipped);
    assert_eq!((lost, reading.usage.output), ((0, 2), Some(2)));
}

#[test]
fn the_body_overrules_the_content_type() {
    let error = b"{\"error\":{\"type\":\"overloaded\"}}";
    let whole =
        b"  \n {\"choices\":[{\"message\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n";
    for content_type in [
        SSE,
        None,
        Some("application/json"),
        Some("text/plain"),
        Some("application/octet-stream"),
    ] {
        let reading = headed(CHAT, content_type, None, error);
        assert_eq!(
            (reading.error.as_deref(), reading.is_stream),
            (Some("overloaded"), false)
        );
        assert_eq!(headed(CHAT, content_type, None, whole).visible(), "hi");
        let reading = headed(CHAT, content_type, None, sse(&["hi"]).as_bytes());
        assert_eq!(
            (reading.visible().as_str(), reading.is_stream),
            ("hi", true)
        );
    }
}

#[test]
fn a_body_of_an_unknown_shape_is_reported_as_unparsed() {
    for (content_type, body) in [
        (Some("text/html"), "<html>Bad gateway</html>"),
        (Some("application/json"), "{\"half\":"),
        (Some("image/png"), "\u{89}PNG"),
        (Some("application/json"), "[]"),
    ] {
        let reading = headed(Dialect::Unknown, content_type, None, body.as_bytes());
        let lost = reading.unparsed + reading.skipped;
        assert_eq!((reading.messages, lost), (1, 1), "{body}");
        assert_eq!((reading.is_stream, reading.broken), (false, None), "{body}");
    }
    let nothing = headed(CHAT, Some("application/json"), None, b"");
    assert_eq!((nothing.messages, nothing.unparsed), (0, 0));
}

#[test]
fn lines_that_were_declared_as_one_body_are_read_as_lines() {
    let lines = "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"message\":{\"content\":\"b\"},\"done\":true}\n";
    let reading = headed(
        Dialect::Ollama,
        Some("application/json"),
        None,
        lines.as_bytes(),
    );
    assert_eq!((reading.visible().as_str(), reading.messages), ("ab", 2));
}

#[test]
fn an_array_gives_its_elements_however_it_is_printed() {
    let element = |text: &str| {
        format!("{{\"candidates\" : [{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}]}}}}]}}")
    };
    let (a, b) = (element("]},[ \\\" {"), element("b"));
    for body in [
        format!("[{a},{b}]"),
        format!("[{a}\n,\r\n{b}\n]\n"),
        format!("  [\n  {a},\n  {b}"),
        format!("[{a},{b}] trailing"),
    ] {
        let reading = headed(
            Dialect::Gemini,
            Some("application/json"),
            None,
            body.as_bytes(),
        );
        assert_eq!(reading.visible(), "]},[ \" {b", "{body}");
        assert_eq!((reading.messages, reading.is_stream), (2, true), "{body}");
    }
    let odd = headed(
        Dialect::Gemini,
        Some("application/json"),
        None,
        b"[1, \"x\" ,null,[2]]",
    );
    assert_eq!(odd.messages, 4);
}

#[test]
fn frames_with_a_wrong_sum_cost_themselves_and_a_wrong_prelude_costs_the_rest() {
    let text = |text: &str| {
        let payload = format!("{{\"contentBlockIndex\":0,\"delta\":{{\"text\":\"{text}\"}}}}");
        event_stream::event("contentBlockDelta", &payload)
    };
    let mut damaged = text("lost");
    let last = damaged.len() - 8;
    damaged[last] ^= 1;
    let body = [text("a"), damaged, text("b")].concat();
    let reading = headed(
        Dialect::BedrockConverse,
        Some("application/vnd.amazon.eventstream"),
        None,
        &body,
    );
    assert_eq!(
        (
            reading.visible().as_str(),
            reading.unparsed,
            reading.messages
        ),
        ("ab", 1, 3)
    );

    let mut headless = text("lost");
    headless[2] ^= 1;
    let body = [text("a"), headless, text("b")].concat();
    let reading = framed(Dialect::BedrockConverse, Framing::AwsEventStream, &body);
    assert_eq!(
        (reading.visible().as_str(), reading.broken),
        ("a", Some(DecodeError::Framing))
    );

    let cut = [text("a"), text("b")[..20].to_vec()].concat();
    let reading = framed(Dialect::BedrockConverse, Framing::AwsEventStream, &cut);
    assert_eq!((reading.visible().as_str(), reading.unparsed), ("a", 1));
}

#[test]
fn an_exception_frame_is_an_error_by_its_type() {
    for (headers, word) in [
        (
            [
                (":message-type", "exception"),
                (":exception-type", "throttlingException"),
            ],
            "throttlingException",
        ),
        (
            [(":message-type", "error"), (":error-code", "InternalError")],
            "InternalError",
        ),
        (
            [
                (":message-type", "exception"),
                (":exception-type", "a secret text"),
            ],
            "exception",
        ),
    ] {
        let body = event_stream::frame(&headers, b"{\"message\":\"secret\"}");
        let reading = framed(Dialect::BedrockInvoke, Framing::AwsEventStream, &body);
        assert_eq!(
            (reading.error.as_deref(), reading.messages),
            (Some(word), 1)
        );
    }
}

#[test]
fn every_event_is_decoded_as_soon_as_its_compressed_bytes_are_there() {
    for coding in ["gzip", "deflate", "raw-deflate", "br", "zstd"] {
        let name = if coding == "raw-deflate" {
            "deflate"
        } else {
            coding
        };
        let mut encoder = encoder(coding);
        let mut decoder = Decoder::with_framing(CHAT, Framing::Sse, Some(name), Limits::default());
        for at in 0..50 {
            let text = format!("text {at}");
            let bytes = piece(&mut *encoder, sse(&[&text]).as_bytes());
            let mut got = String::new();
            for byte in bytes.chunks(3) {
                let mut sink = |event: Event<'_>| {
                    if let Event::Delta { text, .. } = event {
                        got.push_str(text);
                    }
                };
                decoder.push(byte, &mut sink).expect("valid");
            }
            assert_eq!(got, text, "{coding}");
        }
    }
}

#[test]
fn encodings_on_top_of_each_other_are_undone_in_order() {
    let body = sse(&["a", "b"]);
    let encoded = encode("br", &encode("gzip", body.as_bytes()));
    let reading = headed(CHAT, SSE, Some("GZIP , br, identity"), &encoded);
    assert_eq!((reading.visible().as_str(), reading.broken), ("ab", None));
}

#[test]
fn all_members_of_a_gzip_body_are_read_and_padding_after_it_is_ignored() {
    let mut body = encode("gzip", sse(&["a"]).as_bytes());
    body.extend(encode("gzip", sse(&["b"]).as_bytes()));
    body.extend_from_slice(&[0; 100]);
    let reading = headed(CHAT, SSE, Some("gzip"), &body);
    assert_eq!((reading.visible().as_str(), reading.broken), ("ab", None));
}

#[test]
fn an_unknown_or_damaged_encoding_breaks_and_stays_broken() {
    let body = sse(&["a"]);
    for (coding, bytes) in [
        ("compress", body.as_bytes().to_vec()),
        ("gzip", body.as_bytes().to_vec()),
        ("zstd", body.as_bytes().to_vec()),
        ("gzip, gzip, gzip, gzip", encode("gzip", body.as_bytes())),
    ] {
        let mut decoder =
            Decoder::with_framing(CHAT, Framing::Sse, Some(coding), Limits::default());
        assert_eq!(
            decoder.push(&bytes, &mut |_| ()),
            Err(DecodeError::Encoding),
            "{coding}"
        );
        assert_eq!(
            decoder.push(b"more", &mut |_| ()),
            Err(DecodeError::Encoding),
            "{coding}"
        );
        assert_eq!(
            decoder.finish(&mut |_| ()),
            Err(DecodeError::Encoding),
            "{coding}"
        );
    }
}

#[test]
fn a_bomb_is_given_up_before_it_has_grown() {
    let comment = format!(":{}\n", "x".repeat(65_534));
    let body = comment.repeat(128);
    for coding in ["gzip", "deflate", "zstd", "br"] {
        let bomb = encode(coding, body.as_bytes());
        assert!(bomb.len() * 250 < body.len(), "{coding} makes a bomb of it");
        let mut decoder =
            Decoder::with_framing(CHAT, Framing::Sse, Some(coding), Limits::default());
        assert_eq!(
            decoder.push(&bomb, &mut |_| ()),
            Err(DecodeError::TooLarge),
            "{coding}"
        );
        let read = decoder.comments() * comment.len() as u64;
        assert!(
            read <= (4 << 20) + 250 * bomb.len() as u64,
            "{coding}: {read}"
        );
    }
    let limits = Limits {
        decoded_bytes: 10_000,
        ..Limits::default()
    };
    let mut decoder = Decoder::with_framing(CHAT, Framing::Sse, Some("gzip"), limits);
    let encoded = encode("gzip", sse(&["a"; 200]).as_bytes());
    assert_eq!(
        decoder.push(&encoded, &mut |_| ()),
        Err(DecodeError::TooLarge)
    );
}

#[test]
fn the_bound_of_an_event_is_the_same_however_it_is_cut() {
    let limits = Limits {
        event_bytes: 1_000,
        ..Limits::default()
    };
    for length in [900, 1_000, 1_001, 1_100] {
        let text = format!("\"{}\"", "x".repeat(length));
        for (framing, body) in [
            (Framing::Sse, format!("data: {text}\n\n")),
            (Framing::Sse, format!(": {text}\n\n")),
            (Framing::Sse, format!("data: {{\ndata: {text}\n\n")),
            (Framing::Ndjson, format!("{text}\n")),
            (Framing::JsonArray, format!("[{text},{text}]")),
        ] {
            let broken = |cut: usize| {
                let mut decoder = Decoder::with_framing(CHAT, framing, None, limits);
                let mut pieces = body.as_bytes().chunks(cut);
                pieces.any(|piece| decoder.push(piece, &mut |_| ()).is_err())
            };
            let expected = broken(1);
            assert_eq!(expected, length > 990, "{framing:?} of {length}");
            for cut in [7, 100, 999, body.len()] {
                assert_eq!(
                    broken(cut),
                    expected,
                    "{framing:?} of {length} cut by {cut}"
                );
            }
        }
    }
}

#[test]
fn nothing_is_held_beyond_its_bound() {
    let limits = Limits {
        event_bytes: 1_000,
        body_bytes: 2_000,
        ..Limits::default()
    };
    let long = "x".repeat(3_000);
    let frame = event_stream::event("chunk", &long);
    let message = [&[0x81, 126, 0x0b, 0xb8][..], long.as_bytes()].concat();
    for (framing, body) in [
        (Framing::Sse, format!("data: {long}").into_bytes()),
        (Framing::Sse, "data: xxxxxxxxxx\n".repeat(200).into_bytes()),
        (Framing::Ndjson, long.clone().into_bytes()),
        (Framing::Json, long.clone().into_bytes()),
        (Framing::JsonArray, format!("[\"{long}").into_bytes()),
        (Framing::AwsEventStream, frame),
        (Framing::WebSocket, message),
    ] {
        let mut decoder = Decoder::with_framing(CHAT, framing, None, limits);
        let pushed: Vec<_> = body
            .chunks(100)
            .map(|piece| decoder.push(piece, &mut |_| ()))
            .collect();
        assert_eq!(
            pushed.last(),
            Some(&Err(DecodeError::TooLarge)),
            "{framing:?}"
        );
    }
}

#[test]
fn a_frame_of_any_length_is_held_within_the_bound_whatever_came_before_it() {
    let limits = Limits {
        event_bytes: 1_000,
        ..Limits::default()
    };
    let begun = [0x01, 3, b'a', b'b', b'c'];
    for length in [998, 1_000, 1 << 32, u64::MAX - 3, u64::MAX - 2, u64::MAX] {
        let continued = [&[0x80, 127][..], &length.to_be_bytes(), b"x"].concat();
        let mut decoder = Decoder::with_framing(CHAT, Framing::WebSocket, None, limits);
        assert_eq!(decoder.push(&begun, &mut |_| ()), Ok(()));
        let pushed = decoder.push(&continued, &mut |_| ());
        assert_eq!(pushed, Err(DecodeError::TooLarge), "{length}");
    }
}
