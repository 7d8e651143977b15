//! A report as JSON.

use super::figures::{Report, Row};
use super::prompt_grid::prompt_json;
use crate::command::measured_by::measured_by;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_core::time::rfc3339_millis;

/// The JSON names of the entries of [`Row::judged`].
const JUDGED: [&str; 3] = ["tps", "ttft", "cost"];

pub(super) fn document(report: &Report) -> Value {
    let instant = |at: SystemTime| rfc3339_millis(at).to_string();
    let dimensions = report.dimensions();
    let rows = report.rows();
    let differences = report.differences(&rows).map(|found| {
        let rows = found.rows.iter();
        json!({
            "baseline": by(&dimensions, &found.baseline),
            "confidence": found.confidence,
            "confidence_of_each": found.confidence_of_each,
            "groups": rows
                .map(|row| json!({
                    "by": by(&dimensions, &row.names),
                    "figures": row.figures,
                    "other_work": row.other_work,
                }))
                .collect::<Vec<_>>(),
        })
    });
    let mut tasks = json!(report.tasks());
    let [p50, p95, mean] = report.task_estimates();
    tasks["estimates"] = json!({"p50": p50, "p95": p95, "mean": mean});
    let rows = rows.iter().map(|row| group(&dimensions, row));
    json!({
        "made_at": instant(report.made),
        "measured_by": measured_by(),
        "since": report.since.map(instant),
        "until": report.until.map(instant),
        "first_call_at": report.first.map(instant),
        "last_call_ended_at": report.last.map(instant),
        "calls": report.calls,
        "coverage": report.coverage,
        "warm_up_calls_left_out": report.left_out,
        "tasks": tasks,
        "marks": report.marks,
        "experiments": report.experiments(),
        "by": dimensions,
        "confidence": super::estimates::CONFIDENCE,
        "judged": judged(&report.judged()),
        "groups": rows.collect::<Vec<_>>(),
        "differences": differences,
    })
}

fn group(dimensions: &[&'static str], row: &Row) -> Value {
    let mut value = json!(row.group);
    value["by"] = by(dimensions, &row.group.names);
    if let Some(prompt) = &row.group.prompt {
        value["prompt"] = prompt_json(prompt);
    }
    value["judged"] = judged(&row.judged);
    value["fingerprint"] = json!(row.fingerprint);
    value["sessions"] = json!(row.sessions);
    value["scores"] = json!(row.scores.scores);
    value["per_success"] = json!(row.scores.per_success);
    let estimates = row.estimates.iter();
    let estimates: BTreeMap<_, _> = estimates
        .map(|(figure, estimate)| (figure.as_str(), estimate))
        .collect();
    value["estimates"] = json!(estimates);
    for (band, share) in row.bands.iter().enumerate() {
        value["bands"][band]["share"] = json!(share);
    }
    value
}

fn judged(judged: &[super::observations::Judged; 3]) -> Value {
    let named = JUDGED.iter().zip(judged);
    json!(named.collect::<BTreeMap<_, _>>())
}

fn by(dimensions: &[&'static str], names: &[Option<String>]) -> Value {
    let names = dimensions.iter().zip(names);
    let by: Map<_, _> = names
        .map(|(by, name)| ((*by).to_owned(), json!(name)))
        .collect();
    by.into()
}
