//! Detection of models that generated more than they streamed, and its consequences.

use crate::objectives::{ObjectivesFixture, only};
use tokengauge_core::call::{CallRecord, TpsUnavailable};
use tokengauge_core::observer::End;
use tokengauge_test_support::meter::{Bench, DONE, choice, dialect, event, finish};

/// A text of the script that is long enough for a speed.
const TEXTS: [(&str, &str, f64); 6] = [
    ("Thai", "แม่น้ำพาเรือไปทะเลในฤดูหนาวไม่มีอะไรเคลื่อนไหว ", 2.6),
    (
        "Hindi",
        "नदी नावों को ले जाती है और सर्दियों में कुछ भी नहीं चलता ",
        3.4,
    ),
    (
        "Arabic",
        "النهر يحمل القوارب إلى البحر وفي الشتاء لا شيء يتحرك ",
        2.8,
    ),
    (
        "Greek",
        "Ο ποταμός μεταφέρει πλοία στη θάλασσα και τον χειμώνα τίποτα δεν κινείται ",
        2.9,
    ),
    (
        "Korean",
        "강은 배를 바다로 나르고 겨울에는 아무것도 움직이지 않는다 ",
        2.7,
    ),
    (
        "English",
        "The river carries boats to the sea and nothing moves in winter. ",
        1.3,
    ),
];

fn answer(text: &str) -> String {
    event(&serde_json::json!({ "content": text }).to_string())
}

/// A stream of ten such texts, for which the provider reports `ratio` tokens for each counted token.
fn stream(bench: &Bench, text: &str, ratio: f64, reasoning: Option<(u64, usize)>) -> CallRecord {
    let count = |text: &str| tokengauge_tokenizer::count(text);
    let call = bench.chat();
    let (_, thoughts) = reasoning.unwrap_or_default();
    let thought = " thought".repeat(thoughts);
    if thoughts > 0 {
        let delta = serde_json::json!({ "reasoning_content": thought });
        bench.chunk(&*call, 90, event(&delta.to_string()));
    }
    for chunk in 0..10 {
        bench.chunk(&*call, 100 + chunk * 100, answer(text));
    }
    let ours = count(&text.repeat(10)) as f64;
    let reported = (ours * ratio) as u64 + reasoning.map_or(0, |(reported, _)| reported);
    let details = reasoning.map_or("null".to_owned(), |(reported, _)| {
        format!(r#"{{"reasoning_tokens":{reported}}}"#)
    });
    let usage = format!(
        r#"{{"prompt_tokens":7,"completion_tokens":{reported},"completion_tokens_details":{details}}}"#
    );
    let last = format!(
        "data: {{\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}\n\n"
    );
    bench.chunk(&*call, 1200, last + DONE);
    bench.end(&*call, 1200, End::Complete)
}

#[test]
fn a_tokenizer_that_makes_more_of_a_script_hides_nothing() {
    for (script, text, ratio) in TEXTS {
        let record = stream(&Bench::default(), text, ratio, None);
        assert_eq!(record.tps.unavailable, None, "{script}");
        let (ours, reported) = (record.tps.output, record.tps.reported);
        let (ours, reported) = (ours.expect("a speed"), reported.expect("a speed"));
        assert!(
            (reported / ours / ratio - 1.0).abs() < 0.02,
            "{script}: {reported} of {ours}"
        );
    }
}

#[test]
fn output_that_was_not_streamed_is_seen_and_takes_both_speeds_away() {
    for (script, text, _) in TEXTS {
        let record = stream(&Bench::default(), text, 9.0, None);
        let hidden = Some(TpsUnavailable::HiddenOutput);
        assert_eq!(record.tps.unavailable, hidden, "{script}");
        assert_eq!(record.tps.total_unavailable, hidden, "{script}");
        assert_eq!(
            (record.tps.output, record.tps.total, record.tps.reported),
            (None, None, None)
        );
    }
}

#[test]
fn a_summary_of_the_reasoning_is_less_than_the_reasoning() {
    let (_, english, _) = TEXTS[5];
    // 331 reasoning tokens were billed, and a summary of 181 arrived.
    let record = stream(&Bench::default(), english, 1.0, Some((331, 181)));
    assert_eq!(record.tps.unavailable, Some(TpsUnavailable::HiddenOutput));
    let record = stream(&Bench::default(), english, 1.0, Some((185, 181)));
    assert_eq!(record.tps.unavailable, None, "all of it came");
}

#[test]
fn another_kind_of_text_of_a_known_model_hides_nothing() {
    let bench = Bench::default();
    let (_, english, _) = TEXTS[5];
    for _ in 0..20 {
        assert_eq!(stream(&bench, english, 1.01, None).tps.unavailable, None);
    }
    let german = "Die Geschäftsführung veröffentlichte gestern ihren Jahresbericht und wies darauf hin, dass die \
        Umsätze in den vergangenen zwölf Monaten deutlich gestiegen seien. ";
    let json = "{\"id\": 17, \"name\": \"Anna\", \"tags\": [\"a\", \"beta\"], \"score\": 0.25}\n";
    let csv = "17,204821,63.129,2026-11-29\n18,918273,4.501,2026-11-30\n";
    let numbers = "918273645\n204821\n77120934\n";
    for (text, ratio) in [(german, 1.5), (json, 1.35), (csv, 1.78), (numbers, 2.48)] {
        let record = stream(&bench, &text.repeat(5), ratio, None);
        assert_eq!(record.tps.unavailable, None, "{text}");
        let record = stream(&bench, &text.repeat(5), 3.0, None);
        assert_eq!(
            record.tps.unavailable,
            Some(TpsUnavailable::HiddenOutput),
            "{text}"
        );
    }
}

#[test]
fn a_long_stream_has_its_speed_by_tens_of_seconds_and_a_prompt_its_own() {
    let bench = Bench::default();
    let call = bench.chat();
    for chunk in 0..=300 {
        // 20 tokens a second for 20 s, then half as many.
        let at = if chunk <= 200 {
            chunk * 100
        } else {
            20_000 + (chunk - 200) * 200
        };
        bench.chunk(&*call, 1005 + at, answer(" word word"));
    }
    bench.chunk(&*call, 42_000, finish(Some(602)) + DONE);
    let record = bench.end(&*call, 42_000, End::Complete);
    let segments: Vec<_> = record
        .segments
        .iter()
        .map(|part| part.tokens as f64 / part.seconds)
        .collect();
    assert_eq!(segments.len(), 4);
    for (segment, should) in segments.iter().zip([20.0, 20.0, 10.0, 10.0]) {
        assert!((segment / should - 1.0).abs() < 0.03, "{segments:?}");
    }
    let sum: u64 = record.segments.iter().map(|segment| segment.tokens).sum();
    assert_eq!(
        Some(sum + 2),
        record.tokens.normalised.output,
        "tokens of the first chunk are excluded"
    );
    let prefill = record.tps.prefill.expect("a speed");
    assert!((prefill - 7.0).abs() < 0.01, "{prefill}");
}

#[test]
fn output_in_one_chunk_was_held_back() {
    let bench = Bench::default();
    let call = bench.chat();
    let text = " word".repeat(60);
    bench.chunk(&*call, 900, answer(&text) + &finish(Some(60)) + DONE);
    let record = bench.end(&*call, 901, End::Complete);
    assert_eq!(record.tps.unavailable, Some(TpsUnavailable::Buffered));
    let few = bench.chat();
    bench.chunk(&*few, 900, answer(" word word") + &finish(Some(2)) + DONE);
    let record = bench.end(&*few, 901, End::Complete);
    assert_eq!(record.tps.unavailable, Some(TpsUnavailable::TooFewTokens));
}

#[test]
fn a_call_of_a_tool_without_arguments_is_not_late() {
    let fixture = ObjectivesFixture::new("[[slo]]\nname = \"x\"\nttft.at_most = \"2s\"\n");
    let call = fixture.bench.chat();
    let tool = r#"{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"now","arguments":""}}]}"#;
    fixture.bench.chunk(&*call, 2500, choice(0, tool));
    fixture.bench.chunk(&*call, 2600, finish(Some(9)) + DONE);
    let record = fixture.bench.end(&*call, 2600, End::Complete);
    assert_eq!(record.dialect, dialect("openai_chat"));
    assert_eq!(fixture.counts(3000), only("excluded no_text", 1));
}
