//! The common parts of written HTML files. Each page is one file that loads nothing and supports light mode, dark mode and
//! paper.

use crate::plot;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, html};
use sha2::{Digest, Sha256};
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};
use tokengauge_core::time::rfc3339_seconds;

/// The style sheet, in addition to the style sheet of plots. On paper it is light, and tables are as wide as the paper.
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

/// Sorts a table by the column whose head is clicked: numbers in descending, then ascending order, texts by letter. Without
/// the script the table keeps its order.
const SCRIPT: &str = include_str!("page.js");

/// A page with its title as the heading. `style` is added to the style sheet of all pages.
pub fn page(title: &str, style: &str, body: &Markup) -> String {
    let digest = STANDARD.encode(Sha256::digest(SCRIPT));
    let policy =
        format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'");
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta http-equiv="content-security-policy" content=(policy);
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(plot::STYLE)) (PreEscaped(style)) }
            }
            body {
                h1 { (title) }
                (body)
                script { (PreEscaped(SCRIPT)) }
            }
        }
        "\n"
    };
    page.into_string()
}

/// A cell of a table: its text, a smaller text below (an interval), and the number by which its column is sorted. A column
/// without numbers is sorted by text.
pub type Cell<'a> = (&'a str, &'a str, Option<f64>);

/// A sortable table. The first `named` columns are names.
pub fn table<'h, 'a>(
    named: usize,
    heads: impl Iterator<Item = &'h str>,
    rows: impl Iterator<Item = impl Iterator<Item = Cell<'a>>>,
) -> Markup {
    let class = |at: usize| (at < named).then_some("name");
    html! {
        div.wide { table.sortable {
            thead { tr {
                @for (at, head) in heads.enumerate() { th scope="col" class=[class(at)] { (head) } }
            } }
            tbody {
                @for row in rows { tr {
                    @for (at, (text, below, value)) in row.enumerate() {
                        td class=[class(at)] data-value=[value] {
                            (text)
                            // On paper a line may break only between the bounds.
                            @if !below.is_empty() { small { (below.replace(' ', "\u{a0}")) } }
                        }
                    }
                } }
            }
        } }
    }
}

/// A table of calls. The columns that are not in `figures` are names.
pub fn calls<const N: usize>(
    label: &str,
    heads: [&str; N],
    figures: Range<usize>,
    rows: &Markup,
) -> Markup {
    let class = |at: usize| (!figures.contains(&at)).then_some("name");
    html! {
        div.wide role="region" aria-label=(label) tabindex="0" { table {
            thead { tr {
                @for (at, head) in heads.iter().enumerate() { th scope="col" class=[class(at)] { (head) } }
            } }
            tbody { (rows) }
        } }
    }
}

pub fn figure(title: &str, key: &[&str], svg: &str) -> Markup {
    html! {
        h2 { (title) }
        @if svg.is_empty() {
            p { "No data." }
        } @else {
            @if !key.is_empty() {
                p.key {
                    @for (name, class) in key.iter().zip(["one", "two", "three"]) {
                        b class=(class) {} (name)
                    }
                }
            }
            figure role="img" aria-label=(title) { (PreEscaped(svg)) }
        }
    }
}

/// A time of day. Seconds are shown for a span of up to an hour, month and day for a span of several days.
pub fn clock(at: f64, span: Duration) -> String {
    let at = UNIX_EPOCH + Duration::from_secs_f64(at.max(0.0));
    let text = rfc3339_seconds(at).to_string();
    match span.as_secs() {
        ..=3600 => text[11..19].to_owned(),
        3601..129_600 => text[11..16].to_owned(),
        _ => text[5..16].replace('T', " "),
    }
}
