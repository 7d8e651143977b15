//! A report as one HTML file with tables and plots.

use super::figures::{Quantiles, Report, Row};
use super::grid::{Grid, PARTS, difference_grid, grid};
use super::notes::{about, about_differences, mark_lines};
use super::text::plain;
use crate::command::experiment;
use std::fmt::Write;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_html::page::{self, Cell, escaped, figure};
use tokengauge_html::plot::{self, Bars, Series};
use tokengauge_process::output::printable;
use tokengauge_store::query::GroupRow;

/// Groups in a plot at most; the table has all.
const PLOTTED: usize = 12;

pub(super) fn page(report: &Report) -> String {
    let rows = report.rows();
    let mut page = page::begin("tokengauge report");
    let written = (|| {
        let about = about(report, &rows, plain);
        let (first, others) = about.split_at(1);
        paragraphs(&mut page, first)?;
        let grid = grid(report, &rows);
        for (title, figures) in &PARTS {
            writeln!(page, "<h2>{title}</h2>")?;
            table(&mut page, &grid.part(figures))?;
        }
        if let Some(found) = report.differences(&rows) {
            page.push_str("<h2>Differences</h2>\n");
            paragraphs(&mut page, &about_differences(&found, plain))?;
            table(&mut page, &difference_grid(report, &found))?;
        }
        plots(&mut page, report, &rows)?;
        for experiment in report.experiments() {
            let name = escaped(&printable(&experiment.name));
            let table = escaped(&experiment::table(&experiment));
            writeln!(
                page,
                "<h2>Experiment {name}</h2>\n<pre class=\"wide\">{table}</pre>"
            )?;
        }
        marks(&mut page, report)?;
        page.push_str("<h2>What this is of, and how it was made</h2>\n");
        paragraphs(&mut page, others)?;
        let made = rfc3339_seconds(report.made);
        writeln!(page, "<p>Made {made}.</p>")
    })();
    written.expect("a string takes every word");
    page + &page::end()
}

fn paragraphs(page: &mut String, lines: &[String]) -> std::fmt::Result {
    let mut lines = lines.iter();
    lines.try_for_each(|line| writeln!(page, "<p>{}</p>", escaped(line)))
}

fn marks(page: &mut String, report: &Report) -> std::fmt::Result {
    let lines = mark_lines(report, plain);
    if lines.is_empty() {
        return Ok(());
    }
    page.push_str("<h2>Marks</h2>\n<ul>\n");
    for line in lines {
        writeln!(page, "<li>{}</li>", escaped(&line))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

fn table(page: &mut String, grid: &Grid) -> std::fmt::Result {
    let rows = grid.rows.iter().map(|row| {
        let cells = row.iter().map(|cell| Cell {
            text: &cell.text,
            below: &cell.interval,
            value: cell.value,
        });
        cells.collect()
    });
    page::table(
        page,
        grid.named,
        grid.heads.iter().map(String::as_str),
        rows,
    )
}

fn plots(page: &mut String, report: &Report, rows: &[Row]) -> std::fmt::Result {
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
    figure(
        page,
        "Output tokens per second: the median and the slow tail",
        &tail,
        &speeds,
    )?;
    figure(
        page,
        "Time to first token: the median and the slow tail",
        &head,
        &waits,
    )?;
    figure(
        page,
        "Cost of a million output tokens, input included",
        &[],
        &prices,
    )?;
    figure(
        page,
        "Output tokens per second over time",
        &middle,
        &over_time(report.tps(), "tokens/s"),
    )?;
    figure(
        page,
        "Time to first token over time",
        &middle,
        &over_time(report.ttft(), "seconds"),
    )
}

/// The name of a group: its dimensions' values.
fn name(row: &GroupRow) -> String {
    let names = row.names.iter();
    let names = names.map(|name| printable(name.as_deref().unwrap_or("–")));
    names.collect::<Vec<_>>().join(" · ")
}
