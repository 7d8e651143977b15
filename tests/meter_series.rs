//! The number of series stays bounded, whatever model names responses contain.

use std::sync::Arc;
use std::time::Instant;
use tokengauge_config::Measure;
use tokengauge_core::observer::End;
use tokengauge_meter::{FinishedCall, Subscriber};
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};

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
    bench.chunk(&*call, 100, words(3) + DONE);
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

fn exported(prometheus: &Prometheus, bench: &Bench, model: &str, source: &str) -> u64 {
    let figures = bench.meter.stats(Instant::now());
    let text = prometheus.render(Instant::now(), &figures, Format::Classic);
    let labels = [format!("model=\"{model}\""), format!("source=\"{source}\"")];
    let lines = text.lines().filter(|line| {
        line.starts_with("tokengauge_tokens_total{")
            && line.contains("direction=\"output\"")
            && labels.iter().all(|label| line.contains(label))
    });
    let value = |line: &str| line.rsplit(' ').next().expect("a value").parse::<u64>();
    lines.map(|line| value(line).expect("a count")).sum()
}

#[test]
fn tokens_whose_number_is_unknown_after_all_are_retracted() {
    let prometheus = Prometheus::new(&[], &Measure::default());
    let subscriber = Arc::clone(&prometheus) as Arc<dyn Subscriber>;
    let bench = Bench::new(Measure::default(), vec![subscriber]);
    let exported = |source| exported(&prometheus, &bench, "m-1", source);
    // After the first call, the model's name is known not to be an alias.
    let call = bench.chat();
    bench.chunk(&*call, 100, words(10) + &finish(None) + DONE);
    let whole = bench.end(&*call, 200, End::Complete);
    assert_eq!(whole.tokens.normalised.output, Some(10));
    assert_eq!((exported("counted"), exported("retracted")), (10, 0));
    let call = bench.chat();
    bench.chunk(&*call, 1000, words(50));
    assert!(exported("counted") >= 58, "while it streams");
    call.lagged(3, 300);
    bench.chunk(&*call, 2000, finish(None) + DONE);
    let lagged = bench.end(&*call, 2100, End::Complete);
    assert_eq!(lagged.tokens.normalised.output, None);
    assert!(exported("retracted") >= 48);
    let counted = exported("counted") - exported("retracted");
    assert_eq!(counted, 10, "the records' tokens");
}

#[test]
fn tokens_of_a_long_answer_follow_the_model_that_it_names_at_its_end() {
    let prometheus = Prometheus::new(&[], &Measure::default());
    let subscriber = Arc::clone(&prometheus) as Arc<dyn Subscriber>;
    let bench = Bench::new(Measure::default(), vec![subscriber]);
    let of = |model, source| exported(&prometheus, &bench, model, source);
    for call in 1..3 {
        let before = of("m-1", "counted");
        let long = bench.chat();
        for chunk in 0..2000 {
            bench.chunk(&*long, 100 + chunk * 10, words(1));
        }
        let live = of("m-1", "counted") - before;
        // After two seconds the name is trusted, unless it was an alias before.
        let should = if call == 1 { 1900..=2000 } else { 0..=0 };
        assert!(should.contains(&live), "{live} in call {call}");
        let last = finish(None).replace("m-1", "real") + &words(1).replace("m-1", "real");
        bench.chunk(&*long, 21_000, last + DONE);
        let record = bench.end(&*long, 21_100, End::Complete);
        assert_eq!(record.model.as_deref(), Some("real"));
        assert_eq!(record.tokens.normalised.output, Some(2001));
        assert_eq!(of("real", "counted") - of("real", "retracted"), call * 2001);
        assert_eq!(of("m-1", "counted"), of("m-1", "retracted"));
    }
}
