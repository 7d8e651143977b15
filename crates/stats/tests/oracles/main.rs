//! Every function against a public implementation: make.py writes what they answer into this folder.

mod comparisons;
mod intervals;
mod series;

use serde::de::DeserializeOwned;
use std::path::Path;
use tokengauge_stats::Interval;

/// The cases of a file of make.py.
fn fixture<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/oracles/{name}.json"));
    let text = std::fs::read_to_string(&path).expect("make.py writes it");
    let cases: Vec<T> = serde_json::from_str(&text).expect("make.py and this test agree");
    assert!(!cases.is_empty(), "{name}");
    cases
}

/// Both agree, relative to their size, or to 1 where that is larger.
#[track_caller]
fn close(ours: f64, theirs: f64, tolerance: f64) {
    let scale = theirs.abs().max(1.0);
    assert!(
        (ours - theirs).abs() <= tolerance * scale,
        "{ours} {theirs}"
    );
}

/// The same for small numbers, such as p values: relative to their size only.
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
