use super::objective::{Objective, Sli, Weight};
use std::fmt::Write;
use tokengauge_core::time::span_text;

/// The `[[slo]]` table of `objective`, without default values.
pub fn as_toml(objective: &Objective) -> String {
    let judgement = &objective.judgement;
    let mut text = format!("[[slo]]\nname = {}\n", quoted(&objective.name));
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    line("objective", objective.objective.to_string());
    let window = if objective.calendar_month {
        "month".to_owned()
    } else {
        span_text(objective.window)
    };
    line("window", quoted(&window));
    let (key, value) = sli(judgement.sli);
    line(&key, value);
    let select = &judgement.select;
    for (key, value) in [
        ("workload", select.workload.as_deref()),
        ("route", select.route.as_deref()),
        ("upstream", select.upstream.as_deref()),
        ("model", select.model.as_ref().map(|model| model.as_str())),
        ("agent", select.agent.as_ref().map(|agent| agent.as_str())),
        ("team", select.team.as_deref()),
        ("cost_center", select.cost_center.as_deref()),
        ("tenant", select.tenant.as_deref()),
    ] {
        if let Some(value) = value {
            line(&format!("select.{key}"), quoted(value));
        }
    }
    if judgement.weight == Weight::Token {
        line("weight", quoted("token"));
    }
    if judgement.min_output_tokens > 0 {
        line("min_output_tokens", judgement.min_output_tokens.to_string());
    }
    if judgement.min_streams > 0 {
        line("throughput.min_streams", judgement.min_streams.to_string());
    }
    if !judgement.warm_up {
        line("warm_up", "false".to_owned());
    }
    if let Some(slice) = judgement.slice {
        let every = span_text(slice.every);
        line("slice", quoted(&every));
        line("slice_target", slice.target.to_string());
    }
    line("min_events", objective.min_events.to_string());
    for (key, value) in [
        ("description", &objective.description),
        ("runbook_url", &objective.runbook_url),
        ("dashboard_url", &objective.dashboard_url),
    ] {
        if let Some(value) = value {
            line(key, quoted(value));
        }
    }
    text
}

fn sli(sli: Sli) -> (String, String) {
    let name = sli.as_str();
    match (sli, sli.threshold()) {
        (_, None) => (name.to_owned(), "true".to_owned()),
        (Sli::Stalls(most), _) => (format!("{name}.at_most"), most.to_string()),
        (Sli::CostUsd(most), _) => (format!("{name}.at_most"), most.to_string()),
        (_, Some(least)) if sli.at_least() => (format!("{name}.at_least"), least.to_string()),
        (_, Some(most)) => {
            // Nanoseconds are the resolution of durations in the configuration.
            let most = span_text(std::time::Duration::from_nanos((most * 1e9).round() as u64));
            (format!("{name}.at_most"), quoted(&most))
        }
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
