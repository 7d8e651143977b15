//! Checks that the first examples in docs/experiments.md, docs/drift.md and docs/gate.md match the settings that the
//! simulations of these crates use.

use crate::Config;
use std::time::Duration;
use tokengauge_store::query::{Threshold, UnitKind};

/// The configuration in the first example of a page, completed with the upstreams and routes that the example names.
fn example(page: &str) -> Config {
    let mut blocks = page
        .split("```")
        .filter_map(|block| block.strip_prefix("toml\n"));
    let mut text = blocks.next().expect("an example").to_owned();
    for name in ["engine", "engine-next", "old", "new"] {
        text += &format!(
            "[[upstream]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:9\"\n\
             [[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
        );
    }
    text += "[[route]]\nname = \"chat\"\nupstream = \"engine\"\n";
    Config::parse(&text, "example").expect("a configuration")
}

#[test]
fn the_experiment_splits_nine_to_one_and_has_both_thresholds() {
    let config = example(include_str!("../../../docs/experiments.md"));
    let [experiment] = &config.experiments[..] else {
        panic!("{:?}", config.experiments);
    };
    let weights: Vec<_> = experiment.arms.iter().map(|arm| arm.weight).collect();
    let rules = &experiment.rules;
    assert_eq!(
        (weights, experiment.unit),
        (vec![9.0, 1.0], UnitKind::Session)
    );
    assert_eq!(rules.ttft_above, Some(Threshold::near(0.5)));
    assert_eq!(rules.tps_below, Some(Threshold::near(20.0)));
    assert!(config.routes.iter().any(|route| route.split.is_some()));
}

#[test]
fn the_drift_has_all_defaults_and_the_gate_waits_six_hours() {
    let config = example(include_str!("../../../docs/drift.md"));
    assert_eq!(config.drifts, [tokengauge_drift::Settings::new("all")]);
    let config = example(include_str!("../../../docs/gate.md"));
    assert_eq!(
        config.gates[0].max_wait,
        Some(Duration::from_secs(6 * 3_600))
    );
}
