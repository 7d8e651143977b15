//! Counts over time: slices, budgets, burn rates, alerts, restarts.

use crate::objectives::{ObjectivesFixture, TTFT, config, only, wall};
use std::collections::BTreeMap;
use std::time::Duration;
use tokengauge_core::observer::End;
use tokengauge_slo::{SavedState, Slos};
use tokengauge_test_support::meter::event;

#[test]
fn slices_of_time_are_good_when_enough_of_their_calls_are() {
    let slo = "[[slo]]\nname = \"x\"\nttft.at_most = \"2s\"\nslice = \"5m\"\nslice_target = 0.9\n";
    let fixture = ObjectivesFixture::new(slo);
    let minute = 60_000;
    let play = |begin: u64, ttft: u64| {
        let call = fixture
            .bench
            .begin_with("/v1/chat/completions", &[], |mut start| {
                start.received = fixture.bench.at(begin);
                start
            });
        fixture
            .bench
            .send(&*call, br#"{"model":"asked","stream":true,"messages":[]}"#);
        fixture.bench.answer(&*call, 200, "text/event-stream");
        let last = fixture.stream(&*call, begin + ttft, 20, 5, 1);
        fixture.complete(&*call, last + 1);
    };
    // 1 700 000 000 is 200 s into a slice of 5 minutes, so the first slice ends after 100 s.
    (0..9).for_each(|n| play(n * 1_000, 100));
    play(20_000, 2_500);
    fixture.bench.finished_calls();
    fixture.tick(2 * minute);
    assert_eq!(
        fixture.counts(2 * minute),
        only("good met", 1),
        "nine of ten are good"
    );
    (0..9).for_each(|n| play(2 * minute + n * 1_000, 100));
    (0..2).for_each(|n| play(3 * minute + n * 1_000, 2_500));
    fixture.bench.finished_calls();
    fixture.tick(7 * minute);
    fixture.tick(12 * minute);
    let all = BTreeMap::from([
        ("good met".to_owned(), 1),
        ("bad missed".to_owned(), 1),
        ("excluded no_traffic".to_owned(), 1),
    ]);
    assert_eq!(fixture.counts(12 * minute), all);
}

#[test]
fn budget_burn_and_alerts_follow_from_the_counts() {
    let fixture = ObjectivesFixture::new(&format!("{TTFT}objective = 0.9\n"));
    let fresh = fixture.status(0);
    assert_eq!((fresh.budget_remaining, fresh.ratio), (1.0, None));
    assert!(fresh.alerts.iter().all(|alert| !alert.firing));
    for n in 0..100 {
        let call = fixture.bench.chat();
        let last = fixture.stream(&*call, if n < 5 { 2_500 } else { 500 }, 20, 5, 1);
        fixture.complete(&*call, last + 1);
    }
    let status = fixture.status(3_000);
    assert!(
        (status.budget_remaining - 0.5).abs() < 1e-9,
        "{}",
        status.budget_remaining
    );
    assert_eq!(status.ratio, Some(0.95));
    assert!(
        (status.burn[0].rate - 0.5).abs() < 1e-9,
        "{:?}",
        status.burn
    );
    assert!(status.alerts.iter().all(|alert| !alert.firing));
    for _ in 0..1_900 {
        let call = fixture.bench.chat();
        call.ended(fixture.bench.at(2_500), End::ClientCancelled);
    }
    let status = fixture.status(3_000);
    assert!(
        status.budget_remaining < -8.0,
        "{}",
        status.budget_remaining
    );
    // Fast alerts fire at once. Three seconds are too short for alerts over days.
    for alert in &status.alerts {
        assert_eq!(alert.firing, !alert.tier.is_slow_ticket(), "{alert:?}");
        assert!(alert.observed_seconds < 4.0, "{alert:?}");
    }
    assert_eq!(status.exhausted_in_seconds, Some(0.0));
    assert_eq!(status.spent_by.len(), 50, "bounded");
}

#[test]
fn a_ticket_over_a_day_comes_when_its_short_window_was_observed() {
    let fixture = ObjectivesFixture::new(&format!("{TTFT}objective = 0.9\n"));
    let tickets = |millis: u64| {
        for _ in 0..20 {
            let call = fixture.bench.chat();
            let last = fixture.stream(&*call, millis + 2_500, 20, 5, 1);
            fixture.complete(&*call, last + 1);
        }
        let alerts = fixture.status(millis + 5_000).alerts;
        let slow = alerts.iter().filter(|alert| alert.tier.is_slow_ticket());
        slow.filter(|alert| alert.firing).count()
    };
    let hour = 3_600_000;
    assert_eq!(tickets(0), 0);
    assert_eq!(tickets(hour), 0);
    assert_eq!(tickets(2 * hour), 1, "over a day: two hours are observed");
    assert_eq!(tickets(6 * hour), 2);
}

#[test]
fn counts_continue_after_a_restart_and_keep_their_age_when_the_clock_is_set() {
    let spend = |fixture: &ObjectivesFixture, calls: usize| {
        for _ in 0..calls {
            let call = fixture.bench.chat();
            call.ended(fixture.bench.at(2_500), End::ClientCancelled);
        }
        fixture.bench.finished_calls();
    };
    let first = ObjectivesFixture::new(TTFT);
    spend(&first, 7);
    let kept = first
        .slos
        .kept(first.bench.at(3_000), wall(3_000))
        .expect("something changed");
    assert_eq!(
        first.slos.kept(first.bench.at(3_000), wall(3_000)),
        None,
        "nothing new"
    );
    let text = serde_json::to_string(&kept).expect("JSON");
    let kept: SavedState = serde_json::from_str(&text).expect("the same");
    let week = Duration::from_secs(7 * 86_400);
    let config = config(TTFT);
    let now = std::time::Instant::now();
    let start = |kept: &SavedState, at| {
        let slos = Slos::new(&config.slos, &config.measure, now, at);
        slos.restore(kept, at);
        slos
    };
    let bad = |slos: &Slos| slos.status(now).remove(0).bad;
    for later in [
        wall(60_000),
        wall(0) + week,
        wall(0) - week,
        wall(0) + 5 * week,
    ] {
        let expected = if later > wall(0) + 4 * week { 0.0 } else { 7.0 };
        assert_eq!(bad(&start(&kept, later)), expected, "{later:?}");
    }
    let ahead = start(&kept, wall(0) + 5 * week);
    assert_eq!(bad(&ahead), 0.0, "too old by this clock");
    ahead.keep_again();
    let written = ahead.kept(now, wall(1_000) + 5 * week).expect("something");
    ahead.tick(now, wall(60_000), &first.bench.meter);
    assert_eq!(bad(&ahead), 7.0, "the clock was wrong");
    assert_eq!(bad(&start(&written, wall(60_000))), 7.0, "and at a restart");
    let changed = |slo: &str| {
        let fixture = ObjectivesFixture::new(slo);
        fixture.slos.restore(&kept, wall(0));
        fixture.status(0).bad
    };
    assert_eq!(
        changed(&format!("{TTFT}objective = 0.5\nwindow = \"7d\"\n")),
        7.0
    );
    assert_eq!(changed(&TTFT.replace("2s", "3s")), 0.0, "judged otherwise");
    assert_eq!(changed(&TTFT.replace("\"x\"", "\"y\"")), 0.0, "another");
    let fixture = ObjectivesFixture::new(TTFT);
    spend(&fixture, 3);
    fixture.slos.tick(
        fixture.bench.at(4_000),
        wall(0) - 52 * week,
        &fixture.bench.meter,
    );
    spend(&fixture, 2);
    assert_eq!(fixture.status(5_000).bad, 5.0, "the clock went back a year");
    fixture.slos.tick(
        fixture.bench.at(5_000),
        wall(0) + 520 * week,
        &fixture.bench.meter,
    );
    assert_eq!(fixture.status(5_000).bad, 5.0, "and forward ten");
}

#[test]
fn an_objective_that_comes_back_finds_its_counts() {
    let fixture = ObjectivesFixture::new(TTFT);
    let call = fixture.bench.chat();
    call.ended(fixture.bench.at(2_500), End::ClientCancelled);
    fixture.bench.finished_calls();
    let kept = fixture
        .slos
        .kept(fixture.bench.at(0), wall(0))
        .expect("something");
    let without = ObjectivesFixture::new(&TTFT.replace("\"x\"", "\"other\""));
    without.slos.restore(&kept, wall(0));
    without.slos.keep_again();
    let kept = without
        .slos
        .kept(without.bench.at(1_000), wall(1_000))
        .expect("something");
    let again = ObjectivesFixture::new(TTFT);
    again.slos.restore(&kept, wall(2_000));
    assert_eq!(again.status(2_000).bad, 1.0);
}

#[test]
fn reasoning_is_not_an_answer() {
    let fixture =
        ObjectivesFixture::new("[[slo]]\nname = \"x\"\ntime_to_first_answer.at_most = \"2s\"\n");
    let call = fixture.bench.chat();
    fixture
        .bench
        .chunk(&*call, 200, event("{\"reasoning_content\":\" hm\"}"));
    fixture.tick(2_600);
    assert_eq!(fixture.counts(2_600), only("bad deadline", 1));
}
