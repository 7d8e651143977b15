//! What HTML files that are written have in common: one file, in light and dark and on paper, which loads nothing.

use crate::plot;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::time::rfc3339_seconds;

/// The style sheet, beside that of plots. On paper it is light, and tables are as wide as the paper.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--grid:#d7dbe0;--back:#fff;--one:#0b63c5;--two:#c2570c;--three:#6f42c1}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--grid:#3b424b;--back:#14171b;--one:#5aa9ff;--two:#ff9d57;--three:#b392f0}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:75rem;padding:0 1rem;\
overflow-wrap:break-word}\
h1{font-size:1.5rem;overflow-wrap:normal}h2{font-size:1.1rem;margin:2rem 0 .3rem}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}\
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--grid);text-align:right;vertical-align:top}td{white-space:nowrap}\
th.name,td.name{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:7rem}\
td small{display:block;font-size:.75rem;opacity:.8}\
th button{all:unset;cursor:pointer;text-decoration:underline dotted}th button:focus-visible{outline:2px solid var(--one)}\
th[aria-sort=ascending] button::after{content:\" \\2191\"}th[aria-sort=descending] button::after{content:\" \\2193\"}\
.key{margin:.2rem 0;font-size:.9rem}.key b{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .3rem 0 .8rem}\
.one{background:var(--one)}.two{background:var(--two)}.three{background:var(--three)}figure{margin:0}\
@page{size:A4 portrait;margin:12mm}\
@media print{:root{color-scheme:light;--ink:#000;--grid:#bbb;--back:#fff;--one:#0b63c5;--two:#c2570c;--three:#6f42c1}\
body{font-size:9pt;margin:0;max-width:none;padding:0}.wide{overflow:visible}table{font-size:7.5pt;width:100%}\
th,td{padding:.8mm 1mm;white-space:normal}th.name,td.name{min-width:16mm}td small{font-size:6.5pt}\
thead{display:table-header-group}tr,figure{break-inside:avoid}h2,.key{break-after:avoid}th button{text-decoration:none}\
.key b{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

/// Sorts a table by the column whose head is pressed: first the largest, then the smallest; texts by letter. Without it the
/// table is as it was written.
const SCRIPT: &str = include_str!("page.js");

/// The begin of a page, up to its heading.
pub fn begin(title: &str) -> String {
    let digest = STANDARD.encode(Sha256::digest(SCRIPT));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'sha256-{digest}'\">\
         <title>{title}</title><style>{STYLE}{}</style></head><body>\n<h1>{title}</h1>\n",
        plot::STYLE
    )
}

pub fn end() -> String {
    format!("<script>{SCRIPT}</script>\n</body></html>\n")
}

pub struct Cell<'a> {
    pub text: &'a str,
    /// Below it, in small: an interval.
    pub below: &'a str,
    /// What its column is sorted by; else by its text.
    pub value: Option<f64>,
}

/// A table that can be sorted; the first `named` columns are names.
pub fn table<'h, 'a>(
    page: &mut String,
    named: usize,
    heads: impl Iterator<Item = &'h str>,
    rows: impl Iterator<Item = Vec<Cell<'a>>>,
) -> std::fmt::Result {
    let class = |at: usize| if at < named { " class=\"name\"" } else { "" };
    page.push_str("<div class=\"wide\"><table class=\"sortable\"><thead><tr>");
    for (at, head) in heads.enumerate() {
        let (class, head) = (class(at), escaped(head));
        write!(page, "<th scope=\"col\"{class}>{head}</th>")?;
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in rows {
        page.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            write!(page, "<td{}", class(at))?;
            if let Some(value) = cell.value {
                write!(page, " data-value=\"{value}\"")?;
            }
            write!(page, ">{}", escaped(cell.text))?;
            if !cell.below.is_empty() {
                // On paper it is broken between its bounds alone.
                let below = escaped(cell.below).replace(' ', "&nbsp;");
                write!(page, "<small>{below}</small>")?;
            }
            page.push_str("</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    Ok(())
}

/// A plot with its title and the names of its colours. The title is HTML.
pub fn figure(page: &mut String, title: &str, key: &[&str], svg: &str) -> std::fmt::Result {
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

/// Text within HTML, attributes included.
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// Hours and minutes; over an hour or less seconds, over several days month and day, too.
pub fn clock(at: f64, span: Duration) -> String {
    let at = UNIX_EPOCH + Duration::from_secs_f64(at.max(0.0));
    let text = rfc3339_seconds(at).to_string();
    match span.as_secs() {
        ..=3600 => text[11..19].to_owned(),
        3601..129_600 => text[11..16].to_owned(),
        _ => text[5..16].replace('T', " "),
    }
}
