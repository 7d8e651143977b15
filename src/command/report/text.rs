//! A report as a table for terminals, and in Markdown.

use super::figures::Report;
use crate::output::printable;
use crate::query::GroupRow;
use std::fmt::Write;
use std::time::SystemTime;

/// The column heads of a group's figures.
pub(super) const HEADS: [&str; 19] = [
    "calls",
    "errors",
    "req/s",
    "TPS p50",
    "p10",
    "p5",
    "p1",
    "mean",
    "judged",
    "reported",
    "TTFT p50",
    "p95",
    "p99",
    "share",
    "in tokens",
    "out tokens",
    "cost",
    "per 1M out",
    "bands %",
];
/// The text for an unknown value.
pub(super) const UNKNOWN: &str = "–";

/// The heads of a report's table.
pub(super) fn heads(report: &Report) -> Vec<String> {
    let by = report.dimensions().into_iter();
    by.chain(HEADS).map(str::to_owned).collect()
}

/// The cells of a row: names first.
pub(super) fn cells(row: &GroupRow) -> Vec<String> {
    let names = row
        .names
        .iter()
        .map(|name| printable(name.as_deref().unwrap_or(UNKNOWN)).into_owned());
    let figures = [
        row.calls.to_string(),
        row.errors.to_string(),
        row.requests_per_second
            .map_or(UNKNOWN.to_owned(), per_second),
        speed(row.tps.p50),
        speed(row.tps.p10),
        speed(row.tps.p5),
        speed(row.tps.p1),
        speed(row.tps.mean),
        format!("{} of {}", row.tps.calls, row.calls),
        speed(row.tps_reported.p50),
        time(row.ttft.p50),
        time(row.ttft.p95),
        time(row.ttft.p99),
        row.ttft.share.map_or(UNKNOWN.to_owned(), percent),
        tokens(row.tokens.input),
        tokens(row.tokens.output),
        dollars(row.cost_usd)
            + if row.unpriced_calls > 0 && row.cost_usd.is_some() {
                " +"
            } else {
                ""
            },
        dollars(row.usd_per_million_output),
        bands(row),
    ];
    names.chain(figures).collect()
}

/// The share of calls in each experience band, from frustrating to instant.
fn bands(row: &GroupRow) -> String {
    let all: u64 = row.bands.iter().map(|band| band.calls).sum();
    if all == 0 {
        return UNKNOWN.to_owned();
    }
    let share = |calls: u64| format!("{:.0}", calls as f64 / all as f64 * 100.0);
    let shares = row.bands.iter().map(|band| share(band.calls));
    shares.collect::<Vec<_>>().join("/")
}

fn per_second(rate: f64) -> String {
    match rate {
        rate if rate < 0.1 => format!("{rate:.4}"),
        rate => format!("{rate:.2}"),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn speed(value: Option<f64>) -> String {
    value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.1}"))
}

fn time(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value < 1.0 => format!("{:.0} ms", value * 1000.0),
        Some(value) => format!("{value:.2} s"),
    }
}

fn tokens(count: Option<u64>) -> String {
    match count {
        None => UNKNOWN.to_owned(),
        Some(count) if count < 100_000 => count.to_string(),
        Some(count) if count < 100_000_000 => format!("{:.0}k", count as f64 / 1e3),
        Some(count) => format!("{:.0}M", count as f64 / 1e6),
    }
}

fn dollars(value: Option<f64>) -> String {
    match value {
        None => UNKNOWN.to_owned(),
        Some(value) if value != 0.0 && value.abs() < 0.01 => format!("${value:.5}"),
        Some(value) => format!("${value:.2}"),
    }
}

/// Notes on what the figures include.
pub(super) fn about(report: &Report) -> Vec<String> {
    let at = |at: Option<SystemTime>| {
        at.map_or(UNKNOWN.to_owned(), |at| {
            humantime::format_rfc3339_seconds(at).to_string()
        })
    };
    let calls = report.calls;
    let mut about = vec![format!(
        "{calls} calls from {} to {}.",
        at(report.first),
        at(report.last)
    )];
    if report.left_out > 0 {
        about.push(format!(
            "{} calls came while their upstream warmed up: they count and cost, but not in TPS and TTFT; \
             --with-warm-up has them in.",
            report.left_out
        ));
    }
    about.push(
        "TPS is tokens per second of one stream while it decodes, by the same tokenizer for every model; \
         judged are the calls that have one. p10, p5 and p1 are the slow tail: 90, 95 and 99 of 100 calls are as \
         fast or faster, which others write as p90, p95 and p99 of TPS; \
         bands are the shares under 5, 15, 30, 60 and from 60 on. `+` after a cost: some calls have no price."
            .to_owned(),
    );
    about.push(
        "share is the time to first token in all the time that these calls took; req/s is calls over the time \
         from the first to the last."
            .to_owned(),
    );
    about.push(
        "`reported` is the median of the same in the tokens that the provider reports: its own tokenizer makes \
         more or fewer of the same text, and engines and benchmarks count those."
            .to_owned(),
    );
    let tasks = report.tasks();
    if let (Some(median), Some(per_minute)) = (tasks.seconds.p50, tasks.per_minute) {
        about.push(format!(
            "{} sessions as tasks, from first call to last: half within {}, 95 of 100 within {}; {per_minute:.2} \
             a minute.",
            tasks.tasks,
            time(Some(median)),
            time(tasks.seconds.p95),
        ));
    }
    about
}

/// For terminals: names to the left, figures to the right.
pub(super) fn table(report: &Report) -> String {
    let named = report.dimensions().len();
    let heads = heads(report)
        .into_iter()
        .map(|head| head.to_uppercase())
        .collect();
    let mut lines: Vec<Vec<String>> = vec![heads];
    lines.extend(report.rows().iter().map(cells));
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|at| width(at).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, width))| {
                let pad = " ".repeat(width - cell.chars().count());
                if at < named {
                    format!("{cell}{pad}")
                } else {
                    format!("{pad}{cell}")
                }
            });
        let line = padded.collect::<Vec<_>>().join("  ");
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(text, "\n{}", about(report).join("\n"));
    text
}

/// The report as Markdown.
pub(super) fn markdown(report: &Report) -> String {
    let named = report.dimensions().len();
    let escaped = |cell: &String| cell.replace('\\', "\\\\").replace('|', "\\|");
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(escaped).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let heads = heads(report);
    let mut text = line(&heads);
    let rule = (0..heads.len()).map(|at| if at < named { "---" } else { "---:" });
    text += &format!("| {} |\n", rule.collect::<Vec<_>>().join(" | "));
    for row in report.rows() {
        text += &line(&cells(&row));
    }
    let _ = writeln!(text, "\n{}", about(report).join("\n"));
    text
}
