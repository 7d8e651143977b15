//! The tables of a report: one row per group, and the differences from the baseline.

use super::differences::{Difference, Differences};
use super::estimates::{Estimate, Figure};
use super::figures::{Report, Row};
use super::scores::PerSuccess;
use std::collections::BTreeMap;
use tokengauge_core::score::ScoreType;
use tokengauge_experiments::words;
use tokengauge_process::output::printable;
use tokengauge_store::query::GroupRow;

pub(super) const UNKNOWN: &str = "–";

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) interval: String,
    pub(super) value: Option<f64>,
}

pub(super) struct Grid {
    /// The number of columns with names.
    pub(super) named: usize,
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Grid {
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

/// A column: its header and its cell for a row.
type Column = (&'static str, fn(&Row) -> Cell);

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

/// What a successful session takes.
const PER_SUCCESS: [Column; 4] = [
    ("successes", |row| {
        let found = row.scores.per_success.as_ref();
        found.map_or_else(Cell::default, |found| {
            let (with, of) = (found.successful_sessions, found.scored_sessions);
            plain(format!("{with} of {of}"))
        })
    }),
    ("cost/success", |row| {
        per_success(row, |found| found.cost_usd, dollars)
    }),
    ("time/success", |row| {
        per_success(row, |found| found.seconds, seconds)
    }),
    ("tokens/success", |row| {
        per_success(row, |found| found.tokens, |tokens| format!("{tokens:.0}"))
    }),
];
/// The most scores that have a column.
const MAX_SCORES: usize = 4;

/// Groups of [`COLUMNS`] for output that is too narrow for one table.
pub(super) const PARTS: [(&str, std::ops::Range<usize>); 3] = [
    ("Calls and speed", 0..10),
    ("Time to first token", 10..15),
    ("Tokens and cost", 15..COLUMNS.len()),
];

pub(super) fn grid(report: &Report, rows: &[Row]) -> Grid {
    let by = report.dimensions().into_iter();
    let heads = by.chain(COLUMNS.iter().map(|(head, _)| *head));
    let scores = score_names(rows);
    let successes = rows.iter().any(|row| row.scores.per_success.is_some());
    let of_scores = scores.iter().map(|name| (*name).to_owned());
    let of_successes = PER_SUCCESS.iter().filter(|_| successes);
    let cells = |row: &Row| {
        let figures = COLUMNS.iter().map(|(_, cell)| cell(row));
        let scores = scores.iter().map(|name| score(row, name));
        let successes = PER_SUCCESS.iter().filter(|_| successes);
        let successes = successes.map(|(_, cell)| cell(row));
        let figures = figures.chain(scores).chain(successes);
        names(&row.group.names).chain(figures).collect()
    };
    let heads = heads.map(str::to_owned).chain(of_scores);
    Grid {
        named: report.dimensions().len(),
        heads: heads
            .chain(of_successes.map(|(head, _)| (*head).to_owned()))
            .collect(),
        rows: rows.iter().map(cells).collect(),
    }
}

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

pub(super) fn names(names: &[Option<String>]) -> impl Iterator<Item = Cell> {
    names
        .iter()
        .map(|name| plain(printable(name.as_deref().unwrap_or(UNKNOWN)).into_owned()))
}

pub(super) fn plain(text: String) -> Cell {
    Cell {
        text,
        ..Cell::default()
    }
}

pub(super) fn count(count: u64) -> Cell {
    Cell {
        value: Some(count as f64),
        ..plain(count.to_string())
    }
}

fn shown(value: Option<f64>, show: fn(f64) -> String) -> Cell {
    Cell {
        value,
        ..plain(value.map_or(UNKNOWN.to_owned(), show))
    }
}

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

pub(super) fn range(estimate: &Estimate, show: fn(f64) -> String) -> String {
    match (estimate.lower, estimate.upper) {
        (Some(lower), Some(upper)) => format!("{}–{}", show(lower), show(upper)),
        (Some(lower), None) => format!("≥ {}", show(lower)),
        (None, Some(upper)) => format!("≤ {}", show(upper)),
        (None, None) => "too few".to_owned(),
    }
}

/// The names of the scores with most values.
fn score_names(rows: &[Row]) -> Vec<&str> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for summary in rows.iter().flat_map(|row| &row.scores.scores) {
        *counts.entry(&summary.name).or_default() += summary.scores;
    }
    let mut names: Vec<(&str, u64)> = counts.into_iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    names.truncate(MAX_SCORES);
    names.into_iter().map(|(name, _)| name).collect()
}

/// The average of a score, as a share if it is a boolean.
fn score(row: &Row, name: &str) -> Cell {
    let mut scores = row.scores.scores.iter();
    let Some(found) = scores.find(|summary| summary.name == name) else {
        return plain(UNKNOWN.to_owned());
    };
    let show = match found.data_type {
        ScoreType::Boolean => share,
        ScoreType::Numeric => words::plain,
    };
    Cell {
        text: show(found.average),
        interval: match found.lower.zip(found.upper) {
            Some((lower, upper)) => format!("{}–{}", show(lower), show(upper)),
            None => "too few".to_owned(),
        },
        value: Some(found.average),
    }
}

fn per_success(
    row: &Row,
    of: fn(&PerSuccess) -> Option<Estimate>,
    show: fn(f64) -> String,
) -> Cell {
    let estimate = row.scores.per_success.as_ref().and_then(of);
    Cell {
        interval: estimate.map_or_else(String::new, |estimate| range(&estimate, show)),
        ..shown(estimate.map(|estimate| estimate.value), show)
    }
}

fn of_all(row: &Row, figure: usize) -> Cell {
    let judged = &row.judged[figure];
    Cell {
        value: Some(judged.calls as f64 / judged.of as f64),
        ..plain(format!("{} of {}", judged.calls, judged.of))
    }
}

/// Formats the cost of calls. `+` means that some have no price.
fn cost(row: &Row) -> Cell {
    let mut cell = shown(row.group.cost_usd, dollars);
    if row.group.unpriced_calls > 0 && row.group.cost_usd.is_some() {
        cell.text += " +";
    }
    cell
}

/// Formats the share of calls in each experience band, from frustrating to instant.
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

pub(super) fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn speed(value: f64) -> String {
    format!("{value:.1}")
}

pub(super) fn seconds(value: f64) -> String {
    if value < 1.0 {
        format!("{:.0} ms", value * 1000.0)
    } else {
        format!("{value:.2} s")
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

pub(super) fn dollars(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.01 {
        format!("${value:.5}")
    } else {
        format!("${value:.2}")
    }
}

pub(super) fn shortened(name: &str, most: usize) -> String {
    if name.chars().count() > most {
        name.chars().take(most - 1).chain(['…']).collect()
    } else {
        name.to_owned()
    }
}
