//! Comparisons of every function with a public implementation. make.py writes the oracle results into this folder.

mod comparisons;
mod intervals;
mod series;

use serde::de::DeserializeOwned;
use std::path::Path;
use tokengauge_stats::Interval;

fn fixture<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/oracles/{name}.json"));
    let text = std::fs::read_to_string(&path).expect("make.py writes it");
    let cases: Vec<T> = serde_json::from_str(&text).expect("make.py and this test agree");
    assert!(!cases.is_empty(), "{name}");
    cases
}

/// Asserts equality relative to the size of the values, or to 1 if that is larger.
#[track_caller]
fn close(ours: f64, theirs: f64, tolerance: f64) {
    let scale = theirs.abs().max(1.0);
    assert!(
        (ours - theirs).abs() <= tolerance * scale,
        "{ours} {theirs}"
    );
}

/// Asserts equality relative to the size of small values, such as p values.
#[track_caller]
fn near(ours: f64, theirs: f64, tolerance: f64) {
    assert!(
        (ours - theirs).abs() <= tolerance * theirs.abs(),
        "{ours} {theirs}"
    );
}

#[track_caller]
fn same_interval(ours: Interval, theirs: [f64; 2], tolerance: f64) {
    close(ours.lower, theirs[0], tolerance);
    close(ours.upper, theirs[1], tolerance);
}
