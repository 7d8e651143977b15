//! Two results compared: by how much each figure is shifted, and whether that is more than trials differ by anyway.

use crate::level::LevelResult;
use crate::metric::Metric;
use crate::results::Results;
use crate::text::{aligned, markdown_table};
use crate::trial::quantile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::{holm, rank};

/// A p value below this, after Holm, is no chance.
const SIGNIFICANT: f64 = 0.05;
/// The confidence of shifts' intervals.
const CONFIDENCE: f64 = 0.95;
/// Figures that are compared.
const COMPARED: [Metric; 6] = [
    Metric::OutputThroughput,
    Metric::RequestThroughput,
    Metric::TpsMean,
    Metric::TtftMean,
    Metric::ItlMean,
    Metric::LatencyMean,
];

/// What two results came to.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Comparison {
    /// The figures of loads that both have.
    pub figures: Vec<ComparedFigure>,
    /// What cannot be compared, and why.
    pub left_out: Vec<String>,
}

/// A figure in two results.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ComparedFigure {
    /// The load.
    pub load: String,
    /// The figure.
    pub metric: Metric,
    /// Its mean in the old result.
    pub old: f64,
    /// Its mean in the new one.
    pub new: f64,
    /// The median of all differences between trials (Hodges–Lehmann), as a share of the old mean.
    pub shift: f64,
    /// Its interval; `null` where there are too few trials for one.
    pub lower: Option<f64>,
    /// The upper end.
    pub upper: Option<f64>,
    /// The p value (Mann–Whitney), adjusted for the number of figures (Holm).
    pub p: f64,
    /// By how much two trials of one and the same result differ in 95 of 100 pairs, as a share of the mean (A/A).
    pub noise: Option<f64>,
    /// What that comes to.
    pub change: Change,
}

/// What a comparison of a figure comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Better by more than chance and noise.
    Better,
    /// Worse by more than chance and noise.
    Worse,
    /// No change is shown.
    NotShown,
    /// No number of trials as small as this can show a change.
    TooFewTrials,
}

impl Comparison {
    /// Compares two results, load by load.
    pub fn of(old: &Results, new: &Results) -> Comparison {
        let mut left_out = settings(old, new);
        let mut figures = Vec::new();
        for before in &old.levels {
            match new.levels.iter().find(|level| level.load == before.load) {
                Some(after) => {
                    let found = COMPARED
                        .iter()
                        .filter_map(|metric| figure(before, after, *metric));
                    let count = figures.len();
                    figures.extend(found);
                    if figures.len() == count {
                        left_out.push(format!("{}: one of both has no figures", before.load));
                    }
                }
                None => left_out.push(format!("{}: the new result does not have it", before.load)),
            }
        }
        let p_values: Vec<_> = figures.iter().map(|figure| figure.p).collect();
        if let Ok(adjusted) = holm::adjust(&p_values) {
            for (figure, p) in figures.iter_mut().zip(adjusted) {
                figure.p = p;
                figure.change = change(figure);
            }
        }
        Comparison { figures, left_out }
    }

    /// Figures that became worse.
    pub fn worse(&self) -> impl Iterator<Item = &ComparedFigure> {
        self.figures
            .iter()
            .filter(|figure| figure.change == Change::Worse)
    }

    /// The comparison for a terminal.
    pub fn table(&self) -> String {
        aligned(&self.rows())
            + &self
                .left_out
                .iter()
                .map(|line| format!("{line}\n"))
                .collect::<String>()
    }

    /// The comparison for a document.
    pub fn markdown(&self) -> String {
        let left_out = self.left_out.iter().map(|line| format!("- {line}\n"));
        format!(
            "{}\n{}",
            markdown_table(&self.rows()),
            left_out.collect::<String>()
        )
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let heads = [
            "load",
            "figure",
            "old",
            "new",
            "shift",
            "95 %",
            "p (Holm)",
            "noise (A/A)",
            "verdict",
        ];
        let heads = heads.map(str::to_owned).to_vec();
        std::iter::once(heads)
            .chain(self.figures.iter().map(ComparedFigure::row))
            .collect()
    }
}

/// In what both were not measured alike, so that a change may be its own.
fn settings(old: &Results, new: &Results) -> Vec<String> {
    let work = old.fingerprint.as_ref().zip(new.fingerprint.as_ref());
    let work = work.map(|(old, new)| old.differences(new));
    let by = old.measured_by.as_ref().zip(new.measured_by.as_ref());
    let by = by.map(|(old, new)| old.differences(new));
    let differ = work.into_iter().chain(by).flatten();
    let differ = differ.map(|what| format!("not alike, so a change may be its own: {what}"));
    let (old, new) = (&old.settings, &new.settings);
    let named = |name: &str, old: String, new: String| {
        (old != new).then(|| format!("{name} differs, so a change may be its own: {old}; {new}"))
    };
    let found = [
        named(
            "the endpoint type",
            old.endpoint_type.clone(),
            new.endpoint_type.clone(),
        ),
        named("the workload", old.workload.clone(), new.workload.clone()),
        named(
            "the measured time",
            format!("{} s", old.measure),
            format!("{} s", new.measure),
        ),
    ];
    found.into_iter().flatten().chain(differ).collect()
}

fn figure(old: &LevelResult, new: &LevelResult, metric: Metric) -> Option<ComparedFigure> {
    let (before, after) = (old.figures.get(&metric)?, new.figures.get(&metric)?);
    let shift = rank::shift(&before.trials, &after.trials, CONFIDENCE).ok()?;
    let test = rank::mann_whitney(&before.trials, &after.trials).ok()?;
    let level = before.value;
    Some(ComparedFigure {
        load: old.load.to_string(),
        metric,
        old: before.value,
        new: after.value,
        shift: shift.estimate / level,
        lower: shift.interval.map(|interval| interval.lower / level),
        upper: shift.interval.map(|interval| interval.upper / level),
        p: test.p,
        noise: noise(&[&before.trials, &after.trials]),
        change: Change::NotShown,
    })
}

/// How far apart two trials of one result are in 95 of 100 pairs, as a share of the mean.
fn noise(results: &[&Vec<f64>]) -> Option<f64> {
    let mut distances = Vec::new();
    for trials in results {
        let mean = trials.iter().sum::<f64>() / trials.len() as f64;
        for (number, one) in trials.iter().enumerate() {
            let others = trials[number + 1..].iter();
            distances.extend(others.map(|other| ((one - other) / mean).abs()));
        }
    }
    (!distances.is_empty()).then(|| quantile(&distances, 0.95))
}

fn change(figure: &ComparedFigure) -> Change {
    if figure.lower.is_none() {
        return Change::TooFewTrials;
    }
    let beyond_noise = figure.noise.is_some_and(|noise| figure.shift.abs() > noise);
    if figure.p >= SIGNIFICANT || !beyond_noise {
        return Change::NotShown;
    }
    match figure.metric.higher_is_better() == Some(figure.shift > 0.0) {
        true => Change::Better,
        false => Change::Worse,
    }
}

impl ComparedFigure {
    fn row(&self) -> Vec<String> {
        let unit = self.metric.unit();
        let percent = |share: f64| format!("{:+.1}%", share * 100.0);
        let interval = self.lower.zip(self.upper);
        let verdict = match self.change {
            Change::Better => "better",
            Change::Worse => "worse",
            Change::NotShown => "no change shown",
            Change::TooFewTrials => "too few trials",
        };
        vec![
            self.load.clone(),
            self.metric.as_str().to_owned(),
            unit.show(self.old),
            unit.show(self.new),
            percent(self.shift),
            interval.map_or("–".to_owned(), |(lower, upper)| {
                format!("{} to {}", percent(lower), percent(upper))
            }),
            format!("{:.3}", self.p),
            self.noise
                .map_or("–".to_owned(), |noise| format!("±{:.1}%", noise * 100.0)),
            verdict.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::tests::{level, trial};
    use crate::results::Settings;
    use tokengauge_core::fingerprint::{Machine, MeasuredBy};

    fn results(throughput: &[f64]) -> Results {
        let numbered = (1..).zip(throughput);
        let trials = numbered
            .map(|(number, value)| trial(number, Ok(*value)))
            .collect();
        Results::of(
            Settings::default(),
            String::new(),
            vec![level(trials)],
            false,
        )
    }

    const OLD: [f64; 6] = [100.0, 101.0, 99.5, 100.4, 99.1, 100.7];

    #[test]
    fn another_machine_or_method_is_said() {
        let on = |cores, method_version| Results {
            measured_by: Some(MeasuredBy {
                method_version,
                machine: Machine {
                    cores: Some(cores),
                    ..Machine::default()
                },
                ..MeasuredBy::default()
            }),
            ..results(&OLD)
        };
        assert!(Comparison::of(&on(2, 1), &on(2, 1)).left_out.is_empty());
        let found = Comparison::of(&on(2, 1), &on(8, 2)).table();
        for what in ["method: 1 against 2", "processors: 2 against 8"] {
            let line = format!("not alike, so a change may be its own: {what}");
            assert!(found.contains(&line), "{found}");
        }
    }

    #[test]
    fn a_fall_of_a_tenth_is_worse_and_the_same_again_is_no_change() {
        let lower: Vec<_> = OLD.iter().rev().map(|value| value * 0.9).collect();
        let compared = Comparison::of(&results(&OLD), &results(&lower));
        let figure = &compared.figures[0];
        assert_eq!(
            (figure.change, compared.worse().count()),
            (Change::Worse, 1)
        );
        assert!(
            (figure.shift + 0.1).abs() < 0.01 && figure.p < 0.05,
            "{figure:?}"
        );
        assert!(
            figure.upper < Some(0.0) && figure.noise < Some(0.03),
            "{figure:?}"
        );
        let higher: Vec<_> = OLD.iter().map(|value| value * 1.1).collect();
        assert_eq!(
            Comparison::of(&results(&OLD), &results(&higher)).figures[0].change,
            Change::Better
        );
        let again = [100.3, 99.2, 100.9, 100.1, 99.8, 100.6];
        let compared = Comparison::of(&results(&OLD), &results(&again));
        assert_eq!(compared.figures[0].change, Change::NotShown);
    }

    #[test]
    fn few_trials_show_nothing_and_other_loads_are_said() {
        let compared = Comparison::of(&results(&OLD[..2]), &results(&[80.0, 81.0]));
        assert_eq!(compared.figures[0].change, Change::TooFewTrials);
        let mut other = results(&OLD);
        other.levels[0].load.concurrency = Some(9);
        other.settings.workload = "other".to_owned();
        let compared = Comparison::of(&results(&OLD), &other);
        assert!(compared.figures.is_empty());
        assert!(
            compared.left_out[0].starts_with("the workload differs"),
            "{:?}",
            compared.left_out
        );
        assert!(
            compared
                .table()
                .contains("concurrency 8: the new result does not have it")
        );
    }
}
