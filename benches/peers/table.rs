//! A table of figures, and the same figures as multiples of one of its rows.

/// One column.
#[derive(Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    pub decimals: usize,
    /// Whether it says something as a multiple of another's.
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
    /// Of columns with their title, their decimals, and whether a ratio of it says something.
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

    /// Adds a row, with one figure a column.
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

    /// Prints the rows but `base` as multiples of it, where it is there. `skip` is left out.
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
                    // What adds nothing measurable is no measure for others.
                    let base = base.filter(|base| column.ratio && *base > 0.0)?;
                    Some((*figure)? / base)
                })
                .collect();
            self.print_row(&format!("{label} ÷ {base}"), &ratios, |_| 2);
        }
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
