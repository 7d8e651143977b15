//! An objective on the throughput of a system, which counts minutes with enough calls in flight.

use crate::objectives::{ObjectivesFixture, wall};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokengauge_core::observer::{End, ObservedCall};

const THROUGHPUT: &str = "[[slo]]\nname = \"x\"\nthroughput = { at_least = 45, min_streams = 2 }\n\
                          select.upstream = \"upstream\"\n";

#[test]
fn minutes_with_enough_calls_in_flight_are_judged_by_the_tokens_of_all_calls() {
    let fixture = ObjectivesFixture::new(THROUGHPUT);
    let [one, other] = [fixture.bench.chat(), fixture.bench.chat()];
    for second in 0..190 {
        let at = second * 1000;
        // 50 tokens a second, 30 from the second minute on, and only one call from the third minute on.
        let words = if second < 60 { 25 } else { 15 };
        fixture.stream(&*one, at + 100, 0, 1, words);
        if second < 120 {
            fixture.stream(&*other, at + 200, 0, 1, words);
        }
        if second == 120 {
            other.ended(fixture.bench.at(at), End::ClientCancelled);
        }
        fixture.tick(at + 500);
        if second == 64 {
            assert_eq!(fixture.counts(at), BTreeMap::new(), "it has not settled");
        }
    }
    let expected =
        ["bad missed", "excluded too_few_streams", "good met"].map(|name| (name.to_owned(), 1));
    assert_eq!(fixture.counts(190_000), BTreeMap::from(expected));
    let status = fixture.status(190_000);
    assert_eq!(status.promise, "throughput ≥ 45 tokens/s");
    assert_eq!((status.event.as_str(), status.spent_by.len()), ("1m", 0));
}

#[test]
fn an_upstream_that_says_nothing_is_bad_as_long_as_calls_wait_for_it() {
    let fixture = ObjectivesFixture::new(THROUGHPUT);
    let waiting = [fixture.bench.chat(), fixture.bench.chat()];
    for second in 0..70 {
        fixture.tick(second * 1000 + 500);
    }
    let expected = BTreeMap::from([("bad missed".to_owned(), 1)]);
    assert_eq!(fixture.counts(70_000), expected);
    drop(waiting);
}

fn begin(fixture: &ObjectivesFixture, agent: &str, millis: u64) -> Arc<dyn ObservedCall> {
    let headers = [("x-tokengauge-agent", agent)];
    let call = fixture
        .bench
        .begin_with("/v1/chat/completions", &headers, |mut start| {
            start.received = fixture.bench.at(millis);
            start
        });
    fixture
        .bench
        .send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
    fixture.bench.answer(&*call, 200, "text/event-stream");
    call
}

#[test]
fn if_an_agent_stops_the_cause_is_fewer_calls_and_not_the_upstream() {
    let slo = "[[slo]]\nname = \"x\"\nthroughput.at_least = 45\nselect.upstream = \"upstream\"\n";
    let fixture = ObjectivesFixture::new(slo);
    let (stops, end) = (24 * 60, 40 * 60);
    let mut calls: Vec<Arc<dyn ObservedCall>> = Vec::new();
    for second in 0..end {
        let at = second * 1000;
        // Each agent makes a call every half minute, with 25 tokens a second.
        if second % 30 == 0 {
            for call in calls.drain(..) {
                fixture.complete(&*call, at);
            }
            let agents = if second < stops {
                &["coder", "crawler"][..]
            } else {
                &["coder"]
            };
            calls = agents
                .iter()
                .map(|agent| begin(&fixture, agent, at))
                .collect();
        }
        for call in &calls {
            fixture.stream(&**call, at + 100, 0, 1, 25);
        }
        fixture.tick(at + 500);
    }
    let now = end * 1000;
    fixture.bench.finished_calls();
    fixture
        .slos
        .look_for_causes(fixture.bench.at(now), wall(now));
    let cause = fixture.status(now).cause.expect("a cause");
    let cause = serde_json::to_value(&*cause).expect("JSON");
    assert_eq!(cause["mechanism"], "fewer_calls", "{cause}");
    assert_eq!(
        (&cause["dimension"], &cause["value"]),
        (&json!("agent"), &json!("crawler")),
        "{cause}"
    );
    for (when, tokens, calls) in [("before", 50.0, 2.0), ("now", 25.0, 1.0)] {
        let rates = &cause["throughput"][when];
        let rate = |name: &str| rates[name].as_f64().expect("a number");
        assert!(
            (rate("tokens_per_second") / tokens - 1.0).abs() < 0.05,
            "{cause}"
        );
        assert!((rate("under_way") / calls - 1.0).abs() < 0.05, "{cause}");
    }
}
