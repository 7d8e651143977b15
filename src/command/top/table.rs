//! A table that can be sorted and filtered.

use std::cmp::Ordering;
use tokengauge_process::output::printable;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    key: Key,
    pub(super) tone: Tone,
}

#[derive(Clone, Debug, PartialEq)]
enum Key {
    Text,
    Number(Option<f64>),
}

/// The rating of a value, which determines its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Good,
    Poor,
    Bad,
}

const UNKNOWN: &str = "–";

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        Cell {
            text: printable(&text.into()).into_owned(),
            key: Key::Text,
            tone: Tone::Plain,
        }
    }

    pub(super) fn maybe(text: Option<&str>) -> Cell {
        Cell::text(text.unwrap_or(UNKNOWN))
    }

    pub(super) fn number(value: Option<f64>, write: impl Fn(f64) -> String) -> Cell {
        Cell {
            text: value.map_or(UNKNOWN.to_owned(), write),
            key: Key::Number(value),
            tone: Tone::Plain,
        }
    }

    pub(super) fn count(value: u64) -> Cell {
        Cell::number(Some(value as f64), |value| format!("{value:.0}"))
    }

    pub(super) fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self.key, Key::Number(_))
    }

    /// Compares two cells. Unknown values come last in either order.
    fn compare(&self, other: &Cell, ascending: bool) -> Ordering {
        let turned = |ordering: Ordering| {
            if ascending {
                ordering
            } else {
                ordering.reverse()
            }
        };
        match (&self.key, &other.key) {
            (Key::Number(Some(one)), Key::Number(Some(other))) => turned(one.total_cmp(other)),
            (Key::Number(Some(_)), _) => Ordering::Less,
            (_, Key::Number(Some(_))) => Ordering::Greater,
            _ => turned(self.text.cmp(&other.text)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) about: &'static str,
    pub(super) width: u16,
    pub(super) grows: bool,
    /// If not all columns fit, the column with the highest number is hidden first. Columns with 0 are never hidden.
    pub(super) spare: u8,
}

impl Column {
    /// The width that the whole header and the sort arrow need.
    pub(super) fn needs(&self) -> u16 {
        self.width.max(self.head.chars().count() as u16 + 1)
    }
}

/// A row: one cell per column, and values that only its details show.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableRow {
    pub(super) id: String,
    pub(super) cells: Vec<Cell>,
    pub(super) more: Vec<(&'static str, Cell)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ViewTable {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<TableRow>,
}

impl ViewTable {
    /// Returns the rows with a cell that contains `filter` (ignoring case), sorted by `column`.
    pub(super) fn arranged(mut self, filter: &str, column: usize, ascending: bool) -> ViewTable {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| {
            let mut cells = row.cells.iter();
            filter.is_empty() || cells.any(|cell| cell.text.to_lowercase().contains(&filter))
        });
        self.rows.sort_by(
            |one, other| match (one.cells.get(column), other.cells.get(column)) {
                (Some(one), Some(other)) => one.compare(other, ascending),
                _ => Ordering::Equal,
            },
        );
        self
    }

    /// Returns the columns that fit into `width` with complete headers. They include the sort column.
    pub(super) fn fitting(&self, width: u16, sorted: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let needed = |shown: &[usize]| -> usize {
            let widths = shown
                .iter()
                .map(|&at| usize::from(self.columns[at].needs()));
            widths.sum::<usize>() + shown.len().saturating_sub(1)
        };
        while needed(&shown) > usize::from(width) {
            let spare = |at: &usize| self.columns[*at].spare;
            let others = shown.iter().copied().filter(|at| *at != sorted);
            let Some(last) = others.filter(|at| spare(at) > 0).max_by_key(spare) else {
                break;
            };
            shown.retain(|at| *at != last);
        }
        shown
    }
}
