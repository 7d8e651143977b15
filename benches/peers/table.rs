//! A table of figures, and the same figures as multiples of one of its rows.

/// One column.
#[derive(Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    pub decimals: usize,
    /// Whether ratios of it are meaningful.
    pub ratio: bool,
}

/// Rows of figures, some of which may be missing.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<(String, Vec<Option<f64>>)>,
}

/// The least width of a column, and the width of the labels.
const WIDTH: usize = 9;
const LABEL: usize = 20;

impl Table {
    /// A table of columns with their title, their decimals, and whether ratios are meaningful.
    pub fn new(columns: &[(&'static str, usize, bool)]) -> Table {
        let columns = columns.iter().map(|&(title, decimals, ratio)| Column {
            title,
            decimals,
            ratio,
        });
        Table {
            columns: columns.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with one figure per column.
    pub fn row(&mut self, label: impl ToString, figures: Vec<Option<f64>>) {
        assert_eq!(figures.len(), self.columns.len(), "a figure a column");
        self.rows.push((label.to_string(), figures));
    }

    /// Prints it.
    pub fn print(&self) {
        print!("{:LABEL$}", "");
        for column in &self.columns {
            print!("  {:>1$}", column.title, column.width());
        }
        println!();
        for (label, figures) in &self.rows {
            self.print_row(label, figures, |column| column.decimals);
        }
    }

    /// Prints all rows but `base` and `skip` as multiples of `base`, if that is in the table.
    pub fn print_ratios(&self, base: &str, skip: &str) {
        let Some((_, base_figures)) = self.rows.iter().find(|(label, _)| label == base) else {
            return;
        };
        let others = self
            .rows
            .iter()
            .filter(|(label, _)| label != base && label != skip);
        for (label, figures) in others {
            let ratios: Vec<_> = (self.columns.iter().zip(figures).zip(base_figures))
                .map(|((column, figure), base)| {
                    // A ratio to something too small to measure says nothing.
                    let base = base.filter(|base| column.ratio && *base > 0.0)?;
                    Some((*figure)? / base)
                })
                .collect();
            self.print_row(&format!("{label} ÷ {base}"), &ratios, |_| 2);
        }
    }

    /// Prints rows of a Markdown table with a cell for each of `peers`, and after `ours` a cell
    /// with its ratio to `base`.
    pub fn print_markdown(
        &self,
        title: &str,
        lines: &[(&str, &[&str])],
        peers: &[&str],
        (ours, base): (&str, &str),
    ) {
        for (label, columns) in lines {
            print!("| {title}: {label} |");
            for peer in peers {
                let figures = columns.iter().map(|column| self.written(peer, column));
                print!(" {} |", joined(figures));
                if *peer == ours {
                    let ratios = columns.iter().map(|column| {
                        let base = self.figure(base, column)?.1;
                        let ours = self.figure(ours, column)?.1;
                        (base > 0.0 && ours >= 0.0).then(|| format!("{:.2}", ours / base))
                    });
                    print!(" {} |", joined(ratios));
                }
            }
            println!();
        }
    }

    fn written(&self, label: &str, title: &str) -> Option<String> {
        let (column, figure) = self.figure(label, title)?;
        Some(with_thousands(figure, column.decimals))
    }

    fn figure(&self, label: &str, title: &str) -> Option<(Column, f64)> {
        let columns = &self.columns;
        let column = columns.iter().position(|column| column.title == title)?;
        let (_, figures) = self.rows.iter().find(|(row, _)| row == label)?;
        let figure = figures[column].filter(|figure| figure.is_finite())?;
        Some((columns[column], figure))
    }

    fn print_row(&self, label: &str, figures: &[Option<f64>], decimals: impl Fn(&Column) -> usize) {
        print!("{label:LABEL$}");
        for (column, figure) in self.columns.iter().zip(figures) {
            let width = column.width();
            match figure.filter(|figure| figure.is_finite()) {
                Some(figure) => print!("  {figure:width$.0$}", decimals(column)),
                None => print!("  {:>width$}", "-"),
            }
        }
        println!();
    }
}

impl Column {
    fn width(&self) -> usize {
        self.title.chars().count().max(WIDTH)
    }
}

/// The figures of one cell.
fn joined(figures: impl Iterator<Item = Option<String>>) -> String {
    let figures: Vec<_> = figures
        .map(|figure| figure.unwrap_or_else(|| "–".to_owned()))
        .collect();
    figures.join(" / ")
}

/// A figure as text: from 1,000 on without decimals and with commas.
fn with_thousands(figure: f64, decimals: usize) -> String {
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
