//! Series stay bounded whatever the wire calls its models.

use std::sync::Arc;
use std::time::Instant;
use tokengauge::config::Measure;
use tokengauge::export::prometheus::Prometheus;
use tokengauge::export::text::Format;
use tokengauge::meter::{FinishedCall, Subscriber};
use tokengauge::observer::End;
use tokengauge_test_support::meter::{Bench, DONE, words};

/// Distinct model names that are thrown at the exporter.
const MODELS: usize = 100_000;

#[test]
fn a_hundred_thousand_models_leave_the_series_flat() {
    let measure = Measure {
        max_models: 20,
        ..Measure::default()
    };
    let prometheus = Prometheus::new(&[], &measure);
    let bench = Bench::default();
    let call = bench.chat();
    bench.frame(&*call, 100, words(3) + DONE);
    call.ended(bench.at(200), End::Complete);
    let template = FinishedCall::clone(&bench.finished_calls()[0]);
    let figures = bench.meter.stats(Instant::now());
    let finished = |range: std::ops::Range<usize>| {
        for model in range {
            let mut finished_call = template.clone();
            finished_call.record.model = Some(format!("model-{model}"));
            prometheus.finished(&Arc::new(finished_call));
        }
        prometheus.render(Instant::now(), &figures, Format::Classic)
    };
    let before = finished(0..1000);
    let after = finished(1000..MODELS);
    assert_eq!(before.lines().count(), after.lines().count());
    assert!(after.contains("model=\"other\"") && !after.contains("model=\"model-20\""));
    let collapsed = format!("tokengauge_series_collapsed_total {}", MODELS - 20);
    assert!(after.lines().any(|line| line == collapsed), "{collapsed}");
}
