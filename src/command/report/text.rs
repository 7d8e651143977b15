//! A report as a table for terminals and in Markdown.

use super::figures::Report;
use super::grid::{Grid, difference_grid, grid, shortened};
use super::notes::{about, about_differences, mark_lines};
use super::prompt_grid::prompt_grid;
use crate::command::experiment;
use std::fmt::Write;
use tokengauge_process::output::{markdown as escaped, printable};

const MIN_NAME: usize = 12;

const GAP: &str = "  ";

/// Formats a table for terminals: names on the left, figures on the right, intervals below. Columns that do not fit
/// into `width` move to further tables, each with the names.
pub(super) fn table(report: &Report, width: Option<usize>) -> String {
    let rows = report.rows();
    let mut text = aligned(&grid(report, &rows), width);
    if let Some(found) = report.differences(&rows) {
        for line in about_differences(&found, plain) {
            text += &wrapped(&line, width);
        }
        text.push('\n');
        text += &aligned(&difference_grid(report, &found), width);
    }
    if let Some(prompts) = prompt_grid(report, &rows) {
        text += &aligned(&prompts, width);
    }
    for note in about(report, &rows, plain) {
        text += &wrapped(&note, width);
    }
    for experiment in report.experiments() {
        text += &format!("\n{}", experiment::table(&experiment));
    }
    let marks = mark_lines(report, plain);
    if !marks.is_empty() {
        text += "\nMarks:\n";
    }
    for mark in marks {
        text += &wrapped(&mark, width);
    }
    text
}

pub(super) fn plain(name: &str) -> String {
    printable(name).into_owned()
}

pub(super) fn aligned(grid: &Grid, width: Option<usize>) -> String {
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
                if at < named {
                    format!("{cell}{pad}")
                } else {
                    format!("{pad}{cell}")
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

/// Distributes columns over tables, so that no table is wider than `width` unless a single column is.
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

pub(super) fn markdown(report: &Report) -> String {
    let rows = report.rows();
    let mut text = markdown_table(&grid(report, &rows));
    if let Some(found) = report.differences(&rows) {
        let _ = writeln!(
            text,
            "\n{}\n",
            about_differences(&found, escaped).join("\n")
        );
        text += &markdown_table(&difference_grid(report, &found));
    }
    if let Some(prompts) = prompt_grid(report, &rows) {
        let _ = writeln!(text, "\n{}", markdown_table(&prompts).trim_end());
    }
    let _ = writeln!(text, "\n{}", about(report, &rows, escaped).join("\n"));
    for experiment in report.experiments() {
        text += &format!("\n{}", experiment::markdown(&experiment));
    }
    let marks = mark_lines(report, escaped);
    if !marks.is_empty() {
        let marks: String = marks.iter().map(|mark| format!("- {mark}\n")).collect();
        let _ = write!(text, "\nMarks:\n\n{marks}");
    }
    text
}

pub(super) fn markdown_table(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(grid.heads.iter().map(|head| escaped(head)).collect());
    let rule = (0..grid.heads.len()).map(|at| if at < grid.named { "---" } else { "---:" });
    text += &line(rule.map(str::to_owned).collect());
    for row in &grid.rows {
        let cells = row.iter().map(|cell| {
            if cell.interval.is_empty() {
                escaped(&cell.text)
            } else {
                format!("{} ({})", escaped(&cell.text), escaped(&cell.interval))
            }
        });
        text += &line(cells.collect());
    }
    text
}
