//! A table of figures and ratios.

use crate::metrics::Metric;
use crate::statistics::Interval;

pub enum Row {
    Figures(Vec<Option<f64>>),
    Ratios(Vec<Option<Interval>>),
}

pub struct Table {
    /// Title and decimals of each column.
    columns: Vec<(&'static str, usize)>,
    rows: Vec<(String, Row)>,
}

const WIDTH: usize = 9;

impl Table {
    pub fn new(metrics: &[&'static Metric]) -> Table {
        let columns = metrics.iter().map(|metric| (metric.title, metric.decimals));
        Table::with_columns(columns.collect())
    }

    pub fn with_columns(columns: Vec<(&'static str, usize)>) -> Table {
        Table {
            columns,
            rows: Vec::new(),
        }
    }

    pub fn row(&mut self, label: String, row: Row) {
        self.rows.push((label, row));
    }

    pub fn print(&self) {
        let titles = self.columns.iter().map(|(title, _)| (*title).to_owned());
        let mut lines = vec![(String::new(), titles.collect::<Vec<_>>())];
        for (label, row) in &self.rows {
            lines.push((label.clone(), self.cells(row)));
        }
        let characters = |text: &String| text.chars().count();
        let label_width = lines.iter().map(|(label, _)| characters(label)).max();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = lines.iter().map(|(_, cells)| characters(&cells[column]));
                cells.max().unwrap_or(0).max(WIDTH)
            })
            .collect();
        for (label, cells) in lines {
            print!("{label:0$}", label_width.unwrap_or(0));
            for (cell, width) in cells.iter().zip(&widths) {
                print!("  {cell:>width$}");
            }
            println!();
        }
    }

    fn cells(&self, row: &Row) -> Vec<String> {
        let missing = || "-".to_owned();
        match row {
            Row::Figures(figures) => (self.columns.iter().zip(figures))
                .map(|((_, decimals), figure)| {
                    let figure = figure.filter(|figure| figure.is_finite());
                    figure.map_or_else(missing, |figure| format!("{figure:.decimals$}"))
                })
                .collect(),
            Row::Ratios(ratios) => ratios
                .iter()
                .map(|ratio| ratio.map_or_else(missing, |ratio| ratio.to_string()))
                .collect(),
        }
    }
}

/// Large figures get thousands separators and no decimals.
pub fn with_thousands(figure: f64, decimals: usize) -> String {
    if figure.abs() < 1000.0 {
        return format!("{figure:.decimals$}");
    }
    let digits = format!("{:.0}", figure.abs());
    let mut written = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            written.push(',');
        }
        written.push(digit);
    }
    if figure < 0.0 {
        format!("-{written}")
    } else {
        written
    }
}
