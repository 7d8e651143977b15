//! `tokengauge print metrics`: the metrics as the table of docs/metrics.md or as JSON lines.

use super::error::CommandError;
use crate::cli::ReferenceFormat;
use tokengauge_telemetry::export::labels::{LabelSet, Model};
use tokengauge_telemetry::export::names::{self, Metric, MetricKind};

pub(super) fn metrics(format: ReferenceFormat) -> Result<String, CommandError> {
    if format == ReferenceFormat::Json {
        return super::json_lines(names::all());
    }
    let head = "| metric | kind | labels | what it is |\n|---|---|---|---|\n";
    Ok(head.to_owned() + &names::all().map(row).collect::<String>())
}

/// Formats a row of the reference. `…` stands for the labels of a model.
fn row(metric: &Metric) -> String {
    let kind = match metric.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram => "histogram",
    };
    let labels = match metric.labels.strip_prefix(Model::NAMES) {
        Some([]) => "…".to_owned(),
        Some(more) => format!("… + {}", more.join(", ")),
        None => metric.labels.join(", "),
    };
    format!(
        "| `{}` | {kind} | {labels} | {} |\n",
        metric.name, metric.help
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_document() {
        let table = metrics(ReferenceFormat::Markdown).expect("a table");
        let document = include_str!("../../docs/metrics.md");
        assert!(document.contains(&table), "{table}");
    }

    #[test]
    fn a_json_line_has_everything_about_a_metric() {
        let lines = metrics(ReferenceFormat::Json).expect("lines");
        let first: serde_json::Value =
            serde_json::from_str(lines.lines().next().expect("one")).expect("JSON");
        assert_eq!(first["name"], "tokengauge_requests_total");
        assert_eq!(
            (&first["kind"], &first["unit"]),
            (&"counter".into(), &"count".into())
        );
        assert_eq!(first["labels"][4], "outcome");
        assert_eq!(lines.lines().count(), names::all().count());
    }
}
