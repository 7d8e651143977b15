//! Series stay bounded whatever the wire calls its models.

use crate::meter_support::{Bench, DONE, words};
use std::sync::Arc;
use std::time::Instant;
use tokengauge::config::Measure;
use tokengauge::export::prometheus::Prometheus;
use tokengauge::export::text::Format;
use tokengauge::meter::{Finding, Subscriber};
use tokengauge::observer::End;

/// Distinct model names that are thrown at the exporter.
const MODELS: usize = 100_000;

#[test]
fn a_hundred_thousand_models_leave_the_series_flat() {
    let measure = Measure {
        max_models: 20,
        ..Measure::default()
    };
    let prometheus = Prometheus::new(&[], &measure, Instant::now());
    let bench = Bench::default();
    let call = bench.chat();
    bench.frame(&*call, 100, words(3) + DONE);
    call.ended(bench.at(200), End::Complete);
    let template = Finding::clone(&bench.findings()[0]);
    let figures = bench.meter.figures(Instant::now());
    let finished = |range: std::ops::Range<usize>| {
        for model in range {
            let mut finding = template.clone();
            finding.record.model = Some(format!("model-{model}"));
            prometheus.finished(&Arc::new(finding));
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

#[test]
fn a_scrape_of_fifty_pairs_stays_under_five_megabytes() {
    let measure = Measure::default();
    let prometheus = Prometheus::new(&[], &measure, Instant::now());
    let bench = Bench::default();
    let call = bench.chat();
    for frame in 0..20 {
        bench.frame(&*call, 100 + frame * 20, words(3));
    }
    bench.frame(&*call, 600, DONE);
    call.ended(bench.at(700), End::Complete);
    let template = Finding::clone(&bench.findings()[0]);
    for model in 0..50 {
        for (concurrency, input) in [
            (1, 10),
            (4, 2_000),
            (8, 10_000),
            (16, 50_000),
            (32, 200_000),
            (64, 5),
            (128, 5),
            (200, 5),
        ] {
            let mut finding = template.clone();
            finding.record.model = Some(format!("some-provider/some-model-{model}"));
            finding.concurrency = concurrency;
            finding.record.tokens.reported.input = Some(input);
            prometheus.finished(&Arc::new(finding));
        }
    }
    let text = prometheus.render(
        Instant::now(),
        &bench.meter.figures(Instant::now()),
        Format::Classic,
    );
    println!("{} lines, {} bytes", text.lines().count(), text.len());
    assert!(text.len() < 5_000_000, "{} bytes", text.len());
}
