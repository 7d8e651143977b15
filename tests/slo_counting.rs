//! Whether a call counts as good or bad, when it counts, and that it counts once.

use crate::objectives::{ObjectivesFixture, TOKENS, TTFT, only};
use std::collections::BTreeMap;
use tokengauge_core::observer::{End, FailureKind};
use tokengauge_test_support::meter::words;

#[test]
fn a_first_token_in_time_is_good_and_a_late_one_bad() {
    for (first, expected) in [(2_000, "good met"), (2_001, "bad missed")] {
        let fixture = ObjectivesFixture::new(TTFT);
        let call = fixture.bench.chat();
        let last = fixture.stream(&*call, first, 20, 40, 1);
        fixture.complete(&*call, last + 1);
        assert_eq!(fixture.counts(9_000), only(expected, 1));
    }
}

#[test]
fn a_missed_deadline_counts_when_it_passes_and_not_again_when_the_stream_ends() {
    let fixture = ObjectivesFixture::new(TTFT);
    let call = fixture.bench.chat();
    fixture.tick(1_000);
    fixture.tick(2_200);
    assert_eq!(
        fixture.counts(2_200),
        BTreeMap::new(),
        "a token of 2 s may still be on its way"
    );
    fixture.tick(2_600);
    assert_eq!(fixture.counts(2_600), only("bad deadline", 1));
    fixture.tick(3_300);
    let last = fixture.stream(&*call, 5_000, 20, 40, 1);
    fixture.tick(6_000);
    fixture.complete(&*call, last + 1);
    fixture.tick(7_000);
    assert_eq!(fixture.counts(7_000), only("bad deadline", 1));
    let spent = &fixture.status(7_000).spent_by[0];
    assert_eq!(spent.call, fixture.bench.newest().id);
}

#[test]
fn who_waits_in_vain_waits_too_long_however_it_ends() {
    for (end, late) in [
        (End::ClientCancelled, "bad deadline"),
        (End::UpstreamReset, "bad deadline"),
        (End::Failed(FailureKind::IdleTimeout), "bad deadline"),
    ] {
        for (at, expected) in [
            (2_400, late),
            (
                1_900,
                match end {
                    End::ClientCancelled => "excluded client_cancelled",
                    End::UpstreamReset => "excluded upstream_reset",
                    _ => "excluded timeout",
                },
            ),
        ] {
            let fixture = ObjectivesFixture::new(TTFT);
            let call = fixture.bench.chat();
            call.ended(fixture.bench.at(at), end.clone());
            assert_eq!(fixture.counts(3_000), only(expected, 1), "{end:?} at {at}");
        }
    }
}

#[test]
fn an_answer_in_one_body_has_no_deadline_for_its_first_token() {
    let fixture = ObjectivesFixture::new(TTFT);
    let call = fixture.bench.begin("/v1/chat/completions", &[]);
    fixture
        .bench
        .send(&*call, br#"{"model":"asked","stream":false,"messages":[]}"#);
    fixture.tick(5_000);
    fixture.bench.answer(&*call, 200, "application/json");
    let body = r#"{"model":"m","choices":[{"index":0,"message":{"content":"a b c"},"finish_reason":"stop"}]}"#;
    fixture.bench.chunk(&*call, 6_000, body);
    call.ended(fixture.bench.at(6_000), End::Complete);
    assert_eq!(fixture.counts(7_000), only("excluded not_streamed", 1));
}

#[test]
fn availability_is_the_upstreams_and_the_proxys() {
    let fixture = |end: &dyn Fn(&ObjectivesFixture)| {
        let fixture = ObjectivesFixture::new("[[slo]]\nname = \"x\"\navailability = true\n");
        end(&fixture);
        fixture.counts(9_000)
    };
    let status = |status: u16| {
        fixture(&move |fixture| {
            let call = fixture.bench.begin("/v1/chat/completions", &[]);
            fixture.bench.send(&*call, b"{}");
            fixture.bench.answer(&*call, status, "application/json");
            fixture.bench.chunk(&*call, 60, "{}");
            call.ended(fixture.bench.at(70), End::Complete);
        })
    };
    assert_eq!(status(400), only("excluded client_error", 1));
    assert_eq!(status(404), only("excluded client_error", 1));
    assert_eq!(status(429), only("bad http_error", 1));
    assert_eq!(status(500), only("bad http_error", 1));
    assert_eq!(status(529), only("bad http_error", 1));
    let ended = |end: End| {
        fixture(&move |fixture| {
            let call = fixture.bench.chat();
            let last = fixture.stream(&*call, 100, 20, 40, 1);
            call.ended(fixture.bench.at(last + 1), end.clone());
        })
    };
    assert_eq!(
        ended(End::ClientCancelled),
        only("excluded client_cancelled", 1)
    );
    assert_eq!(ended(End::UpstreamReset), only("bad upstream_reset", 1));
    assert_eq!(ended(End::Drained), only("bad drained", 1));
    assert_eq!(
        ended(End::Failed(FailureKind::AgentSendTimeout)),
        only("excluded client_cancelled", 1)
    );
    assert_eq!(
        ended(End::Failed(FailureKind::Connect)),
        only("bad unreachable", 1)
    );
    assert_eq!(
        ended(End::Failed(FailureKind::RateLimited)),
        only("excluded rejected", 1)
    );
    let error_inside = fixture(&|fixture| {
        let call = fixture.bench.chat();
        fixture.bench.chunk(
            &*call,
            100,
            "data: {\"error\":{\"type\":\"overloaded\"}}\n\n",
        );
        call.ended(fixture.bench.at(101), End::Complete);
    });
    assert_eq!(error_inside, only("bad error_event", 1));
    let complete = fixture(&|fixture| {
        let call = fixture.bench.chat();
        let last = fixture.stream(&*call, 100, 20, 40, 1);
        fixture.complete(&*call, last + 1);
    });
    assert_eq!(complete, only("good met", 1));
}

#[test]
fn a_call_without_a_speed_is_excluded_with_its_reason() {
    let slo = "[[slo]]\nname = \"x\"\noutput_tps.at_least = 30\n";
    let fixture = ObjectivesFixture::new(slo);
    let call = fixture.bench.chat();
    let last = fixture.stream(&*call, 100, 20, 5, 1);
    fixture.complete(&*call, last + 1);
    assert_eq!(fixture.counts(9_000), only("excluded too_few_tokens", 1));
    let fixture = ObjectivesFixture::new(&format!("{slo}min_output_tokens = 100\n"));
    let call = fixture.bench.chat();
    let last = fixture.stream(&*call, 100, 20, 80, 1);
    fixture.complete(&*call, last + 1);
    assert_eq!(fixture.counts(9_000), only("excluded too_few_tokens", 1));
    let fixture = ObjectivesFixture::new(slo);
    let call = fixture.bench.chat();
    fixture.bench.chunk(&*call, 100, words(1));
    call.ended(fixture.bench.at(200), End::ClientCancelled);
    assert_eq!(fixture.counts(9_000), only("excluded client_cancelled", 1));
}

#[test]
fn calls_during_the_warm_up_count_unless_the_objective_says_otherwise() {
    for (warm_up, expected) in [("true", "bad missed"), ("false", "excluded warm_up")] {
        let fixture = ObjectivesFixture::warmed(&format!("{TTFT}warm_up = {warm_up}\n"), 1);
        let call = fixture.bench.chat();
        let last = fixture.stream(&*call, 2_100, 20, 40, 1);
        fixture.tick(4_000);
        fixture.complete(&*call, last + 1);
        assert_eq!(fixture.counts(9_000), only(expected, 1));
    }
}

#[test]
fn tokens_of_a_long_stream_count_by_segments_while_it_runs() {
    let fixture = ObjectivesFixture::new(TOKENS);
    let call = fixture.bench.chat();
    // 20 tokens/s for 10 s, then 5 tokens/s for 10 s, then 20 tokens/s for 3 s.
    fixture.stream(&*call, 1_000, 50, 201, 1);
    fixture.tick(10_900);
    assert_eq!(
        fixture.counts(10_900),
        BTreeMap::new(),
        "no segment is over"
    );
    fixture.tick(11_000);
    assert_eq!(fixture.counts(11_000), only("good met", 200));
    fixture.stream(&*call, 11_200, 200, 50, 1);
    fixture.tick(21_000);
    let both = BTreeMap::from([("good met".to_owned(), 200), ("bad missed".to_owned(), 50)]);
    assert_eq!(fixture.counts(21_000), both);
    let last = fixture.stream(&*call, 21_050, 50, 60, 1);
    fixture.complete(&*call, last + 1);
    let all = BTreeMap::from([("good met".to_owned(), 260), ("bad missed".to_owned(), 50)]);
    assert_eq!(
        fixture.counts(25_000),
        all,
        "every token after the first chunk, once"
    );
    assert_eq!(fixture.status(25_000).good, 260.0);
}

#[test]
fn the_tokens_behind_a_gap_answer_for_it() {
    let fixture = ObjectivesFixture::new(TOKENS);
    let call = fixture.bench.chat();
    fixture.stream(&*call, 1_000, 50, 41, 1);
    for second in 4..40 {
        fixture.tick(second * 1_000);
    }
    assert_eq!(
        fixture.counts(40_000),
        only("good met", 40),
        "closed at the last chunk before the gap"
    );
    let last = fixture.stream(&*call, 40_000, 50, 20, 1);
    fixture.complete(&*call, last + 1);
    let all = BTreeMap::from([("good met".to_owned(), 40), ("bad missed".to_owned(), 20)]);
    assert_eq!(fixture.counts(45_000), all);
}

#[test]
fn a_stream_that_is_cut_off_keeps_its_earlier_verdicts() {
    let fixture = ObjectivesFixture::new(TOKENS);
    let call = fixture.bench.chat();
    let last = fixture.stream(&*call, 1_000, 50, 240, 1);
    fixture.tick(11_500);
    call.ended(fixture.bench.at(last + 1), End::UpstreamReset);
    let counts = fixture.counts(20_000);
    assert_eq!(counts.values().sum::<u64>(), 239, "{counts:?}");
}

#[test]
fn gaps_stalls_and_the_whole_duration_have_thresholds_too() {
    for (sli, expected) in [
        ("longest_gap.at_most = \"250ms\"", "bad missed"),
        ("longest_gap.at_most = \"700ms\"", "good met"),
        ("stalls.at_most = 0", "good met"),
        ("duration.at_most = \"1s\"", "bad missed"),
        ("duration.at_most = \"10s\"", "good met"),
        ("inter_token_latency.at_most = \"20ms\"", "bad missed"),
        ("inter_token_latency.at_most = \"40ms\"", "good met"),
        ("total_tps.at_least = 50", "bad missed"),
        ("total_tps.at_least = 20", "good met"),
        ("time_to_first_answer.at_most = \"100ms\"", "good met"),
        ("cost_usd.at_most = 1", "excluded no_price"),
        (
            "cost_usd.at_most = 0.0001\n[[price]]\nmodel = \"m-1\"\noutput = 2.5",
            "bad missed",
        ),
        (
            "cost_usd.at_most = 0.0001\n[[price]]\nmodel = \"m-1\"\noutput = 1",
            "good met",
        ),
    ] {
        let fixture = ObjectivesFixture::new(&format!("[[slo]]\nname = \"x\"\n{sli}\n"));
        let call = fixture.bench.chat();
        let last = fixture.stream(&*call, 100, 20, 40, 1);
        let last = fixture.stream(&*call, last + 600, 20, 20, 1);
        fixture.complete(&*call, last + 1);
        assert_eq!(fixture.counts(9_000), only(expected, 1), "{sli}");
    }
}

#[test]
fn gaps_count_token_by_token_where_asked() {
    let slo = "[[slo]]\nname = \"x\"\ninter_token_latency.at_most = \"40ms\"\nweight = \"token\"\n";
    let fixture = ObjectivesFixture::new(slo);
    let call = fixture.bench.chat();
    let last = fixture.stream(&*call, 100, 20, 41, 1);
    let last = fixture.stream(&*call, last + 80, 80, 10, 1);
    fixture.complete(&*call, last + 1);
    let all = BTreeMap::from([("good met".to_owned(), 40), ("bad missed".to_owned(), 10)]);
    assert_eq!(fixture.counts(9_000), all);
}

#[test]
fn a_duration_is_missed_while_the_call_still_runs() {
    let fixture = ObjectivesFixture::new("[[slo]]\nname = \"x\"\nduration.at_most = \"3s\"\n");
    let call = fixture.bench.chat();
    fixture.stream(&*call, 100, 20, 40, 1);
    fixture.tick(3_600);
    assert_eq!(fixture.counts(3_600), only("bad deadline", 1));
    call.ended(fixture.bench.at(4_000), End::ClientCancelled);
    assert_eq!(fixture.counts(4_000), only("bad deadline", 1));
}

#[test]
fn the_selector_decides_which_calls_count() {
    let slo =
        format!("{TTFT}select = {{ route = \"route\", model = \"as*\", agent = \"codex*\" }}\n");
    for (agent, expected) in [("codex/1.0", 1), ("curl/8", 0)] {
        let fixture = ObjectivesFixture::new(&slo);
        let call = fixture
            .bench
            .begin("/v1/chat/completions", &[("user-agent", agent)]);
        fixture
            .bench
            .send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
        fixture.tick(4_000);
        call.ended(
            fixture.bench.at(4_100),
            End::Failed(FailureKind::HeadTimeout),
        );
        let bad: u64 = fixture.counts(5_000).values().sum();
        assert_eq!(bad, expected, "{agent}");
    }
}
