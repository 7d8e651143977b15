//! A drift report for people: a sentence for each series, and a table of its signals.

use crate::cli::DriftFormat;
use crate::command::slo::status::aligned;
use std::fmt::Write;
use tokengauge_admin::Drifts;
use tokengauge_drift::{Entry, Figures, Series, SignalDrift, Why};
use tokengauge_process::output::{markdown, printable};

const HEADS: [&str; 13] = [
    "signal",
    "class",
    "state",
    "sessions then",
    "sessions now",
    "calls then",
    "calls now",
    "mean then",
    "mean now",
    "p50 then",
    "p50 now",
    "distance",
    "PSI",
];
/// The number of text columns. The other columns are numbers.
const WORDS: usize = 3;

pub(super) struct Page {
    text: String,
    markdown: bool,
}

impl Page {
    pub(super) fn of(response: &Drifts, format: DriftFormat) -> String {
        let mut page = Page {
            text: String::new(),
            markdown: format == DriftFormat::Markdown,
        };
        let written = response.drifts.iter().try_for_each(|one| page.entry(one));
        written.expect("a string takes every word");
        page.text
    }

    fn name(&self, name: &str) -> String {
        if self.markdown {
            markdown(name)
        } else {
            printable(name).into_owned()
        }
    }

    fn heading(&mut self, mark: &str, text: &str) -> std::fmt::Result {
        if self.markdown {
            writeln!(self.text, "{mark} {text}\n")
        } else {
            writeln!(self.text, "{text}\n")
        }
    }

    fn entry(&mut self, entry: &Entry) -> std::fmt::Result {
        let state: &str = entry.state.into();
        let windows = &entry.windows;
        self.heading("#", &format!("{}: {state}", self.name(&entry.name)))?;
        writeln!(
            self.text,
            "Window: {} to {}. Reference: from {} to the beginning of the window.\n",
            windows.current_since, windows.current_until, windows.reference_since
        )?;
        if entry.series.is_empty() {
            writeln!(self.text, "No calls in the current window.\n")?;
        }
        entry.series.iter().try_for_each(|one| self.series(one))?;
        match entry.series_left_out {
            0 => Ok(()),
            more => writeln!(
                self.text,
                "{more} other series have fewer calls and were not evaluated.\n"
            ),
        }
    }

    fn series(&mut self, series: &Series) -> std::fmt::Result {
        let names = [&series.model, &series.route, &series.workload];
        let names = names.map(|name| self.name(name.as_deref().unwrap_or("–")));
        self.heading("##", &names.join(" · "))?;
        writeln!(self.text, "{}\n", series.sentence)?;
        self.table(series.signals.iter().map(cells))?;
        writeln!(self.text)?;
        for point in &series.change_points {
            writeln!(
                self.text,
                "- {}: {} {:+.0} % ({} → {})",
                point.at,
                point.signal.as_str(),
                point.change * 100.0,
                number(Some(point.before)),
                number(Some(point.after))
            )?;
        }
        if let Some(missing) = &series.change_points_learning {
            writeln!(
                self.text,
                "The time of the change is not known yet: {missing}."
            )?;
        }
        writeln!(self.text)?;
        series
            .why
            .iter()
            .try_for_each(|one| why(&mut self.text, one))
    }

    fn table(&mut self, rows: impl Iterator<Item = Vec<String>>) -> std::fmt::Result {
        if !self.markdown {
            let heads = HEADS.map(str::to_uppercase).to_vec();
            let lines: Vec<_> = std::iter::once(heads).chain(rows).collect();
            return self.text.write_str(&aligned(&lines));
        }
        let rules = "|---".repeat(WORDS) + &"|--:".repeat(HEADS.len() - WORDS);
        writeln!(self.text, "| {} |\n{rules}|", HEADS.join(" | "))?;
        for row in rows {
            writeln!(self.text, "| {} |", row.join(" | "))?;
        }
        Ok(())
    }
}

fn cells(one: &SignalDrift) -> Vec<String> {
    let state: &str = one.state.into();
    let mut cells = vec![
        one.signal.as_str().to_owned(),
        one.bucket.as_deref().unwrap_or("all").to_owned(),
        state.to_owned(),
    ];
    let figures: [fn(Figures) -> Option<f64>; 4] = [
        |figures| Some(figures.sessions.floor()),
        |figures| Some(figures.calls.floor()),
        |figures| Some(figures.mean),
        |figures| figures.p50,
    ];
    for figure in figures {
        let both = [one.reference, one.current];
        cells.extend(both.map(|figures| number(figures.and_then(figure))));
    }
    cells.push(number(one.distance));
    cells.push(number(one.stability_index));
    cells
}

fn why(page: &mut String, why: &Why) -> std::fmt::Result {
    let number = |value| number(Some(value));
    writeln!(
        page,
        "Mean {}: {} → {}. A different mix of calls explains {} of the difference; calls with the same prompt length (ttft) or \
         concurrency (tps) explain {}.\n",
        why.signal.as_str(),
        number(why.before),
        number(why.after),
        number(why.mix),
        number(why.within)
    )
}

/// Formats three significant digits, or whole numbers from 100.
fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}
