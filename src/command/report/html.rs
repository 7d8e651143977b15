//! A report as one HTML file with tables and plots.

use super::figures::{Quantiles, Report, Row};
use super::grid::{Grid, PARTS, difference_grid, grid};
use super::notes::{about, about_differences, mark_lines};
use super::prompt_grid::{TITLE, prompt_grid};
use super::text::plain;
use crate::command::experiment;
use maud::{Markup, html};
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_html::page::{self, figure};
use tokengauge_html::plot::{self, Bars, Series};
use tokengauge_process::output::printable;
use tokengauge_store::query::GroupRow;

const PLOTTED: usize = 12;

pub(super) fn page(report: &Report) -> String {
    let rows = report.rows();
    let about = about(report, &rows, plain);
    let (first, others) = about.split_at(1);
    let grid = grid(report, &rows);
    let marks = mark_lines(report, plain);
    let body = html! {
        @for line in first { p { (line) } }
        @for (title, figures) in &PARTS {
            h2 { (title) }
            (table(&grid.part(figures)))
        }
        @if let Some(prompts) = prompt_grid(report, &rows) {
            h2 { (TITLE) }
            (table(&prompts))
        }
        @if grid.heads.len() > grid.named + PARTS[2].1.end {
            h2 { "Scores" }
            (table(&grid.part(&(PARTS[2].1.end..grid.heads.len()))))
        }
        @if let Some(found) = report.differences(&rows) {
            h2 { "Differences" }
            @for line in about_differences(&found, plain) { p { (line) } }
            (table(&difference_grid(report, &found)))
        }
        (plots(report, &rows))
        @for experiment in report.experiments() {
            h2 { "Experiment " (printable(&experiment.name)) }
            pre.wide { (experiment::table(&experiment)) }
        }
        @if !marks.is_empty() {
            h2 { "Marks" }
            ul {
                @for line in marks { li { (line) } }
            }
        }
        h2 { "Notes" }
        @for line in others { p { (line) } }
        p { "Made " (maud::display(rfc3339_seconds(report.made))) "." }
    };
    page::page("tokengauge report", "", &body)
}

fn table(grid: &Grid) -> Markup {
    let rows = grid.rows.iter().map(|row| {
        row.iter()
            .map(|cell| (&*cell.text, &*cell.interval, cell.value))
    });
    page::table(grid.named, grid.heads.iter().map(String::as_str), rows)
}

fn plots(report: &Report, rows: &[Row]) -> Markup {
    let bars = |values: fn(&GroupRow) -> [Option<f64>; 3]| {
        let bar = |row: &Row| Bars {
            name: name(&row.group),
            values: values(&row.group),
        };
        rows.iter().take(PLOTTED).map(bar).collect::<Vec<_>>()
    };
    let span = report
        .first
        .zip(report.last)
        .and_then(|(first, last)| last.duration_since(first).ok())
        .unwrap_or_default();
    let clock = move |at: f64| page::clock(at, span);
    let marks = report.mark_times();
    let over_time = |points: Vec<Quantiles>, unit| {
        let line = |number: usize| {
            points
                .iter()
                .map(|(at, values)| (*at, values[number]))
                .collect::<Series>()
        };
        plot::lines(&[line(1), line(0), line(2)], &marks, unit, &clock)
    };
    let speeds = plot::bars(
        &bars(|row| [row.tps.p50, row.tps.p10, row.tps.p1]),
        "tokens per second",
    );
    let waits = plot::bars(
        &bars(|row| [row.ttft.p50, row.ttft.p95, row.ttft.p99]),
        "seconds",
    );
    let prices = plot::bars(
        &bars(|row| [row.usd_per_million_output, None, None]),
        "US dollars",
    );
    let (tail, head) = (["p50", "p10", "p1"], ["p50", "p95", "p99"]);
    let middle = ["p50", "p10", "p90"];
    let speeds_over_time = over_time(report.tps(), "tokens/s");
    let waits_over_time = over_time(report.ttft(), "seconds");
    html! {
        (figure("Output tokens per second: the median and the slow tail", &tail, &speeds))
        (figure("Time to first token: the median and the slow tail", &head, &waits))
        (figure("Cost of a million output tokens, input included", &[], &prices))
        (figure("Output tokens per second over time", &middle, &speeds_over_time))
        (figure("Time to first token over time", &middle, &waits_over_time))
    }
}

fn name(row: &GroupRow) -> String {
    let names = row.names.iter();
    let names = names.map(|name| printable(name.as_deref().unwrap_or("–")));
    names.collect::<Vec<_>>().join(" · ")
}
