//! A table that can be sorted and filtered.

use crate::output::printable;
use std::cmp::Ordering;

/// A cell: its text, and the key it is sorted by.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    key: Key,
    /// How the text is highlighted.
    pub(super) tone: Tone,
}

#[derive(Clone, Debug, PartialEq)]
enum Key {
    Text,
    Number(Option<f64>),
}

/// Whether a value is good or bad, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Neither good nor bad.
    #[default]
    Plain,
    /// Good.
    Good,
    /// A warning.
    Poor,
    /// Bad.
    Bad,
}

/// The text for an unknown value.
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

    /// A cell with a number, formatted by `write`.
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

    /// Whether it is right-aligned.
    pub(super) fn is_number(&self) -> bool {
        matches!(self.key, Key::Number(_))
    }

    /// Compares two cells; unknown values come last in either order.
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

/// A column: its head, and its minimum and maximum width in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) width: u16,
    /// Whether it takes the width that is left.
    pub(super) grows: bool,
}

/// Rows and columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ViewTable {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Cell>>,
}

impl ViewTable {
    /// The rows with a cell that contains `filter`, ignoring case, sorted by `column`.
    pub(super) fn arranged(mut self, filter: &str, column: usize, ascending: bool) -> ViewTable {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| {
            let mut cells = row.iter();
            filter.is_empty() || cells.any(|cell| cell.text.to_lowercase().contains(&filter))
        });
        self.rows
            .sort_by(|one, other| match (one.get(column), other.get(column)) {
                (Some(one), Some(other)) => one.compare(other, ascending),
                _ => Ordering::Equal,
            });
        self
    }
}
