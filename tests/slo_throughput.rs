//! An objective on the throughput of a system: minutes in which enough calls are under way.

use crate::objectives::ObjectivesFixture;
use std::collections::BTreeMap;
use tokengauge::observer::End;

const THROUGHPUT: &str = "[[slo]]\nname = \"x\"\nthroughput = { at_least = 45, min_streams = 2 }\n\
                          select.upstream = \"upstream\"\n";

#[test]
fn minutes_are_judged_by_the_tokens_of_all_calls_in_which_enough_are_under_way() {
    let fixture = ObjectivesFixture::new(THROUGHPUT);
    let [one, other] = [fixture.bench.chat(), fixture.bench.chat()];
    for second in 0..190 {
        let at = second * 1000;
        // 50 tokens a second, from the second minute on 30; from the third on one call.
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
    let expected = ["bad missed", "excluded too_few_streams", "good met"];
    let expected = expected.map(|name| (name.to_owned(), 1));
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
