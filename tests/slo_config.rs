//! `[[workload]]` and `[[slo]]` have the values they state, and their errors name line and key.

use std::time::Duration;
use tokengauge_config::{Config, Invalid};
use tokengauge_slo::{Sli, Weight};

const BASE: &str = r#"
[[upstream]]
name = "engine"
url = "http://127.0.0.1:8000"
[[route]]
upstream = "engine"
[[workload]]
name = "chat"
agent = "demo-chat/*"
stall_threshold = "250ms"
"#;

fn parsed(text: &str) -> Config {
    Config::parse(&format!("{BASE}{text}"), "test.toml").expect("valid")
}

/// Line after the base, key, reason.
fn problem(text: &str) -> (usize, String, String) {
    let error: Invalid =
        Config::parse(&format!("{BASE}{text}"), "test.toml").expect_err("not valid");
    let [problem] = error.problems.as_slice() else {
        panic!("one problem: {error}");
    };
    let line = problem.line.expect("a line") - BASE.lines().count();
    (line, problem.key.clone(), problem.reason.clone())
}

#[test]
fn an_objective_has_defaults_for_all_but_name_and_indicator() {
    let config = parsed("[[slo]]\nname = \"fast\"\nttft.at_most = \"500ms\"\n");
    let slo = &config.slos[0];
    assert_eq!((&*slo.name, slo.objective), ("fast", 0.99));
    assert_eq!(slo.window, Duration::from_secs(30 * 24 * 3600));
    assert_eq!(slo.judgement.sli, Sli::Ttft(0.5));
    assert_eq!(slo.judgement.weight, Weight::Request);
    assert!(slo.judgement.warm_up && slo.judgement.slice.is_none());
    assert_eq!(
        config.measure.workloads[0].stall_threshold,
        Some(Duration::from_millis(250))
    );
}

#[test]
fn every_indicator_can_be_written() {
    for (written, sli) in [
        ("availability = true", Sli::Availability),
        ("ttft.at_most = \"1s\"", Sli::Ttft(1.0)),
        ("output_tps.at_least = 30", Sli::OutputTps(30.0)),
        ("total_tps.at_least = 12.5", Sli::TotalTps(12.5)),
        (
            "time_to_first_answer.at_most = \"5s\"",
            Sli::TimeToFirstAnswer(5.0),
        ),
        ("duration = { at_most = \"2m\" }", Sli::Duration(120.0)),
        (
            "throughput.at_least = 900\nselect.upstream = \"engine\"",
            Sli::Throughput(900.0),
        ),
        (
            "inter_token_latency.at_most = \"40ms\"",
            Sli::InterTokenLatency(0.04),
        ),
        ("stalls.at_most = 0", Sli::Stalls(0)),
        ("longest_gap.at_most = \"250ms\"", Sli::LongestGap(0.25)),
        ("cost_usd.at_most = 0.05", Sli::CostUsd(0.05)),
    ] {
        let config = parsed(&format!("[[slo]]\nname = \"x\"\n{written}\n"));
        assert_eq!(config.slos[0].judgement.sli, sli, "{written}");
    }
}

#[test]
fn a_preset_becomes_an_objective_for_each_of_its_indicators() {
    let config = parsed(
        "[[slo]]\npreset = \"chat\"\nobjective = 0.95\nselect.workload = \"chat\"\n\
         [[slo]]\nname = \"phone\"\npreset = \"voice\"\n",
    );
    let names: Vec<_> = config.slos.iter().map(|slo| &*slo.name).collect();
    assert_eq!(
        names,
        [
            "chat-ttft",
            "chat-output-tps",
            "phone-output-tps",
            "phone-longest-gap"
        ]
    );
    assert_eq!(config.slos[0].objective, 0.95);
    assert_eq!(
        config.slos[1].judgement.select.workload.as_deref(),
        Some("chat")
    );
}

#[test]
fn time_slices_have_a_length_and_a_target() {
    let config = parsed(
        "[[slo]]\nname = \"p99\"\ntotal_tps.at_least = 20\nslice = \"5m\"\nslice_target = 0.99\n",
    );
    let slice = config.slos[0].judgement.slice.expect("a slice");
    assert_eq!(
        (slice.every, slice.target),
        (Duration::from_secs(300), 0.99)
    );
}

#[test]
fn what_is_wrong_names_line_and_key() {
    let slo = "[[slo]]\nname = \"x\"\n";
    let ttft = "ttft.at_most = \"1s\"\n";
    for (text, line, key, reason) in [
        (
            format!("{slo}{ttft}objective = 1.2\n"),
            4,
            "objective",
            "at most 1",
        ),
        (format!("{slo}{ttft}window = \"5m\"\n"), 4, "window", "1h"),
        (
            format!("{slo}{ttft}window = \"often\"\n"),
            4,
            "window",
            "duration",
        ),
        (
            format!("{slo}{ttft}stalls.at_most = 0\n"),
            2,
            "name",
            "several indicators",
        ),
        (slo.to_owned(), 2, "name", "no indicator"),
        (format!("[[slo]]\n{ttft}"), 1, "slo", "needs a `name`"),
        (
            format!("{slo}{ttft}preset = \"chat\"\n"),
            4,
            "preset",
            "remove the others",
        ),
        (
            "[[slo]]\npreset = \"telepathy\"\n".to_owned(),
            2,
            "preset",
            "chat, voice, analysis",
        ),
        (
            format!("{slo}{ttft}weight = \"token\"\n"),
            4,
            "weight",
            "output_tps",
        ),
        (
            format!("{slo}inter_token_latency.at_most = \"37ms\"\nweight = \"token\"\n"),
            4,
            "weight",
            "0.035, 0.04",
        ),
        (
            format!("{slo}{ttft}slice = \"90s\"\n"),
            4,
            "slice",
            "whole minutes",
        ),
        (
            format!("{slo}{ttft}slice_target = 0.9\n"),
            4,
            "slice_target",
            "needs a `slice`",
        ),
        (
            format!("{slo}{ttft}select.route = \"nowhere\"\n"),
            4,
            "select.route",
            "no route",
        ),
        (
            format!("{slo}{ttft}select.workload = \"voice\"\n"),
            4,
            "select.workload",
            "no [[workload]]",
        ),
        (
            format!("{slo}{ttft}{slo}{ttft}"),
            5,
            "name",
            "two objectives",
        ),
        (
            format!("{slo}ttft.at_most = \"0s\"\n"),
            3,
            "ttft.at_most",
            "longer than 0",
        ),
        (
            format!("{slo}output_tps.at_least = -1\n"),
            3,
            "output_tps.at_least",
            "above 0",
        ),
        (
            format!("{slo}tftt.at_most = \"1s\"\n"),
            3,
            "tftt.at_most",
            "unknown field",
        ),
        (
            "[[workload]]\nname = \"w\"\nroute = \"nowhere\"\n".to_owned(),
            3,
            "route",
            "no route",
        ),
    ] {
        let found = problem(&text);
        assert_eq!(
            (found.0, found.1.as_str()),
            (line, key),
            "{text}: {}",
            found.2
        );
        assert!(found.2.contains(reason), "{text}: {}", found.2);
    }
}

#[test]
fn receivers_have_what_their_kind_needs() {
    let config = parsed(
        "[[notify]]\nkind = \"alertmanager\"\nurl = \"http://h:9093\"\n\
         [[notify]]\nkind = \"slack\"\nurl_file = \"/run/secrets/slack\"\nseverity = \"page\"\nrepeat = \"1h\"\n\
         [[notify]]\nkind = \"pagerduty\"\nrouting_key_file = \"/run/secrets/key\"\n",
    );
    let names: Vec<_> = config
        .receivers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["alertmanager", "slack", "pagerduty"]);
    let seconds: Vec<_> = config
        .receivers
        .iter()
        .map(|one| one.repeat.as_secs())
        .collect();
    assert_eq!(seconds, [60, 3_600, 14_400]);
    let slack = "[[notify]]\nkind = \"slack\"\n";
    for (text, line, key, reason) in [
        (slack.to_owned(), 2, "kind", "`url_file`"),
        (
            format!("{slack}url = \"hooks.slack.com\"\n"),
            3,
            "url",
            "http://",
        ),
        (
            format!("{slack}url = \"http://h\"\nurl_file = \"f\"\n"),
            3,
            "url",
            "not both",
        ),
        (
            format!("{slack}url = \"http://h\"\nrouting_key_file = \"f\"\n"),
            4,
            "routing_key_file",
            "only PagerDuty",
        ),
        (
            "[[notify]]\nkind = \"pagerduty\"\n".to_owned(),
            2,
            "kind",
            "routing_key_file",
        ),
        (
            format!("{slack}url = \"http://h\"\n{slack}url = \"http://h\"\n"),
            5,
            "kind",
            "two receivers",
        ),
        (
            "[[notify]]\nkind = \"pigeon\"\n".to_owned(),
            2,
            "kind",
            "alertmanager",
        ),
    ] {
        let found = problem(&text);
        assert_eq!(
            (found.0, found.1.as_str()),
            (line, key),
            "{text}: {}",
            found.2
        );
        assert!(found.2.contains(reason), "{text}: {}", found.2);
    }
}
