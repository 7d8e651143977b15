//! Results as tables, for terminals and documents.

use crate::figure::{LevelFigure, TailFigure};
use crate::gauge::{BothSides, Sides};
use crate::level::{Judged, LevelResult};
use crate::metric::{Metric, TailMetric, Unit};
use crate::objective::ObjectiveVerdict;
use crate::results::Results;
use std::fmt::Write;

const HEADS: [&str; 11] = [
    "load",
    "calls",
    "output tok/s",
    "calls/s",
    "TPS",
    "TPS p5",
    "TTFT p50",
    "TTFT p95",
    "TTFT p99",
    "ITL p99",
    "latency p50",
];

pub fn table(results: &Results) -> String {
    let mut text = about(results);
    text.push('\n');
    text.push_str(&aligned(&rows(results)));
    for line in findings(results) {
        let _ = writeln!(text, "{line}");
    }
    text
}

pub fn markdown(results: &Results) -> String {
    let mut text = format!("# tokengauge bench\n\n{}\n", about(results));
    text.push_str(&markdown_table(&rows(results)));
    text.push('\n');
    for line in findings(results) {
        let _ = writeln!(text, "- {line}");
    }
    text
}

/// Formats rows as a Markdown table. The first row is the header.
pub fn markdown_table(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if number == 0 {
            let _ = writeln!(text, "|---{}", "|---:".repeat(row.len() - 1) + "|");
        }
    }
    text
}

pub fn about(results: &Results) -> String {
    let it = &results.settings;
    let trials = match it.trials {
        1 => "1 trial".to_owned(),
        trials => format!("{trials} trials"),
    };
    let model = match it.model.as_str() {
        "" => String::new(),
        model => format!(", model {model}"),
    };
    format!(
        "{} at {}{model}: {}. {trials} of {} s each after {} s of warm-up and {} s of burn-in; seed {}; {}.\n",
        it.endpoint_type,
        it.url,
        it.workload,
        it.measure,
        it.warm_up,
        it.burn_in,
        it.random_seed,
        results.started_at
    )
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    pub text: String,
    /// The precision: half of the interval's width in percent, or the bound of a tail. Empty if it is unknown.
    pub interval: String,
    pub value: Option<f64>,
}

pub fn heads() -> impl Iterator<Item = &'static str> {
    HEADS.into_iter()
}

pub fn cells(results: &Results) -> impl Iterator<Item = Vec<Cell>> {
    results.levels.iter().map(row)
}

fn rows(results: &Results) -> Vec<Vec<String>> {
    let heads = heads().map(str::to_owned).collect();
    let text = |cell: Cell| {
        if cell.interval.is_empty() {
            cell.text
        } else {
            format!("{} {}", cell.text, cell.interval)
        }
    };
    let rows = cells(results).map(|row| row.into_iter().map(text).collect());
    std::iter::once(heads).chain(rows).collect()
}

fn row(level: &LevelResult) -> Vec<Cell> {
    let figure = |metric: Metric| match level.figures.get(&metric) {
        Some(figure) => with_reach(figure, metric.unit()),
        None => plain("–".to_owned()),
    };
    let tail = |name: &str| {
        let unit = TailMetric::parse(name).map(TailMetric::unit);
        let found = level.tails.iter().find(|tail| tail.name == name);
        let cell = found.zip(unit).map(|(found, unit)| tail_cell(found, unit));
        cell.unwrap_or_else(|| plain("–".to_owned()))
    };
    let calls = counted(level);
    vec![
        Cell {
            value: Some(level.load.number()),
            ..plain(level.load.to_string())
        },
        Cell {
            value: Some(calls as f64),
            ..plain(calls.to_string())
        },
        figure(Metric::OutputThroughput),
        figure(Metric::RequestThroughput),
        figure(Metric::TpsMean),
        tail("tps_p5"),
        figure(Metric::TtftP50),
        tail("ttft_p95"),
        tail("ttft_p99"),
        figure(Metric::ItlP99),
        figure(Metric::LatencyP50),
    ]
}

fn counted(level: &LevelResult) -> usize {
    let trials = level.trials.iter();
    let counting = trials.filter(|trial| trial.figures.is_some());
    counting.map(|trial| trial.calls).sum()
}

fn plain(text: String) -> Cell {
    Cell {
        text,
        ..Cell::default()
    }
}

fn with_reach(figure: &LevelFigure, unit: Unit) -> Cell {
    let text = match unit {
        Unit::Seconds | Unit::Tokens => unit.show(figure.value),
        Unit::CallsPerSecond => format!("{:.2}", figure.value),
        Unit::TokensPerSecond => format!("{:.1}", figure.value),
    };
    let bounds = figure.lower.zip(figure.upper);
    let interval = bounds
        .filter(|_| figure.value != 0.0)
        .map(|(lower, upper)| {
            let reach = (upper - lower) / 2.0 / figure.value * 100.0;
            format!("±{reach:.1}%")
        });
    Cell {
        text,
        interval: interval.unwrap_or_default(),
        value: Some(figure.value),
    }
}

fn tail_cell(tail: &TailFigure, unit: Unit) -> Cell {
    let show = |value: f64| match unit {
        Unit::TokensPerSecond => format!("{value:.1}"),
        _ => unit.show(value),
    };
    let sign = if unit == Unit::TokensPerSecond {
        '≥'
    } else {
        '≤'
    };
    Cell {
        text: match tail.value {
            Some(value) => show(value),
            None => format!("too few ({}/{})", tail.calls, tail.calls_needed),
        },
        interval: tail
            .bound
            .map_or(String::new(), |bound| format!("{sign}{}", show(bound))),
        value: tail.value,
    }
}

/// Returns the findings that the table does not show, one per line.
pub fn findings(results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for level in &results.levels {
        lines.extend(of_level(level));
    }
    if let Some(knee) = &results.knee {
        lines.push(format!(
            "knee: above {} concurrent calls the throughput stays at {:.0} tokens/s",
            knee.concurrency, knee.system_tps
        ));
    }
    if let Some(reason) = results
        .no_knee
        .as_ref()
        .filter(|_| results.levels.len() > 2)
    {
        lines.push(format!("no knee: {reason}"));
    }
    lines.extend(highest(results));
    let work = results.fingerprint.as_ref();
    lines.extend(work.map(|work| {
        format!("work, with the 10th to 90th percentile of calls in brackets: {work}")
    }));
    lines.extend(
        results
            .measured_by
            .as_ref()
            .map(|by| format!("measured by {by}")),
    );
    if results.interrupted {
        lines.push("the benchmark was interrupted: only complete trials are shown".to_owned());
    }
    lines
}

fn of_level(level: &LevelResult) -> Vec<String> {
    let load = &level.load;
    let mut lines = Vec::new();
    for reason in &level.withheld {
        lines.push(format!("{load}: no figures: {reason}"));
    }
    for withheld in &level.partly_withheld {
        let part: &str = withheld.part.map_or("", Into::into);
        lines.push(format!("{load}: no {part}: {withheld}"));
    }
    let left_out = level
        .trials
        .iter()
        .filter(|trial| level.withheld.is_empty() && trial.figures.is_none());
    for trial in left_out {
        let reasons: Vec<_> = trial.withheld.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "{load}: trial {} is excluded: {}",
            trial.trial,
            reasons.join("; ")
        ));
    }
    lines.extend(judged(level, "TPS", &level.judged_tps));
    lines.extend(judged(level, "TTFT", &level.judged_ttft));
    for result in &level.objectives {
        let verdict = match result.verdict {
            ObjectiveVerdict::Kept => "met",
            ObjectiveVerdict::Missed => "missed",
            ObjectiveVerdict::NotShown => "not shown to be met",
        };
        let reason = result.reason.iter().map(|reason| format!(": {reason}"));
        let reason: String = reason.collect();
        lines.push(format!("{load}: {} is {verdict}{reason}", result.objective));
    }
    let price = level.usd_per_million_output;
    for (usd, by) in [
        (price.hardware_usd, "hardware"),
        (price.list_usd, "list price"),
    ] {
        if let Some(usd) = usd {
            lines.push(format!(
                "{load}: {usd:.2} US dollars per million output tokens by {by}"
            ));
        }
    }
    lines.extend(
        level
            .gauge
            .as_ref()
            .map(|both| format!("{load}: {}", both_sides(both))),
    );
    lines
}

fn judged(level: &LevelResult, figure: &str, judged: &Judged) -> Option<String> {
    let reasons = judged.without.iter();
    let reasons: Vec<_> = reasons
        .map(|(reason, calls)| format!("{calls} {}", reason.replace('_', " ")))
        .collect();
    (level.withheld.is_empty() && judged.calls < judged.of).then(|| {
        format!(
            "{}: {figure} covers {} of {} calls; the others: {}",
            level.load,
            judged.calls,
            judged.of,
            reasons.join(", ")
        )
    })
}

fn highest(results: &Results) -> Option<String> {
    let Some(highest) = &results.highest else {
        return results.no_highest().map(|reason| reason.to_string());
    };
    let mut line = format!("highest load that meets the objectives: {}", highest.load);
    match &highest.missed_at {
        Some(missed) => {
            let mut levels = results.levels.iter();
            let level = levels.find(|level| level.load == *missed);
            let does_not = match level.map(LevelResult::verdict) {
                Some(ObjectiveVerdict::NotShown) => "is not shown to meet them",
                _ => "misses them",
            };
            let _ = write!(line, " ({missed} {does_not})");
        }
        None => line.push_str(" (the highest load that was tried)"),
    }
    if let Some(tps) = highest.output_throughput {
        let _ = write!(line, ", {tps:.0} tokens/s");
    }
    let price = highest.usd_per_million_output;
    if let Some(usd) = price.hardware_usd.or(price.list_usd) {
        let _ = write!(line, ", {usd:.2} US dollars per million output tokens");
    }
    Some(line)
}

fn both_sides(both: &BothSides) -> String {
    if let Some(error) = &both.error {
        return format!("the proxy at --through could not be asked: {error}");
    }
    let seconds = |name: &str, sides: &Option<Sides>| {
        sides.map(|sides| {
            format!(
                "{name} {} here, {} at the proxy, {:+.2} ms ({:.2} ms at p95)",
                Unit::Seconds.show(sides.agent),
                Unit::Seconds.show(sides.gauge),
                sides.difference * 1e3,
                sides.difference_p95 * 1e3
            )
        })
    };
    let tps = both.tps.map(|sides| {
        let share = sides.difference / sides.gauge * 100.0;
        format!(
            "TPS {:.1} here, {:.1} at the proxy, {share:+.2} %",
            sides.agent, sides.gauge
        )
    });
    let parts = [
        seconds("TTFT", &both.ttft),
        tps,
        seconds("latency", &both.latency),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let tokens = match both.tokens_differ {
        0 => "equal token counts".to_owned(),
        calls => format!("different token counts in {calls}"),
    };
    format!(
        "the proxy has records of {} of {} calls, {tokens}; {}",
        both.matched,
        both.calls,
        parts.join("; ")
    )
}

pub fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column);
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::tests::{level, trial};
    use crate::results::Settings;
    use crate::steady::Reason;

    fn results() -> Results {
        let levels = vec![
            level(vec![trial(1, Ok(100.0)), trial(2, Ok(104.0))]),
            level(vec![trial(1, Err(Reason::FailedCalls))]),
        ];
        Results::of(
            Settings::default(),
            "2026-11-25T00:00:00Z".to_owned(),
            levels,
            true,
        )
    }

    #[test]
    fn a_table_says_figures_and_why_there_are_none() {
        let text = table(&results());
        assert!(text.contains("102.0 ±"), "{text}");
        assert!(text.contains("too few (100/662)"), "{text}");
        assert!(
            text.contains("concurrency 8: no figures: trial 1: why"),
            "{text}"
        );
        assert!(
            text.contains("5.45 US dollars per million output tokens by hardware"),
            "{text}"
        );
        assert!(text.contains("the benchmark was interrupted"), "{text}");
    }

    #[test]
    fn a_document_has_the_same_as_a_table() {
        let text = markdown(&results());
        assert!(text.contains("| load | calls |"), "{text}");
        assert!(text.contains("|---|---:|"), "{text}");
        assert!(text.contains("- concurrency 8: no figures"), "{text}");
    }
}
