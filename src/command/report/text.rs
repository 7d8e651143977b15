//! A report as a table for terminals, and in Markdown.

use super::differences::{Difference, Differences};
use super::estimates::{CONFIDENCE, Estimate, Figure};
use super::figures::{Report, Row, joined};
use crate::command::measured_by::measured_by;
use crate::output::printable;
use crate::query::GroupRow;
use std::fmt::Write;
use std::time::SystemTime;
use tokengauge_core::fingerprint::Spread;

/// The text for an unknown value.
pub(super) const UNKNOWN: &str = "–";

/// Characters of names within a sentence.
const MAX_NAMES: usize = 48;
/// Rows whose work is described; the JSON has that of all.
const DESCRIBED: usize = 12;

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// The interval of the figure; empty where it has none.
    pub(super) interval: String,
    /// What rows are sorted by.
    pub(super) value: Option<f64>,
}

/// A table: names first, then figures.
pub(super) struct Grid {
    /// The number of columns with names.
    pub(super) named: usize,
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// The names and some of the figures.
    pub(super) fn part(&self, figures: &std::ops::Range<usize>) -> Grid {
        let named = self.named;
        let of = |at: usize| at < named || figures.contains(&(at - named));
        let heads = self.heads.iter().enumerate().filter(|(at, _)| of(*at));
        let row = |row: &Vec<Cell>| {
            let cells = row.iter().enumerate().filter(|(at, _)| of(*at));
            cells.map(|(_, cell)| cell.clone()).collect()
        };
        Grid {
            named,
            heads: heads.map(|(_, head)| head.clone()).collect(),
            rows: self.rows.iter().map(row).collect(),
        }
    }
}

/// A column: its head, and what a row has in it.
type Column = (&'static str, fn(&Row) -> Cell);

/// The columns of a group's figures.
const COLUMNS: [Column; 21] = [
    ("calls", |row| count(row.group.calls)),
    ("errors", |row| Cell {
        interval: interval(row, Figure::ErrorShare, share),
        ..count(row.group.errors)
    }),
    ("req/s", |row| {
        shown(row.group.requests_per_second, per_second)
    }),
    ("TPS p50", |row| figure(row, Figure::TpsP50, speed)),
    ("p10", |row| figure(row, Figure::TpsP10, speed)),
    ("p5", |row| figure(row, Figure::TpsP5, speed)),
    ("p1", |row| figure(row, Figure::TpsP1, speed)),
    ("mean", |row| figure(row, Figure::TpsMean, speed)),
    ("judged", |row| of_all(row, 0)),
    ("reported", |row| figure(row, Figure::TpsReportedP50, speed)),
    ("TTFT p50", |row| figure(row, Figure::TtftP50, seconds)),
    ("p95", |row| figure(row, Figure::TtftP95, seconds)),
    ("p99", |row| figure(row, Figure::TtftP99, seconds)),
    ("share", |row| figure(row, Figure::TtftShare, percent)),
    ("judged", |row| of_all(row, 1)),
    ("in tokens", |row| tokens(row.group.tokens.input)),
    ("out tokens", |row| tokens(row.group.tokens.output)),
    ("cost", cost),
    ("per 1M out", |row| {
        figure(row, Figure::UsdPerMillionOutput, dollars)
    }),
    ("priced", |row| of_all(row, 2)),
    ("bands %", |row| plain(bands(&row.group))),
];

/// The columns of [`COLUMNS`] that belong together, where one table is too wide.
pub(super) const PARTS: [(&str, std::ops::Range<usize>); 3] = [
    ("Calls and speed", 0..10),
    ("Time to first token", 10..15),
    ("Tokens and cost", 15..COLUMNS.len()),
];

/// The figures of a report, a row per group.
pub(super) fn grid(report: &Report, rows: &[Row]) -> Grid {
    let by = report.dimensions().into_iter();
    let heads = by.chain(COLUMNS.iter().map(|(head, _)| *head));
    let cells = |row: &Row| {
        let figures = COLUMNS.iter().map(|(_, cell)| cell(row));
        names(&row.group.names).chain(figures).collect()
    };
    Grid {
        named: report.dimensions().len(),
        heads: heads.map(str::to_owned).collect(),
        rows: rows.iter().map(cells).collect(),
    }
}

/// The rows against the baseline.
pub(super) fn difference_grid(report: &Report, found: &Differences) -> Grid {
    let columns = [
        ("TPS p50", Figure::TpsP50),
        ("TPS mean", Figure::TpsMean),
        ("TTFT p50", Figure::TtftP50),
        ("TTFT p95", Figure::TtftP95),
        ("errors", Figure::ErrorShare),
        ("per 1M out", Figure::UsdPerMillionOutput),
    ];
    let by = report.dimensions().into_iter();
    let heads = by.chain(columns.iter().map(|(head, _)| *head));
    let rows = found.rows.iter().map(|row| {
        let cells = columns.iter().map(|(_, figure)| {
            let mut figures = row.figures.iter();
            let found = figures.find(|difference| difference.figure == figure.as_str());
            found.map_or_else(|| plain(UNKNOWN.to_owned()), difference)
        });
        names(&row.names).chain(cells).collect()
    });
    Grid {
        named: report.dimensions().len(),
        heads: heads.map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// What the table of differences is, and in which rows the work was not the same.
pub(super) fn about_differences(found: &Differences) -> Vec<String> {
    let shown = found.rows.iter().flat_map(|row| &row.figures);
    let shown = shown.filter(|difference| difference.is_shown()).count();
    let baseline = row_name(&found.baseline);
    let about = format!(
        "Differences from {baseline}: in percent of it, errors in percentage points. All intervals hold at once in {:.0} of 100 \
         reports (Bonferroni: each is of {:.2} %). {shown} of them leave out 0, and are marked `*`: no other difference is shown.",
        found.confidence * 100.0,
        found.confidence_of_each * 100.0,
    );
    let other = found.rows.iter().filter(|row| !row.other_work.is_empty());
    let other = other.map(|row| {
        let (names, work) = (row_name(&row.names), row.other_work.join("; "));
        format!("{names} had other work than {baseline}, so a difference may be its own: {work}.")
    });
    std::iter::once(about).chain(other).collect()
}

/// What the calls asked for, and what measured them.
fn fingerprint(row: &Row) -> String {
    let it = &row.fingerprint;
    let spread = |spread: &Option<Spread>| spread.map_or(UNKNOWN.to_owned(), |it| it.to_string());
    let share = |share: Option<f64>| share.map_or(UNKNOWN.to_owned(), percent);
    let engines = match it.engines.is_empty() {
        true => String::new(),
        false => format!(
            "; {}",
            shortened(&printable(&it.engines.join(", ")), MAX_NAMES)
        ),
    };
    format!(
        "Work of {}: {} input tokens (10 to 90 of 100 calls), {} output tokens, {} of input cached, {} of answers with tool \
         calls, {} streamed, {} calls at once; {}{engines}.",
        row_name(&row.group.names),
        spread(&it.input_tokens),
        spread(&it.output_tokens),
        share(it.cached_input_share),
        share(it.tool_call_share),
        share(it.streamed_share),
        spread(&it.concurrency),
        shortened(&printable(&it.models.join(", ")), MAX_NAMES),
    )
}

/// The names of a row within a sentence.
fn row_name(names: &[Option<String>]) -> String {
    shortened(&printable(&joined(names)), MAX_NAMES)
}

/// What made the report.
fn made_by() -> String {
    let by = measured_by();
    let machine = &by.machine;
    let cores = machine
        .cores
        .map_or(String::new(), |cores| format!(", {cores} processors"));
    let memory = machine.memory_bytes.map_or(String::new(), |bytes| {
        format!(", {:.1} GiB of memory", bytes as f64 / f64::from(1 << 30))
    });
    format!(
        "By tokengauge {} (commit {}, method {}) on {}{cores}{memory}, {}.",
        by.version,
        by.commit,
        by.method_version,
        machine.cpu.as_deref().unwrap_or("an unnamed processor"),
        machine.platform,
    )
}

fn difference(found: &Difference) -> Cell {
    let scale = if found.relative { " %" } else { " points" };
    let signed = |value: f64| format!("{:+.1}", value * 100.0);
    let mark = if found.is_shown() { " *" } else { "" };
    Cell {
        text: format!("{}{scale}{mark}", signed(found.value)),
        interval: match (found.lower, found.upper) {
            (Some(lower), Some(upper)) => format!("{} to {}", signed(lower), signed(upper)),
            (Some(lower), None) => format!("≥ {}", signed(lower)),
            (None, Some(upper)) => format!("≤ {}", signed(upper)),
            (None, None) => "too few".to_owned(),
        },
        value: Some(found.value),
    }
}

fn names(names: &[Option<String>]) -> impl Iterator<Item = Cell> {
    names
        .iter()
        .map(|name| plain(printable(name.as_deref().unwrap_or(UNKNOWN)).into_owned()))
}

fn plain(text: String) -> Cell {
    Cell {
        text,
        ..Cell::default()
    }
}

fn count(count: u64) -> Cell {
    Cell {
        value: Some(count as f64),
        ..plain(count.to_string())
    }
}

/// A value without an interval.
fn shown(value: Option<f64>, show: fn(f64) -> String) -> Cell {
    Cell {
        value,
        ..plain(value.map_or(UNKNOWN.to_owned(), show))
    }
}

/// A figure with its interval.
fn figure(row: &Row, figure: Figure, show: fn(f64) -> String) -> Cell {
    let value = row.estimates.get(&figure).map(|estimate| estimate.value);
    Cell {
        interval: interval(row, figure, show),
        ..shown(value, show)
    }
}

fn interval(row: &Row, figure: Figure, show: fn(f64) -> String) -> String {
    let estimate = row.estimates.get(&figure);
    estimate.map_or_else(String::new, |estimate| range(estimate, show))
}

/// The bounds of an interval.
fn range(estimate: &Estimate, show: fn(f64) -> String) -> String {
    match (estimate.lower, estimate.upper) {
        (Some(lower), Some(upper)) => format!("{}–{}", show(lower), show(upper)),
        (Some(lower), None) => format!("≥ {}", show(lower)),
        (None, Some(upper)) => format!("≤ {}", show(upper)),
        (None, None) => "too few".to_owned(),
    }
}

/// How many of a row's calls have a figure.
fn of_all(row: &Row, figure: usize) -> Cell {
    let judged = &row.judged[figure];
    Cell {
        value: Some(judged.calls as f64 / judged.of as f64),
        ..plain(format!("{} of {}", judged.calls, judged.of))
    }
}

/// What the calls cost; `+` where some have no price.
fn cost(row: &Row) -> Cell {
    let mut cell = shown(row.group.cost_usd, dollars);
    if row.group.unpriced_calls > 0 && row.group.cost_usd.is_some() {
        cell.text += " +";
    }
    cell
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

/// A share that is small.
fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn speed(value: f64) -> String {
    format!("{value:.1}")
}

fn seconds(value: f64) -> String {
    match value < 1.0 {
        true => format!("{:.0} ms", value * 1000.0),
        false => format!("{value:.2} s"),
    }
}

fn tokens(count: Option<u64>) -> Cell {
    let show = |count: f64| match count {
        count if count < 1e5 => count.to_string(),
        count if count < 1e8 => format!("{:.0}k", count / 1e3),
        count => format!("{:.0}M", count / 1e6),
    };
    shown(count.map(|count| count as f64), show)
}

fn dollars(value: f64) -> String {
    match value != 0.0 && value.abs() < 0.01 {
        true => format!("${value:.5}"),
        false => format!("${value:.2}"),
    }
}

/// Notes on what the figures include.
pub(super) fn about(report: &Report, rows: &[Row]) -> Vec<String> {
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
    about.extend(judged(report));
    about.push(intervals(report));
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
    let [median, p95, _] = report.task_estimates();
    if let (Some(median), Some(p95), Some(per_minute)) = (median, p95, tasks.per_minute) {
        let with_range = |estimate: &Estimate| {
            format!("{} ({})", seconds(estimate.value), range(estimate, seconds))
        };
        about.push(format!(
            "{} sessions as tasks, from first call to last: half within {}, 95 of 100 within {}; {per_minute:.2} \
             a minute.",
            tasks.tasks,
            with_range(&median),
            with_range(&p95),
        ));
    }
    about.extend(rows.iter().take(DESCRIBED).map(fingerprint));
    about.push(made_by());
    about
}

/// How many calls have a figure, and why the others have none.
fn judged(report: &Report) -> Vec<String> {
    let names = ["TPS is", "TTFT is", "Cost per million output tokens is"];
    let judged = report.judged();
    let all = names.iter().zip(&judged).map(|(name, judged)| {
        let reasons = judged.without.iter();
        let reasons: Vec<_> = reasons
            .map(|(reason, calls)| format!("{calls} {}", reason.replace('_', " ")))
            .collect();
        let others = match reasons.is_empty() {
            true => String::new(),
            false => format!("; the others: {}", reasons.join(", ")),
        };
        format!("{name} of {} of {} calls{others}.", judged.calls, judged.of)
    });
    all.collect()
}

/// What the intervals are.
fn intervals(report: &Report) -> String {
    format!(
        "Below a figure is its {:.0} % interval, clustered by session: calls of one session depend on each other, and {} \
         sessions are in this report, a call without one being a session of its own. `too few` has neither bound. \
         Calls, tokens, cost and req/s are counted whole and have none.",
        CONFIDENCE * 100.0,
        report.units(),
    )
}

/// The narrowest that a name is cut to.
const MIN_NAME: usize = 12;
/// Between two columns.
const GAP: &str = "  ";

/// For terminals: names to the left, figures to the right, intervals below. What does not fit into `width` goes
/// into further tables below, each with the names.
pub(super) fn table(report: &Report, width: Option<usize>) -> String {
    let rows = report.rows();
    let mut text = aligned(&grid(report, &rows), width);
    if let Some(found) = report.differences(&rows) {
        for line in about_differences(&found) {
            text += &wrapped(&line, width);
        }
        text.push('\n');
        text += &aligned(&difference_grid(report, &found), width);
    }
    for note in about(report, &rows) {
        text += &wrapped(&note, width);
    }
    text
}

fn aligned(grid: &Grid, width: Option<usize>) -> String {
    let named = grid.named;
    let mut lines: Vec<Vec<String>> =
        vec![grid.heads.iter().map(|head| head.to_uppercase()).collect()];
    for row in &grid.rows {
        lines.push(row.iter().map(|cell| cell.text.clone()).collect());
        lines.push(row.iter().map(|cell| cell.interval.clone()).collect());
    }
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
            let line = line.trim_end();
            if !line.is_empty() {
                text += line;
                text.push('\n');
            }
        }
        text.push('\n');
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
    let rows = report.rows();
    let mut text = markdown_table(&grid(report, &rows));
    if let Some(found) = report.differences(&rows) {
        let _ = writeln!(text, "\n{}\n", about_differences(&found).join("\n"));
        text += &markdown_table(&difference_grid(report, &found));
    }
    let _ = writeln!(text, "\n{}", about(report, &rows).join("\n"));
    text
}

fn markdown_table(grid: &Grid) -> String {
    let escaped = |cell: &str| cell.replace('\\', "\\\\").replace('|', "\\|");
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(grid.heads.iter().map(|head| escaped(head)).collect());
    let rule = (0..grid.heads.len()).map(|at| if at < grid.named { "---" } else { "---:" });
    text += &line(rule.map(str::to_owned).collect());
    for row in &grid.rows {
        let cells = row.iter().map(|cell| match cell.interval.is_empty() {
            true => escaped(&cell.text),
            false => format!("{} ({})", escaped(&cell.text), escaped(&cell.interval)),
        });
        text += &line(cells.collect());
    }
    text
}
