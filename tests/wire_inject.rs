//! A request for usage that the proxy adds changes nothing else, and the agent never sees the added data, wherever the
//! bytes are cut.

use bytes::Bytes;
use proptest::prelude::*;
use tokengauge_core::observer::Filter;
use tokengauge_wire::inject::{UsageFilter, rewrite_request};

fn rewritten(body: &str) -> Option<String> {
    let bytes = rewrite_request(body.as_bytes())?;
    Some(String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

#[test]
fn usage_is_asked_for_where_a_stream_is_and_every_other_byte_stays() {
    for (body, with) in [
        (
            "{\"model\":\"m\",  \"stream\": true ,\"n\":1.50}",
            "{\"model\":\"m\",  \"stream\": true,\"stream_options\":{\"include_usage\":true} ,\"n\":1.50}",
        ),
        (
            "{\"stream\":true}",
            "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
        ),
        (
            "{\"stream_options\":{},\"stream\":true}",
            "{\"stream_options\":{\"include_usage\":true},\"stream\":true}",
        ),
        (
            "{\"stream\":true,\"stream_options\":{ \"x\":[1] }}",
            "{\"stream\":true,\"stream_options\":{\"include_usage\":true, \"x\":[1] }}",
        ),
        (
            "{\"stream\":true,\"stream_options\":null}",
            "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
        ),
        (
            "{\"messages\":[{\"content\":\"\\\"stream\\\":true\"}],\"stream\":true}",
            "{\"messages\":[{\"content\":\"\\\"stream\\\":true\"}],\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
        ),
    ] {
        assert_eq!(rewritten(body).as_deref(), Some(with));
    }
}

#[test]
fn a_request_that_does_not_need_it_or_cannot_be_read_is_left_alone() {
    for body in [
        "{\"stream\":false}",
        "{\"model\":\"m\"}",
        "{\"stream\":\"true\"}",
        "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
        "{\"stream\":true,\"stream_options\":{\"include_usage\":false}}",
        "{\"stream\":true,\"stream_options\":{\"include_usage\":null}}",
        "{\"stream\":true,\"stream_options\":\"later\"}",
        "{\"nested\":{\"stream\":true}}",
        "{\"stream\":true",
        "{\"stream\":true,\"stream\":true}",
        "[true,null]",
        "",
    ] {
        assert_eq!(rewritten(body), None, "{body}");
    }
}

fn filtered(stream: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut filter = UsageFilter::default();
    let mut out = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([stream.len()]) {
        out.extend_from_slice(&filter.push(Bytes::copy_from_slice(&stream[from..to])));
        from = to;
    }
    out.extend_from_slice(&filter.finish());
    out
}

/// A stream as a backend sends it, and as the agent asked for it.
fn streams() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for end in ["\n", "\r\n", "\r"] {
        let mut sent = String::new();
        let mut asked = String::new();
        for (event, expected) in [
            (": comment", Some(": comment")),
            (
                "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"a \\\",\\\"usage\\\":null \"}}],\"usage\":null}",
                Some(
                    "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"a \\\",\\\"usage\\\":null \"}}]}",
                ),
            ),
            (
                "event: x|data: {\"usage\": null, \"id\":\"2\",\"choices\":[],\"inner\":{\"a\":1,\"usage\":null}}",
                Some(
                    "event: x|data: { \"id\":\"2\",\"choices\":[],\"inner\":{\"a\":1,\"usage\":null}}",
                ),
            ),
            (
                "data:{\"choices\":[{\"finish_reason\":\"stop\"}],\"usage\" : null , \"p\":\"x\"}",
                Some("data:{\"choices\":[{\"finish_reason\":\"stop\"}] , \"p\":\"x\"}"),
            ),
            (
                "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}",
                Some("data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}"),
            ),
            (
                "event: u|data: {\"choices\": [ ],\"usage\":{\"prompt_tokens\":1}}|id: 7",
                None,
            ),
            (
                "data: {\"choices\":[],\"moderation\":1,\"usage\":null}",
                Some("data: {\"choices\":[],\"moderation\":1}"),
            ),
            ("data: {\"usage\":null}", Some("data: {}")),
            ("data: not json \"usage\"", Some("data: not json \"usage\"")),
            (
                "data: {\"choices\":[],|data: \"usage\":{}}",
                Some("data: {\"choices\":[],|data: \"usage\":{}}"),
            ),
            ("data: [DONE]", Some("data: [DONE]")),
        ] {
            let lines = |event: &str| format!("{}{end}{end}", event.replace('|', end));
            sent += &lines(event);
            asked += &expected.map(lines).unwrap_or_default();
        }
        all.push((sent, asked));
    }
    all
}

#[test]
fn what_only_we_asked_for_is_taken_out_wherever_the_stream_is_cut() {
    for (sent, asked) in streams() {
        let whole = filtered(sent.as_bytes(), &[]);
        assert_eq!(String::from_utf8_lossy(&whole), asked);
        for cut in 1..sent.len() {
            assert_eq!(filtered(sent.as_bytes(), &[cut]), whole, "cut at {cut}");
        }
        let every_byte: Vec<usize> = (1..sent.len()).collect();
        assert_eq!(filtered(sent.as_bytes(), &every_byte), whole);
    }
}

#[test]
fn an_event_leaves_when_it_is_whole_and_not_later() {
    let mut filter = UsageFilter::default();
    let event = Bytes::from_static(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");
    for _ in 0..3 {
        assert_eq!(filter.push(event.clone()), event);
    }
    assert_eq!(filter.push(event.slice(..10)), "");
    assert_eq!(filter.push(event.slice(10..)), event);
    assert_eq!(filter.finish(), "");
}

#[test]
fn an_event_over_the_bound_passes_as_it_is_and_the_next_is_filtered_again() {
    let large = format!(
        "data: {{\"a\":\"{}\",\"usage\":null}}\n\n",
        "x".repeat(2 << 20)
    );
    let stream = format!("{large}data: {{\"choices\":[],\"usage\":{{}}}}\n\ndata: [DONE]\n\n");
    let cuts: Vec<usize> = (1..stream.len()).step_by(4096).collect();
    let out = filtered(stream.as_bytes(), &cuts);
    assert_eq!(out, format!("{large}data: [DONE]\n\n").into_bytes());
}

#[test]
fn a_body_that_is_not_events_passes_as_it_is() {
    let body = b"  {\"choices\":[],\n\n\"usage\":{}}\n\n";
    for cut in 1..body.len() {
        let mut filter = UsageFilter::default();
        for piece in [&body[..cut], &body[cut..]] {
            assert_eq!(
                filter.push(Bytes::copy_from_slice(piece)),
                piece,
                "held back"
            );
        }
        assert_eq!(filter.finish(), "");
    }
}

#[test]
fn an_unterminated_last_event_is_filtered_too() {
    assert_eq!(filtered(b"data: {\"choices\":[],\"usage\":{}}\n", &[]), b"");
    assert_eq!(
        filtered(b"data: {\"id\":1,\"usage\":null}", &[4]),
        b"data: {\"id\":1}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_the_same_however_they_are_cut(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "data: ", "data:", "{\"usage\":null", "}", "\n", "\r", "\r\n", "\n\n", ": c", "{", "[",
            "\"usage\":{}", "\"choices\":[]", ",", " ", "event: e", "\u{e9}",
        ]), 0..40),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let stream = pieces.concat().into_bytes();
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        at.sort_unstable();
        prop_assert_eq!(filtered(&stream, &at), filtered(&stream, &[]));
    }
}
