//! Measures how often the intervals of reports contain the truth, over many reports of calls with a known truth.

use super::document::document;
use super::figures::Report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::call::{CallRecord, Outcome};
use tokengauge_store::query::Dimension;
use tokengauge_test_support::records::SplitMix64;

const REPORTS: usize = 400;
const SESSIONS: usize = 70;
/// The standard deviation of the logarithm of speeds and times. Half of the variance is shared by the calls of a
/// session.
const DEVIATION: f64 = 0.4;
const ERRORS: f64 = 0.1;
/// The factor by which the second model is faster and its time to first token longer.
const FASTER: f64 = 1.25;

struct Draw(SplitMix64);

impl Draw {
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.0.share(), self.0.share());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    /// A random factor with a median of 1. `common` is the part that the session shares.
    fn factor(&mut self, common: f64) -> f64 {
        (DEVIATION * 0.5_f64.sqrt() * (common + self.normal())).exp()
    }
}

fn template() -> CallRecord {
    let record = json!({
        "id": "1", "started_at": "2026-01-31T09:30:00.000Z", "route": "r", "upstream": "u", "dialect": "openai_chat", "operation": "chat",
        "operation_class": "generation", "streamed": true, "status": 200, "outcome": "complete", "finish_reasons": [],
        "warm_up": false, "tokens": {"normalised": {"output": 100}, "reported": {"output": 100}, "source": "reported"},
        "seconds": {}, "tps": {}, "frames": 100, "stalls": 0, "bytes": {"request": 10, "response": 20},
    });
    serde_json::from_value(record).expect("a record")
}

/// A report of sessions with calls of both models, and some sessions with calls of only one model.
fn report(draw: &mut Draw, template: &CallRecord) -> Value {
    let mut report = Report::new(&[Dimension::Model], false, UNIX_EPOCH);
    let mut second = 0;
    for session in 0..SESSIONS {
        let (speed, wait, fails) = (draw.normal(), draw.normal(), draw.0.share() < 0.5);
        let calls = 2 + draw.0.below(9);
        for number in 0..calls {
            second += 1;
            let other = session % 3 != 0 && number % 2 == 1;
            let level = if other { FASTER } else { 1.0 };
            let mut call = template.clone();
            call.started_at = (UNIX_EPOCH + Duration::from_secs(second)).into();
            call.model = Some(if other { "b" } else { "a" }.to_owned());
            call.session = Some(format!("s{session}"));
            let (tps, ttft) = (40.0 * level * draw.factor(speed), level * draw.factor(wait));
            let decode = 1.0 + draw.0.share();
            call.tps.output = Some(tps);
            call.seconds.ttft = Some(ttft);
            call.seconds.last_token = Some(ttft + decode);
            call.seconds.duration = Some(ttft + decode);
            call.cost_usd = Some(0.001 * level * draw.factor(speed));
            if fails && draw.0.share() < 2.0 * ERRORS {
                call.outcome = Outcome::ErrorEvent;
            }
            report.add(&call);
        }
    }
    document(&report)
}

fn truths() -> BTreeMap<&'static str, f64> {
    let quantile = |normal: f64| (DEVIATION * normal).exp();
    let mean = (DEVIATION * DEVIATION / 2.0).exp();
    BTreeMap::from([
        ("error_share", ERRORS),
        ("tps_p50", 40.0),
        ("tps_p10", 40.0 * quantile(-1.281_551_6)),
        ("tps_p5", 40.0 * quantile(-1.644_853_6)),
        ("tps_mean", 40.0 * mean),
        ("ttft_p50", 1.0),
        ("ttft_p95", quantile(1.644_853_6)),
        ("ttft_share", mean / (mean + 1.5)),
        ("usd_per_million_output", 10.0 * mean),
    ])
}

/// A bound that has too few calls is infinitely far away.
fn holds(estimate: &Value, truth: f64) -> bool {
    let bound = |name: &str| estimate[name].as_f64();
    bound("lower").is_none_or(|lower| lower <= truth)
        && bound("upper").is_none_or(|upper| truth <= upper)
}

#[test]
fn intervals_hold_as_often_as_they_say() {
    let (mut draw, template) = (Draw(SplitMix64(21)), template());
    let mut held = BTreeMap::<&str, usize>::new();
    let (mut all_differences, mut bounded) = (0, 0);
    for _ in 0..REPORTS {
        let document = report(&mut draw, &template);
        let row = &document["groups"][0];
        assert_eq!(row["by"]["model"], "a");
        for (figure, truth) in truths() {
            let holds = holds(&row["estimates"][figure], truth);
            *held.entry(figure).or_default() += usize::from(holds);
        }
        let figures = document["differences"]["groups"][0]["figures"].as_array();
        let figures = figures.expect("differences");
        assert_eq!(figures.len(), 6, "{figures:?}");
        let truth = |figure: &Value| match figure["figure"].as_str() {
            Some("error_share") => 0.0,
            _ => FASTER - 1.0,
        };
        let both = |figure: &&Value| figure["lower"].is_f64() && figure["upper"].is_f64();
        bounded += figures.iter().filter(both).count();
        all_differences += usize::from(figures.iter().all(|figure| holds(figure, truth(figure))));
    }
    for (figure, held) in held {
        println!("{figure}: {held} of {REPORTS}");
        let share = held as f64 / REPORTS as f64;
        assert!((0.925..=0.985).contains(&share), "{figure}: {share}");
    }
    println!("all differences: {all_differences} of {REPORTS}");
    assert!(all_differences * 100 >= REPORTS * 93, "{all_differences}");
    assert!(bounded > 4 * REPORTS, "{bounded} have both bounds");
}
