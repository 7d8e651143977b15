//! A report as one HTML file with tables and plots, in light and dark, which loads nothing.

use super::figures::{Quantiles, Report};
use super::text::{about, cells, heads, mark_lines};
use crate::command::ab;
use crate::output::printable;
use crate::plot::{self, Bars, Series};
use crate::query::GroupRow;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Groups in a plot at most; the table has all.
const PLOTTED: usize = 12;

/// The style sheet of pages that commands write, beside that of plots.
pub(in crate::command) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--grid:#d7dbe0;--back:#fff;--one:#0b63c5;--two:#c2570c;--three:#6f42c1}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--grid:#3b424b;--back:#14171b;--one:#5aa9ff;--two:#ff9d57;--three:#b392f0}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:75rem;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}\
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--grid);text-align:right;white-space:nowrap}\
th.name,td.name{text-align:left}\
.key{margin:.2rem 0;font-size:.9rem}.key b{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .3rem 0 .8rem}\
.one{background:var(--one)}.two{background:var(--two)}.three{background:var(--three)}figure{margin:0}";

/// The whole file.
pub(super) fn page(report: &Report) -> String {
    let rows = report.rows();
    let mut page = String::new();
    let written = (|| {
        write!(
            page,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <title>tokengauge report</title><style>{STYLE}{}</style></head><body>\n<h1>tokengauge report</h1>\n",
            plot::STYLE
        )?;
        for line in about(report) {
            writeln!(page, "<p>{}</p>", escaped(&line))?;
        }
        table(&mut page, report, &rows)?;
        plots(&mut page, report, &rows)?;
        for experiment in report.experiments() {
            let name = escaped(&printable(&experiment.name));
            let table = escaped(&ab::table(&experiment));
            writeln!(
                page,
                "<h2>Experiment {name}</h2>\n<pre class=\"wide\">{table}</pre>"
            )?;
        }
        marks(&mut page, report)?;
        let made = humantime::format_rfc3339_seconds(report.made);
        writeln!(
            page,
            "<p>Made {made} by tokengauge {}.</p>\n</body></html>",
            env!("CARGO_PKG_VERSION")
        )
    })();
    written.expect("a string takes every word");
    page
}

fn table(page: &mut String, report: &Report, rows: &[GroupRow]) -> std::fmt::Result {
    let named = report.dimensions().len();
    let class = |at: usize| if at < named { " class=\"name\"" } else { "" };
    page.push_str("<div class=\"wide\"><table><thead><tr>");
    for (at, head) in heads(report).iter().enumerate() {
        write!(
            page,
            "<th scope=\"col\"{}>{}</th>",
            class(at),
            escaped(head)
        )?;
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in rows {
        page.push_str("<tr>");
        for (at, cell) in cells(row).iter().enumerate() {
            write!(page, "<td{}>{}</td>", class(at), escaped(cell))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    Ok(())
}

/// What happened meanwhile.
fn marks(page: &mut String, report: &Report) -> std::fmt::Result {
    let lines = mark_lines(report);
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

fn plots(page: &mut String, report: &Report, rows: &[GroupRow]) -> std::fmt::Result {
    let bars = |values: fn(&GroupRow) -> [Option<f64>; 3]| {
        let bar = |row: &GroupRow| Bars {
            name: name(row),
            values: values(row),
        };
        rows.iter().take(PLOTTED).map(bar).collect::<Vec<_>>()
    };
    let span = report
        .first
        .zip(report.last)
        .and_then(|(first, last)| last.duration_since(first).ok());
    let span = span.unwrap_or_default();
    let clock = move |at: f64| clock(at, span);
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

/// A plot with its title and the names of its colours. The title is HTML.
pub(in crate::command) fn figure(
    page: &mut String,
    title: &str,
    key: &[&str],
    svg: &str,
) -> std::fmt::Result {
    writeln!(page, "<h2>{title}</h2>")?;
    if svg.is_empty() {
        return writeln!(page, "<p>No call has it.</p>");
    }
    if !key.is_empty() {
        let colours = ["one", "two", "three"];
        let keys = key
            .iter()
            .zip(colours)
            .map(|(name, class)| format!("<b class=\"{class}\"></b>{name}"));
        writeln!(page, "<p class=\"key\">{}</p>", keys.collect::<String>())?;
    }
    writeln!(
        page,
        "<figure role=\"img\" aria-label=\"{title}\">{svg}</figure>"
    )
}

/// The name of a group: its dimensions' values.
fn name(row: &GroupRow) -> String {
    let names = row.names.iter();
    let names = names.map(|name| printable(name.as_deref().unwrap_or("–")));
    names.collect::<Vec<_>>().join(" · ")
}

/// Hours and minutes; over a short span seconds, over several days month and day, too.
fn clock(at: f64, span: Duration) -> String {
    let at = UNIX_EPOCH + Duration::from_secs_f64(at.max(0.0));
    let text = humantime::format_rfc3339_seconds(at).to_string();
    match span.as_secs() {
        ..600 => text[11..19].to_owned(),
        600..129_600 => text[11..16].to_owned(),
        _ => text[5..16].replace('T', " "),
    }
}

/// Text within HTML, attributes included.
pub(in crate::command) fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
