//! OpenSLO v1 files of other tools and our own.

use std::time::Duration;
use tokengauge_config::Config;
use tokengauge_slo::{Objective, Sli, as_toml, openslo};

/// Two examples of the specification: a separate SLI and an inline SLI.
const THEIRS: &str = r#"
apiVersion: openslo/v1
kind: Service
metadata:
  name: assistant
spec:
  description: The assistant
---
apiVersion: openslo/v1
kind: SLI
metadata:
  name: first-token
spec:
  thresholdMetric:
    metricSource:
      type: Prometheus
      spec:
        query: histogram_quantile(0.99, rate(tokengauge_time_to_first_token_seconds_bucket{workload="chat",model="gpt-4*"}[5m]))
---
apiVersion: openslo/v1
kind: SLO
metadata:
  name: first
  displayName: First token
spec:
  service: assistant
  indicatorRef: first-token
  timeWindow:
    - duration: 4w
      isRolling: true
  budgetingMethod: Occurrences
  objectives:
    - displayName: good
      op: lte
      value: 0.5
      target: 0.99
    - displayName: bearable
      op: lte
      value: 2
      targetPercent: 99.9
---
apiVersion: openslo/v1
kind: SLO
metadata:
  name: speed
spec:
  service: assistant
  indicator:
    metadata:
      name: tps
    spec:
      thresholdMetric:
        metricSource:
          type: Prometheus
          spec:
            query: tokengauge_output_tokens_per_second_bucket
  timeWindow:
    - duration: 7d
      isRolling: true
  budgetingMethod: Timeslices
  objectives:
    - op: gte
      value: 30
      target: 0.95
      timeSliceTarget: 0.9
      timeSliceWindow: 5m
"#;

#[test]
fn thresholds_of_others_over_our_series_are_understood() {
    let read = openslo::read(THEIRS).expect("valid");
    let objectives: Vec<_> = read
        .iter()
        .map(|slo| (&*slo.name, slo.judgement.sli, slo.objective))
        .collect();
    assert_eq!(objectives[0], ("first-1", Sli::Ttft(0.5), 0.99));
    assert_eq!(
        (objectives[1].0, objectives[1].1),
        ("first-2", Sli::Ttft(2.0))
    );
    assert!((objectives[1].2 - 0.999).abs() < 1e-12);
    assert_eq!(objectives[2], ("speed", Sli::OutputTps(30.0), 0.95));
    assert_eq!(read[0].window, Duration::from_secs(28 * 86_400));
    let select = &read[0].judgement.select;
    assert_eq!(select.workload.as_deref(), Some("chat"));
    assert!(select.model.as_ref().expect("a model").matches("gpt-4.1"));
    let slice = read[2].judgement.slice.expect("slices");
    assert_eq!((slice.every, slice.target), (Duration::from_secs(300), 0.9));
}

#[test]
fn what_cannot_be_measured_is_named() {
    for (from, to, reason) in [
        (
            "op: lte",
            "op: gte",
            "SLO `first`: ttft supports only op lte",
        ),
        ("duration: 4w", "duration: 1M", "`1M` is not a duration"),
        ("isRolling: true", "isRolling: false", "only rolling"),
        (
            "time_to_first_token_seconds",
            "something_else",
            "its query has none of",
        ),
        ("      value: 0.5\n", "", "no value"),
        ("timeSliceWindow: 5m", "{}", "openslo"),
        (
            "openslo/v1\nkind: SLI",
            "openslo/v2\nkind: SLI",
            "`openslo/v2`, not `openslo/v1`",
        ),
        (
            "first-token\n  timeWindow",
            "nothing\n  timeWindow",
            "neither a thresholdMetric",
        ),
    ] {
        let text = THEIRS.replacen(from, to, 1);
        assert_ne!(text, THEIRS, "{from}");
        let error = match openslo::read(&text) {
            Ok(_) => panic!("{from} → {to} is no error"),
            Err(error) => error.to_string(),
        };
        let expected = error.contains(reason) || reason == "openslo" && error.contains("OpenSLO");
        assert!(expected, "{from} → {to}: {error}");
    }
}

#[test]
fn every_objective_comes_back_as_it_went_in_both_languages() {
    let base = "[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nname = \"r\"\nupstream = \"u\"\nworkload = \"w\"\n";
    let mut text = base.to_owned();
    for (at, sli) in [
        "availability = true",
        "ttft.at_most = \"123ms 456us\"",
        "time_to_first_answer.at_most = \"5s\"",
        "duration.at_most = \"1m 30s\"\nslice = \"90m\"\nslice_target = 0.999",
        "output_tps.at_least = 30\nweight = \"token\"\nmin_output_tokens = 50",
        "total_tps.at_least = 12.5\nwarm_up = false",
        "inter_token_latency.at_most = \"40ms\"\nselect = { route = \"r\", upstream = \"u\", model = \"a*\", agent = \"b\" }",
        "stalls.at_most = 2\nmin_events = 0",
        "longest_gap.at_most = \"250ms\"\nselect.workload = \"w\"",
        "cost_usd.at_most = 0.05\ndescription = \"a \\\"quoted\\\" line: yes\\n- no\"\nrunbook_url = \"https://x/#y\"",
    ]
    .iter()
    .enumerate()
    {
        text += &format!("[[slo]]\nname = \"slo {at}: 'x'\"\nobjective = 0.9{at}5\nwindow = \"{}d\"\n{sli}\n", at + 7);
    }
    let parse = |text: &str| {
        Config::parse(text, "test").unwrap_or_else(|invalid| panic!("{invalid}\n{text}"))
    };
    let config = parse(&text);
    let written: Vec<String> = config.slos.iter().map(|slo| as_toml(slo)).collect();
    let again = parse(&(base.to_owned() + &written.concat()));
    assert_eq!(again.slos, config.slos);
    let yaml = openslo::write(&config.slos).expect("YAML");
    let read = openslo::read(&yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}"));
    for (read, slo) in read.iter().zip(&config.slos) {
        // Without a description, the text of the objective is used.
        let described = Objective {
            description: slo
                .description
                .clone()
                .or(Some(slo.judgement.sli.in_words())),
            ..(**slo).clone()
        };
        assert_eq!(read, &described, "{yaml}");
    }
    assert_eq!(read.len(), 10);
}
