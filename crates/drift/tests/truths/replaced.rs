//! A model that replaced another one.

use crate::traffic::{Hours, Level, WEEK, at, documented, hours};
use std::time::Duration;
use tokengauge_drift::{DriftState, Series, Settings, assess, replace};
use tokengauge_stats::seeded;
use tokengauge_store::query::DistributionSeries;

const CAME: u64 = 4 * WEEK + 10;

fn named(model: &str) -> DistributionSeries {
    DistributionSeries {
        model: Some(model.to_owned()),
        ..DistributionSeries::default()
    }
}

/// The new model's series at the end of an hour. The old model had calls until hour `old_until`.
fn seen(number: u64, old_until: u64, calls: u32) -> Series {
    let level = |_| Level {
        calls,
        ..Level::default()
    };
    let all = hours(&mut seeded(51), number + 1, level);
    let part = |from: u64, to: u64| -> Hours {
        let part = all.range(at(from)..at(to));
        part.map(|(at, calls)| (*at, calls.clone())).collect()
    };
    let (settings, until) = (Settings::new("all"), at(number + 1));
    let (old, new) = (part(0, old_until), part(CAME, number + 1));
    let mut series = assess(
        &named("m-2"),
        &new,
        &settings,
        until - Duration::from_secs(1),
    );
    replace(&mut series, &new, &[(named("m-1"), old)], &settings, until);
    series
}

#[test]
fn it_is_said_in_the_first_hour_and_not_learned_for_days() {
    let series = seen(CAME, CAME, 60);
    assert_eq!(series.state, DriftState::Drifted);
    assert_eq!(series.sentence, documented("Model replaced"));
    let later = seen(CAME + 30, CAME, 60);
    assert_eq!(later.state, DriftState::Learning, "it is no news for weeks");
    assert!(
        later.sentence.starts_with("Model replaced"),
        "{}",
        later.sentence
    );
}

#[test]
fn a_model_beside_another_one_replaces_nothing() {
    for (old_until, calls) in [(CAME + 4, 60), (CAME - 30, 60), (CAME, 1)] {
        let series = seen(CAME + 3, old_until, calls);
        assert_eq!(
            (series.state, series.replaced),
            (DriftState::Learning, None)
        );
    }
}
