//! A report as a table for terminals, and in Markdown.

use super::figures::Report;
use crate::command::ab;
use crate::output::printable;
use crate::query::{GroupRow, Mark};
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

/// Marks that are listed at most; JSON has up to a thousand.
const LISTED: usize = 50;

/// What happened in the time of the report, the newest first.
pub(super) fn mark_lines(report: &Report) -> Vec<String> {
    let line = |mark: &Mark| {
        let about = [
            ("model", &mark.model),
            ("upstream", &mark.upstream),
            ("route", &mark.route),
            ("workload", &mark.workload),
        ];
        let about = about
            .iter()
            .filter_map(|(what, name)| Some(format!("{what} {}", name.as_deref()?)));
        let about = about.collect::<Vec<_>>().join(", ");
        let about = match about.is_empty() {
            true => String::new(),
            false => format!(" ({about})"),
        };
        printable(&format!("{} {}{about}", mark.time, mark.text)).into_owned()
    };
    let mut lines: Vec<String> = report.marks.iter().take(LISTED).map(line).collect();
    if report.marks.len() > LISTED {
        lines.push(format!("and {} earlier ones", report.marks.len() - LISTED));
    }
    lines
}

/// The narrowest that a name is cut to.
const MIN_NAME: usize = 12;
/// Between two columns.
const GAP: &str = "  ";

/// For terminals: names to the left, figures to the right. What does not fit into `width` goes
/// into further tables below, each with the names.
pub(super) fn table(report: &Report, width: Option<usize>) -> String {
    let named = report.dimensions().len();
    let heads = heads(report)
        .into_iter()
        .map(|head| head.to_uppercase())
        .collect();
    let mut lines: Vec<Vec<String>> = vec![heads];
    lines.extend(report.rows().iter().map(cells));
    if let Some(width) = width {
        let most = (width / 2 / named.max(1)).max(MIN_NAME);
        for cell in lines.iter_mut().flat_map(|line| &mut line[..named]) {
            *cell = shortened(cell, most);
        }
    }
    let widest = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|at| widest(at).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for columns in parts(&widths, named, width) {
        for line in &lines {
            let padded = columns.iter().map(|&at| {
                let cell = &line[at];
                let pad = " ".repeat(widths[at] - cell.chars().count());
                match at < named {
                    true => format!("{cell}{pad}"),
                    false => format!("{pad}{cell}"),
                }
            });
            let line = padded.collect::<Vec<_>>().join(GAP);
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
    }
    for note in about(report) {
        text += &wrapped(&note, width);
    }
    for experiment in report.experiments() {
        text += &format!("\n{}", ab::table(&experiment));
    }
    let marks = mark_lines(report);
    if !marks.is_empty() {
        text += "\nMarks:\n";
    }
    for mark in marks {
        text += &wrapped(&mark, width);
    }
    text
}

/// A name with its end cut off where it is longer than `most` characters.
fn shortened(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// The columns of each table, so that none is wider than `width` unless one column is.
fn parts(widths: &[usize], named: usize, width: Option<usize>) -> Vec<Vec<usize>> {
    let names: Vec<usize> = (0..named).collect();
    let wide = |columns: &[usize]| -> usize {
        let gaps = GAP.len() * columns.len().saturating_sub(1);
        columns.iter().map(|&at| widths[at]).sum::<usize>() + gaps
    };
    let mut parts = vec![names.clone()];
    for at in named..widths.len() {
        let last = parts.len() - 1;
        parts[last].push(at);
        let too_wide = width.is_some_and(|width| wide(&parts[last]) > width);
        if too_wide && parts[last].len() > named + 1 {
            parts[last].pop();
            parts.push(names.iter().copied().chain([at]).collect());
        }
    }
    parts
}

/// A sentence in lines of at most `width` characters, cut between words.
fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else {
        return format!("{text}\n");
    };
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += letters;
    }
    lines + "\n"
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
    for experiment in report.experiments() {
        text += &format!("\n{}", ab::markdown(&experiment));
    }
    let marks = mark_lines(report);
    if !marks.is_empty() {
        let marks: String = marks.iter().map(|mark| format!("- {mark}\n")).collect();
        let _ = write!(text, "\nMarks:\n\n{marks}");
    }
    text
}
