//! Every formula, on calls that are played with constructed instants.

use tokengauge_core::call::Source;
use tokengauge_core::observer::End;
use tokengauge_test_support::meter::{Bench, DONE, event, finish, thoughts, words};

fn close(is: Option<f64>, should: f64) -> bool {
    is.is_some_and(|is| (is - should).abs() < 1e-9)
}

#[test]
fn a_stream_gives_every_instant_and_every_speed() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(
        &*call,
        60,
        event("{\"role\":\"assistant\",\"content\":\"\"}"),
    );
    bench.chunk(&*call, 100, words(8));
    for chunk in 1..=8 {
        bench.chunk(&*call, 100 + chunk * 125, words(7));
    }
    bench.chunk(&*call, 1200, finish(Some(70)) + DONE);
    let record = bench.end(&*call, 1300, End::Complete);

    assert_eq!(record.tokens.normalised.output, Some(64));
    assert_eq!(record.tps.unavailable, None);
    assert!(
        close(record.tps.output, 56.0),
        "(64 − 8) / 1 s: {:?}",
        record.tps
    );
    assert!(close(record.tps.answer, 56.0));
    assert!(close(record.tps.total, 64.0 / 1.3));
    let seconds = record.seconds;
    assert!(close(seconds.ttft, 0.1) && close(seconds.first_answer, 0.1));
    assert!(close(seconds.ttft_upstream, 0.095));
    assert!(close(seconds.connect, 0.002) && close(seconds.upload, 0.003));
    assert!(close(seconds.longest_gap, 0.125) && close(seconds.duration, 1.3));
    assert_eq!((record.frames, record.stalls), (9, 0));
    assert_eq!(record.first_token_event, Some(1));
    assert_eq!(record.tokens.source, Some(Source::Reported));
    assert_eq!(record.tokens.reported.output, Some(70));
}

#[test]
fn role_only_deltas_comments_usage_and_done_are_not_tokens() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 60, ": ping\n\n");
    bench.chunk(&*call, 70, event("{\"role\":\"assistant\"}"));
    bench.chunk(&*call, 80, event("{\"content\":\"\"}"));
    bench.chunk(&*call, 90, event("{\"content\":null}"));
    bench.chunk(&*call, 300, words(1));
    bench.chunk(&*call, 400, finish(Some(1)));
    bench.chunk(&*call, 500, DONE);
    let record = bench.end(&*call, 600, End::Complete);
    assert!(close(record.seconds.ttft, 0.3));
    assert_eq!((record.frames, record.first_token_event), (1, Some(3)));
    assert_eq!(record.seconds.longest_gap, None);
}

#[test]
fn the_answer_is_timed_and_paced_without_the_reasoning_before_it() {
    let bench = Bench::default();
    let call = bench.chat();
    for chunk in 0..10 {
        bench.chunk(&*call, 1000 + chunk * 100, thoughts(10));
    }
    for chunk in 0..11 {
        bench.chunk(&*call, 4000 + chunk * 100, words(5));
    }
    bench.chunk(&*call, 5100, finish(None) + DONE);
    let record = bench.end(&*call, 5200, End::Complete);
    let normalised = record.tokens.normalised;
    assert_eq!(
        (normalised.reasoning, normalised.answer),
        (Some(100), Some(55))
    );
    assert_eq!(normalised.output, Some(155));
    assert!(close(record.seconds.ttft, 1.0) && close(record.seconds.first_answer, 4.0));
    assert!(close(record.tps.output, 145.0 / 4.0));
    assert!(close(record.tps.answer, 50.0));
    assert_eq!(record.stalls, 1, "from 1.9 s to 4 s");
    assert!(close(record.seconds.longest_gap, 2.1));
    assert_eq!(record.tokens.source, Some(Source::Counted));
}

#[test]
fn total_tps_is_never_above_output_tps_for_a_steady_stream() {
    let bench = Bench::default();
    let call = bench.chat();
    for chunk in 0..50 {
        bench.chunk(&*call, 200 + chunk * 20, words(2));
    }
    bench.chunk(&*call, 1200, finish(None) + DONE);
    let record = bench.end(&*call, 1210, End::Complete);
    assert!(record.tps.total.expect("total") <= record.tps.output.expect("output"));
}

#[test]
fn events_of_one_chunk_share_its_instant_and_its_tokens_are_left_out_together() {
    let bench = Bench::default();
    let call = bench.chat();
    bench.chunk(&*call, 100, words(3) + &words(4) + &words(1));
    for chunk in 1..=4 {
        bench.chunk(&*call, 100 + chunk * 250, words(7) + &words(7));
    }
    bench.chunk(&*call, 1200, finish(None) + DONE);
    let record = bench.end(&*call, 1200, End::Complete);
    assert_eq!(record.frames, 5);
    assert!(close(record.tps.output, 56.0));
}

#[test]
fn latencies_by_token_add_up_to_the_decode_time() {
    let bench = Bench::default();
    let call = bench.chat();
    for chunk in 0..20 {
        bench.chunk(&*call, 100 + chunk * 50, words(1 + chunk as usize % 4));
    }
    bench.chunk(&*call, 1100, finish(None) + DONE);
    call.ended(bench.at(1200), End::Complete);
    let finished_call = bench.finished_calls()[0].clone();
    let inter_token = finished_call.inter_token.as_deref().expect("latencies");
    let (tokens, seconds) = finished_call.decode.expect("a decode speed");
    assert_eq!(inter_token.tokens(), tokens);
    let sum: f64 = inter_token
        .classes()
        .map(|(mean, n)| mean * f64::from(n))
        .sum();
    assert!((sum - seconds).abs() < 1e-9 && (seconds - 0.95).abs() < 1e-9);
}

#[test]
fn a_body_that_came_whole_has_a_total_and_a_duration_and_no_ttft() {
    let bench = Bench::default();
    let call = bench.begin("/v1/chat/completions", &[]);
    bench.send(
        &*call,
        br#"{"model":"m","messages":[{"role":"user","content":"Why is the sky blue?"}]}"#,
    );
    bench.answer(&*call, 200, "application/json");
    let text = " word".repeat(40);
    let body = format!(
        "{{\"model\":\"m-1\",\"choices\":[{{\"index\":0,\"message\":{{\"content\":\"{text}\"}},\"finish_reason\":\"stop\"}}]}}"
    );
    for (chunk, piece) in body.as_bytes().chunks(30).enumerate() {
        bench.chunk(&*call, 500 + chunk as u64, piece);
    }
    let record = bench.end(&*call, 2000, End::Complete);
    assert_eq!(record.streamed, Some(false));
    assert_eq!(record.tokens.normalised.output, Some(40));
    assert_eq!(
        record.tokens.normalised.input,
        Some(6),
        "counted: none was reported"
    );
    assert!(close(record.tps.total, 20.0) && close(record.seconds.duration, 2.0));
    assert_eq!(
        (record.seconds.ttft, record.seconds.first_answer),
        (None, None)
    );
    assert_eq!(
        (record.tps.output, record.tps.answer, record.frames),
        (None, None, 0)
    );
    assert_eq!(record.finish_reasons, ["stop"]);
    assert_eq!(bench.meter.stats(std::time::Instant::now()).held_bytes, 0);
}
