//! The comparison as a table for terminals and in Markdown.

use std::fmt::Write;
use tokengauge_experiments::words::{change, is_plain, noun, percent, plain, scale};
use tokengauge_experiments::{ArmComparison, Metric, MetricReport, Report};
use tokengauge_process::output::{markdown as escaped, printable};

const HEADS: [&str; 6] = [
    "metric",
    "baseline",
    "variant",
    "difference",
    "interval",
    "p (Holm)",
];
const UNKNOWN: &str = "–";

pub(in crate::command) fn table(report: &Report) -> String {
    let mut text = head(report, "");
    for comparison in &report.comparisons {
        let _ = writeln!(
            text,
            "\n{} against {}",
            printable(&comparison.variant),
            printable(&comparison.baseline)
        );
        let rows = rows(comparison, report);
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    let _ = writeln!(text, "\n{}", printable(&report.verdict));
    text
}

pub(in crate::command) fn markdown(report: &Report) -> String {
    let mut text = head(report, "- ");
    for comparison in &report.comparisons {
        let variant = escaped(&comparison.variant);
        let baseline = escaped(&comparison.baseline);
        let _ = writeln!(text, "\n**{variant} against {baseline}**\n");
        for (index, row) in rows(comparison, report).iter().enumerate() {
            let cells = row.iter().map(|cell| escaped(cell));
            let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
            if index == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(HEADS.len()));
            }
        }
    }
    let _ = writeln!(text, "\n{}", escaped(&report.verdict));
    text
}

fn head(report: &Report, bullet: &str) -> String {
    let shown = |name: &str| match bullet {
        "" => printable(name).into_owned(),
        _ => escaped(name),
    };
    let name = shown(&report.name);
    let mut text = format!("experiment {name}, by {}\n", report.unit);
    if !bullet.is_empty() {
        text.push('\n');
    }
    for arm in &report.arms {
        let weight = arm
            .weight
            .map_or(String::new(), |weight| format!(", weight {weight}"));
        let _ = writeln!(
            text,
            "{bullet}{}: {} units, {} complete with {} calls{weight}, {} of them failed, {} unfinished; TPS of {}, TTFT of {}, cost of {}",
            shown(&arm.name),
            arm.units,
            arm.complete_units,
            arm.calls,
            arm.failed_calls,
            arm.unfinished_calls,
            arm.tps_calls,
            arm.ttft_calls,
            arm.priced_calls
        );
    }
    for (count, what) in [
        (
            report.calls_without_unit,
            "calls have no unit or no variant",
        ),
        (
            report.collapsed_calls,
            "calls belong to units beyond the ledger's limit",
        ),
        (report.mixed_units, "units have calls of several variants"),
        (
            report.other_variants.len() as u64,
            "variants are not an arm",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(text, "{bullet}{count} {what}; they are excluded");
        }
    }
    text
}

fn rows(comparison: &ArmComparison, report: &Report) -> Vec<[String; 6]> {
    let heads = HEADS.map(str::to_owned);
    let metrics = comparison.metrics.iter().map(|metric| row(metric, report));
    std::iter::once(heads).chain(metrics).collect()
}

fn row(metric: &MetricReport, report: &Report) -> [String; 6] {
    let interval = metric.lower.zip(metric.upper);
    let interval = interval
        .map(|(lower, upper)| format!("{} to {}", change(metric, lower), change(metric, upper)));
    let difference = metric.difference;
    let difference = difference.map(|value| change(metric, value) + scale(metric));
    [
        noun(metric, report),
        level(
            metric,
            metric.baseline,
            metric.baseline_lower.zip(metric.baseline_upper),
        ),
        level(
            metric,
            metric.value,
            metric.value_lower.zip(metric.value_upper),
        ),
        difference.unwrap_or_else(|| metric.withheld.clone().unwrap_or_default()),
        interval.unwrap_or_else(|| UNKNOWN.to_owned()),
        metric.p.map_or(UNKNOWN.to_owned(), |p| format!("{p:.2}")),
    ]
}

/// Formats a value with its interval, such as "41.2 (40.1 to 42.3)".
fn level(metric: &MetricReport, value: Option<f64>, interval: Option<(f64, f64)>) -> String {
    let figure = |value| figure(metric, value);
    let between = |(lower, upper)| format!(" ({} to {})", figure(lower), figure(upper));
    let interval = interval.map_or(String::new(), between);
    value.map_or(UNKNOWN.to_owned(), |value| figure(value) + &interval)
}

fn figure(metric: &MetricReport, value: f64) -> String {
    match metric.metric {
        Metric::Tps => format!("{value:.1}"),
        Metric::Cost => format!("${value:.4}"),
        Metric::Score if is_plain(metric) => plain(value),
        _ => format!("{} %", percent(value)),
    }
}
