//! Standardised references and decompositions that are small enough to compute by hand.

use crate::traffic::{Hours, MONDAY};
use std::time::{Duration, SystemTime};
use tokengauge_drift::{Season, Settings, SignalName, assess};
use tokengauge_store::query::{DistributionSeries, Distributions, Signal};

fn at(hour: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs((MONDAY + hour) * 3_600)
}

/// Calls of the first and the fourth prompt length class, with their times to the first token.
fn hour(short: (u32, f64), long: (u32, f64)) -> Distributions {
    let mut hour = Distributions::default();
    for (class, (calls, ttft)) in [(0, short), (3, long)] {
        for _ in 0..calls {
            hour.observe(Signal::Ttft, class, Some(ttft));
        }
    }
    hour
}

fn settings(season: Season) -> Settings {
    Settings {
        season,
        reference: Duration::from_secs(4 * 86_400),
        current: Duration::from_secs(2 * 3_600),
        ..Settings::new("all")
    }
}

#[test]
fn the_parts_of_a_mean_are_those_of_the_construction() {
    // Before: 90 % at 0.25 s, 10 % at 2.25 s: 0.45 s. After: 50 % at 0.5 s, 50 % at 2.25 s: 1.375 s.
    let mut hours: Hours = (0..96)
        .map(|number| (at(number), hour((90, 0.25), (10, 2.25))))
        .collect();
    hours.insert(at(96), hour((200, 0.5), (200, 2.25)));
    hours.insert(at(97), hour((100, 0.5), (100, 2.25)));
    let series = assess(
        &DistributionSeries::default(),
        &hours,
        &settings(Season::None),
        at(97),
    );
    let why = series
        .why
        .iter()
        .find(|why| why.signal == SignalName::Ttft)
        .expect("why");
    let close = |is: f64, wanted: f64| assert!((is - wanted).abs() < 1e-9, "{is} for {wanted}");
    close(why.before, 0.45);
    close(why.after, 1.375);
    // Mix: −0.4 · mean(0.25, 0.5) + 0.4 · 2.25. Within: 0.25 · mean(0.9, 0.5).
    close(why.mix, 0.75);
    close(why.within, 0.175);
    assert_eq!(why.strata.len(), 2);
    assert_eq!(why.strata[0].name, "under_1k");
    close(why.strata[0].share_before, 0.9);
    close(why.strata[1].share_after, 0.5);
    close(why.strata[1].mean_before.expect("a mean"), 2.25);
}

#[test]
fn hours_of_the_reference_weigh_as_much_as_they_do_now() {
    // Before: 100 short calls at 00:00 and 10 long ones at 01:00. Today: the reverse, with equal times by hour.
    let mut hours = Hours::new();
    for day in 0..4 {
        hours.insert(at(24 * day), hour((1_000, 0.5), (0, 0.0)));
        hours.insert(at(24 * day + 1), hour((0, 0.0), (100, 4.0)));
    }
    hours.insert(at(96), hour((100, 0.5), (0, 0.0)));
    hours.insert(at(97), hour((0, 0.0), (1_000, 4.0)));
    let series = assess(
        &DistributionSeries::default(),
        &hours,
        &settings(Season::Day),
        at(97),
    );
    let ttft = &series.signals[0];
    let (reference, current) = (ttft.reference.expect("then"), ttft.current.expect("now"));
    assert!((reference.mean - current.mean).abs() < 1e-9);
    assert_eq!(ttft.distance, Some(0.0));
    // Kish: 4,000 calls of weight 1/40 and 400 of weight 2.5.
    let kish = (100.0_f64 + 1_000.0).powi(2) / (4_000.0 / 1_600.0 + 400.0 * 6.25);
    assert!((reference.calls - kish).abs() < 1e-6, "{}", reference.calls);
}
