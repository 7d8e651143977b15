//! Every reason for a call without TPS, and which reason is recorded if several apply.

use tokengauge_core::call::TpsUnavailable::{self, *};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_core::observer::{End, ObservedCall};
use tokengauge_test_support::meter::{Bench, DONE, choice, event, finish, thoughts, words};

/// Plays `chunks` as (milliseconds, body) and ends the call cleanly.
fn play(bench: &Bench, chunks: &[(u64, String)]) -> CallRecord {
    let call = bench.chat();
    for (millis, body) in chunks {
        bench.chunk(&*call, *millis, body);
    }
    bench.end(&*call, 60_000, End::Complete)
}

fn steady(count: u64, tokens: usize, gap: u64) -> Vec<(u64, String)> {
    (0..count)
        .map(|chunk| (1000 + chunk * gap, words(tokens)))
        .collect()
}

fn ended(mut chunks: Vec<(u64, String)>, output: Option<u64>) -> Vec<(u64, String)> {
    chunks.push((50_000, finish(output) + DONE));
    chunks
}

fn assert_reason(record: &CallRecord, reason: TpsUnavailable) {
    assert_eq!(record.tps.unavailable, Some(reason), "{:?}", record.tps);
    assert_eq!((record.tps.output, record.tps.answer), (None, None));
}

#[test]
fn enough_tokens_in_enough_chunks_have_a_speed() {
    let record = play(&Bench::default(), &ended(steady(5, 8, 100), Some(40)));
    assert_eq!(record.tps.unavailable, None);
    assert_eq!(record.tps.output, Some(80.0), "32 tokens in 0.4 s");
}

#[test]
fn one_token_less_than_the_minimum_is_too_few() {
    let mut chunks = steady(4, 8, 100);
    chunks.push((1400, words(7)));
    assert_reason(&play(&Bench::default(), &ended(chunks, None)), TooFewTokens);
}

#[test]
fn three_chunks_are_too_few_whatever_they_carry() {
    assert_reason(
        &play(&Bench::default(), &ended(steady(3, 50, 1000), None)),
        TooFewChunks,
    );
}

#[test]
fn faster_than_any_model_was_buffered() {
    let record = play(&Bench::default(), &ended(steady(11, 51, 10), None));
    assert_reason(&record, Buffered);
    let record = play(&Bench::default(), &ended(steady(10, 50, 0), None));
    assert_reason(&record, Buffered);
    let slower = play(&Bench::default(), &ended(steady(11, 50, 10), None));
    assert_eq!(slower.tps.output, Some(5000.0), "5,000 is not over 5,000");
}

#[test]
fn several_choices_have_no_single_speed() {
    let chunks = (0..40).map(|chunk| {
        let delta = "{\"content\":\" word word\"}";
        (1000 + chunk * 100, choice(chunk as u32 % 2, delta))
    });
    let record = play(&Bench::default(), &ended(chunks.collect(), None));
    assert_reason(&record, MultipleChoices);
    assert_eq!(record.tokens.normalised.output, Some(80));
}

#[test]
fn several_choices_asked_for_are_enough() {
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(
        &*call,
        br#"{"model":"m","stream":true,"n":2,"messages":[]}"#,
    );
    bench.answer(&*call, 200, "text/event-stream");
    for (millis, body) in ended(steady(10, 8, 100), None) {
        bench.chunk(&*call, millis, body);
    }
    assert_reason(&bench.end(&*call, 60_000, End::Complete), MultipleChoices);
}

#[test]
fn far_more_reported_than_streamed_is_hidden_reasoning() {
    let record = play(&Bench::default(), &ended(steady(10, 8, 100), Some(161)));
    assert_reason(&record, HiddenOutput);
    let twice = play(&Bench::default(), &ended(steady(10, 8, 100), Some(160)));
    assert_eq!(twice.tps.unavailable, None, "twice is not more than twice");
}

#[test]
fn output_that_cannot_have_been_sent_is_hidden_whatever_the_parts_say() {
    let play = |usage: &str| {
        let last = format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n");
        let mut chunks = steady(10, 8, 100);
        chunks.push((50_000, finish(None) + &last + DONE));
        play(&Bench::default(), &chunks)
    };
    for usage in [
        r#"{"completion_tokens":400,"completion_tokens_details":{"reasoning_tokens":0}}"#,
        r#"{"completion_tokens":400,"completion_tokens_details":{"rejected_prediction_tokens":20}}"#,
    ] {
        assert_reason(&play(usage), HiddenOutput);
    }
    let rejected = play(
        r#"{"completion_tokens":400,"completion_tokens_details":{"rejected_prediction_tokens":320}}"#,
    );
    assert_eq!(rejected.tps.unavailable, None);
    assert_eq!(rejected.tps.reported, rejected.tps.output, "80 were sent");
    assert_eq!(rejected.tokens.reported.output, Some(400));
}

#[test]
fn streamed_reasoning_is_not_hidden() {
    let mut chunks: Vec<_> = (0..20).map(|n| (1000 + n * 100, thoughts(10))).collect();
    chunks.push((3000, words(5)));
    let record = play(&Bench::default(), &ended(chunks, Some(210)));
    assert_eq!(record.tps.unavailable, None);
    assert_eq!(record.tps.answer, None, "one chunk of answer has no pace");
}

#[test]
fn a_body_that_came_whole_was_not_streamed() {
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(&*call, b"{}");
    bench.answer(&*call, 200, "application/json");
    bench.chunk(
        &*call,
        100,
        "{\"choices\":[{\"message\":{\"content\":\"Hello\"},\"finish_reason\":\"stop\"}]}",
    );
    assert_reason(&bench.end(&*call, 200, End::Complete), NotStreamed);
}

#[test]
fn chunks_that_were_skipped_leave_the_call_lagged_and_its_counts_unknown() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 1000, words(50));
    call.lagged(3, 300);
    bench.chunk(&*call, 2000, finish(None) + DONE);
    let record = bench.end(&*call, 2100, End::Complete);
    assert_reason(&record, Lagged);
    assert_eq!(record.outcome, Outcome::Complete);
    assert_eq!(
        (record.tokens.normalised.output, record.tps.total),
        (None, None)
    );
    assert_eq!(record.seconds.ttft, Some(1.0), "it was seen before the lag");
    let shown = (words(50).len() + finish(None).len() + DONE.len()) as u64;
    assert_eq!(
        record.bytes.response,
        shown + 300,
        "bytes that were not shown count"
    );
    assert_eq!(
        bench.meter.stats(std::time::Instant::now()).lagged_chunks,
        3
    );
}

#[test]
fn an_unknown_dialect_and_an_unreadable_body_are_unparsed() {
    let bench = Bench::default();
    let unknown = bench.begin("/v1/models", &[]);
    bench.send(&*unknown, b"");
    bench.answer(&*unknown, 200, "application/json");
    bench.chunk(&*unknown, 100, "{}");
    assert_reason(&bench.end(&*unknown, 200, End::Complete), Unparsed);

    let broken = bench.begin("/v1/chat/completions", &[]);
    bench.send(&*broken, b"{}");
    bench.answer(&*broken, 200, "application/json");
    bench.chunk(&*broken, 100, "<html>not JSON</html>");
    let record = bench.end(&*broken, 200, End::Complete);
    assert_reason(&record, Unparsed);
    assert_eq!(record.tokens.normalised.output, None);
}

#[test]
fn an_encoding_that_is_not_one_is_unparsed() {
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(&*call, b"{}");
    let headers = [
        ("content-type", "text/event-stream"),
        ("content-encoding", "gzip"),
    ];
    let headers = tokengauge_test_support::meter::header_map(&headers);
    call.head(bench.at(50), http::StatusCode::OK, &headers);
    bench.chunk(&*call, 100, words(10));
    assert_reason(&bench.end(&*call, 200, End::Complete), Unparsed);
}

#[test]
fn a_bad_end_before_the_minimum_ended_early_and_after_it_does_not() {
    let bench = Bench::default();
    let cancel = |chunks: u64| {
        let call = bench.chat();
        for (millis, body) in steady(chunks, 8, 100) {
            bench.chunk(&*call, millis, body);
        }
        bench.end(&*call, 60_000, End::ClientCancelled)
    };
    assert_reason(&cancel(4), EndedEarly);
    let enough = cancel(5);
    assert_eq!(
        (enough.tps.output, enough.tps.unavailable),
        (Some(80.0), None)
    );
    assert_eq!(enough.outcome, Outcome::ClientCancelled);
}

#[test]
fn a_call_without_an_answer_ended_early() {
    let bench = Bench::default();
    let call = bench.begin("/v1/whatever", &[]);
    let kind = tokengauge_core::observer::FailureKind::Connect;
    assert_reason(&bench.end(&*call, 10, End::Failed(kind)), EndedEarly);
}

#[test]
fn reasons_for_unknown_values_override_reasons_for_short_calls() {
    let bench = Bench::default();
    let call: std::sync::Arc<dyn ObservedCall> = bench.chat();
    bench.chunk(&*call, 1000, event("{\"content\":\"a\"}"));
    call.lagged(1, 100);
    assert_reason(&bench.end(&*call, 2000, End::ClientCancelled), Lagged);
}
