//! Comparison of two results: which figures changed, by how much, and whether chance explains the change.

use crate::level::LevelResult;
use crate::metric::Metric;
use crate::relabel::{self, Stratum, Tested};
use crate::results::Results;
use crate::text::{aligned, markdown_table};
use crate::trial::median;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokengauge_stats::rank;

/// The probability that any figure of an unchanged backend is reported as worse or better.
const ALPHA: f64 = 0.05;
const CONFIDENCE: f64 = 0.95;
/// The figures that are compared. The other figures follow from these: the time between tokens is 1 ÷ TPS, and latency
/// and calls per second follow from TTFT, TPS and throughput.
const COMPARED: [Metric; 3] = [Metric::OutputThroughput, Metric::TpsMean, Metric::TtftMean];
const MOST_TRIALS: usize = 1000;

/// A comparison of two results.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Comparison {
    /// The figures that both results have at least at one load.
    pub figures: Vec<ComparedFigure>,
    /// Differences between the two measurements that may explain a change, and loads that only one result has.
    pub left_out: Vec<String>,
    /// Figures of the old result that the new result withholds at the same load.
    pub lost: Vec<String>,
}

/// The comparison of one figure over all loads that both results have.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ComparedFigure {
    /// The figure.
    pub metric: Metric,
    /// The verdict over all loads.
    pub change: Change,
    /// The p value of the hypothesis that the figure is not worse at any load, adjusted for all figures and both directions.
    pub p_worse: f64,
    /// The p value of the hypothesis that the figure is not better at any load, adjusted for all figures and both directions.
    pub p_better: f64,
    /// The trials that each result would need at each load to show a change; `null` if there are enough.
    pub trials_needed: Option<usize>,
    /// The figure at each load.
    pub loads: Vec<ComparedLoad>,
}

/// The comparison of one figure at one load.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ComparedLoad {
    /// The load.
    pub load: String,
    /// The mean of the old result.
    pub old: f64,
    /// The mean of the new result.
    pub new: f64,
    /// The median of all differences between an old and a new trial (Hodges–Lehmann), as a share of the old mean.
    pub shift: f64,
    /// The lower end of the 95 % interval of the shift at this load; `null` if there are too few trials.
    pub lower: Option<f64>,
    /// The upper end of the 95 % interval of the shift at this load; `null` if there are too few trials.
    pub upper: Option<f64>,
    /// The median difference between two trials of the same result, as a share of the mean (A/A).
    pub noise: Option<f64>,
}

/// The verdict on a figure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize, strum::IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The figure is better at one load or more, by more than chance and noise explain.
    #[strum(serialize = "better")]
    Better,
    /// The figure is worse at one load or more, by more than chance and noise explain.
    #[strum(serialize = "worse")]
    Worse,
    /// The trials do not show a change.
    #[strum(serialize = "no change shown")]
    NotShown,
    /// With this number of trials no outcome can show a change.
    #[strum(serialize = "too few trials")]
    TooFewTrials,
}

impl Comparison {
    /// Compares two results.
    ///
    /// The trials of one load are a stratum of one permutation test over all loads. Trials of two runs are not pairs,
    /// because each run has its own order of trials.
    pub fn of(old: &Results, new: &Results) -> Comparison {
        let mut left_out = settings(old, new);
        let (mut both, mut lost) = (Vec::new(), Vec::new());
        for before in &old.levels {
            match new.levels.iter().find(|level| level.load == before.load) {
                Some(after) => both.push((before, after)),
                None => left_out.push(format!(
                    "{}: the new result does not have this load",
                    before.load
                )),
            }
        }
        for (before, after) in &both {
            let missing = |metric: &&Metric| {
                before.figures.contains_key(metric) && !after.figures.contains_key(metric)
            };
            for metric in COMPARED.iter().filter(missing) {
                lost.push(format!(
                    "{}: the new result withholds {}",
                    before.load,
                    metric.as_str()
                ));
            }
            if before.figures.is_empty() {
                left_out.push(format!("{}: the old result has no figures", before.load));
            }
        }
        let strata: Vec<_> = both.iter().map(|(old, new)| stratum(old, new)).collect();
        let tested = relabel::test(&strata, COMPARED.len());
        let figures = COMPARED.iter().zip(tested);
        let figures = figures
            .filter_map(|(metric, tested)| ComparedFigure::of(&both, *metric, tested))
            .collect();
        Comparison {
            figures,
            left_out,
            lost,
        }
    }

    pub fn worse(&self) -> impl Iterator<Item = &ComparedFigure> {
        self.figures
            .iter()
            .filter(|figure| figure.change == Change::Worse)
    }

    /// Returns the figures that the comparison cannot show to be worse, each with the reason and what to do. The list
    /// is empty if every figure can be decided.
    pub fn undecided(&self) -> Vec<String> {
        let few = self.figures.iter().filter_map(|figure| {
            let needed = figure.trials_needed?;
            let name = figure.metric.as_str();
            Some(format!(
                "{name} has too few trials to show any change: measure both results with --trials {needed} or more"
            ))
        });
        let none = self
            .figures
            .is_empty()
            .then(|| "no load has figures in both results".to_owned());
        few.chain(self.lost.iter().cloned()).chain(none).collect()
    }

    pub fn table(&self) -> String {
        let lines = self.lines().map(|line| format!("{line}\n"));
        aligned(&self.rows()) + &lines.collect::<String>()
    }

    pub fn markdown(&self) -> String {
        let lines = self.lines().map(|line| format!("- {line}\n"));
        format!(
            "{}\n{}",
            markdown_table(&self.rows()),
            lines.collect::<String>()
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
            "noise (A/A)",
        ];
        let heads = heads.map(str::to_owned).to_vec();
        let rows = self.figures.iter().flat_map(ComparedFigure::rows);
        std::iter::once(heads).chain(rows).collect()
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let verdicts = self.figures.iter().map(ToString::to_string);
        let others = self.lost.iter().chain(&self.left_out).cloned();
        verdicts.chain(others)
    }
}

fn settings(old: &Results, new: &Results) -> Vec<String> {
    let work = old.fingerprint.as_ref().zip(new.fingerprint.as_ref());
    let work = work.map(|(old, new)| old.differences(new));
    let by = old.measured_by.as_ref().zip(new.measured_by.as_ref());
    let by = by.map(|(old, new)| old.differences(new));
    let differ = work.into_iter().chain(by).flatten();
    let differ =
        differ.map(|what| format!("the measurements differ, which may cause a change: {what}"));
    let (old, new) = (&old.settings, &new.settings);
    let named = |name: &str, old: String, new: String| {
        (old != new).then(|| format!("{name} differs, which may cause a change: {old}; {new}"))
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

fn stratum(old: &LevelResult, new: &LevelResult) -> Stratum {
    let trials = |level: &LevelResult| {
        let figures = level
            .trials
            .iter()
            .filter_map(|trial| trial.figures.as_ref());
        let compared = figures.map(|figures| {
            let value = |metric: &Metric| {
                let both = [old, new]
                    .iter()
                    .all(|level| level.figures.contains_key(metric));
                figures
                    .get(metric)
                    .filter(|_| both)
                    .map(|figure| figure.value)
            };
            COMPARED.iter().map(value).collect::<Vec<_>>()
        });
        compared.collect()
    };
    Stratum {
        old: trials(old),
        new: trials(new),
    }
}

/// Returns the number of trials per load and result with which a p value can be below [`ALPHA`]; `None` if the existing
/// trials are enough.
fn trials_needed(loads: &[(&LevelResult, &LevelResult)], metric: Metric) -> Option<usize> {
    let shows = |sizes: &[(usize, usize)]| relabel::least_p(sizes) < ALPHA;
    let sizes = loads.iter().filter_map(|(old, new)| {
        let trials = |level: &LevelResult| Some(level.figures.get(&metric)?.trials.len());
        trials(old).zip(trials(new))
    });
    let sizes: Vec<_> = sizes.collect();
    let enough = |trials: &usize| shows(&vec![(*trials, *trials); sizes.len()]);
    (!shows(&sizes))
        .then(|| (2..=MOST_TRIALS).find(enough))
        .flatten()
}

impl ComparedFigure {
    fn of(
        both: &[(&LevelResult, &LevelResult)],
        metric: Metric,
        tested: Tested,
    ) -> Option<ComparedFigure> {
        let loads: Vec<_> = both
            .iter()
            .filter_map(|(old, new)| ComparedLoad::of(old, new, metric))
            .collect();
        if loads.is_empty() {
            return None;
        }
        let (p_worse, p_better) = match metric.higher_is_better() {
            Some(true) => (tested.fell, tested.rose),
            _ => (tested.rose, tested.fell),
        };
        let mut figure = ComparedFigure {
            metric,
            change: Change::NotShown,
            p_worse,
            p_better,
            trials_needed: trials_needed(both, metric),
            loads,
        };
        figure.change = figure.verdict();
        Some(figure)
    }

    fn verdict(&self) -> Change {
        let beyond_noise = |change| self.beyond_noise(change).next().is_some();
        if self.trials_needed.is_some() {
            Change::TooFewTrials
        } else if self.p_worse < ALPHA && beyond_noise(Change::Worse) {
            Change::Worse
        } else if self.p_better < ALPHA && beyond_noise(Change::Better) {
            Change::Better
        } else {
            Change::NotShown
        }
    }

    fn beyond_noise(&self, change: Change) -> impl Iterator<Item = &ComparedLoad> {
        let better = self.metric.higher_is_better();
        self.loads.iter().filter(move |load| {
            let beyond_noise = load.noise.is_some_and(|noise| load.shift.abs() > noise);
            let direction = if better == Some(load.shift > 0.0) {
                Change::Better
            } else {
                Change::Worse
            };
            beyond_noise && direction == change
        })
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let unit = self.metric.unit();
        self.loads.iter().map(move |load| {
            let interval = load.lower.zip(load.upper);
            vec![
                load.load.clone(),
                self.metric.as_str().to_owned(),
                unit.show(load.old),
                unit.show(load.new),
                percent(load.shift),
                interval.map_or("–".to_owned(), |(lower, upper)| {
                    format!("{} to {}", percent(lower), percent(upper))
                }),
                load.noise
                    .map_or("–".to_owned(), |noise| format!("±{:.1}%", noise * 100.0)),
            ]
        })
    }
}

impl std::fmt::Display for ComparedFigure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict: &str = self.change.into();
        write!(f, "{}: {verdict}", self.metric.as_str())?;
        let p = match self.change {
            Change::TooFewTrials => return Ok(()),
            Change::Worse => self.p_worse,
            Change::Better => self.p_better,
            Change::NotShown => self.p_worse.min(self.p_better),
        };
        write!(f, " (p {p:.3})")?;
        for (number, load) in self.beyond_noise(self.change).enumerate() {
            let before = if number == 0 { ": " } else { ", " };
            write!(f, "{before}{} at {}", percent(load.shift), load.load)?;
        }
        Ok(())
    }
}

impl ComparedLoad {
    fn of(old: &LevelResult, new: &LevelResult, metric: Metric) -> Option<ComparedLoad> {
        let (before, after) = (old.figures.get(&metric)?, new.figures.get(&metric)?);
        let shift = rank::shift(&before.trials, &after.trials, CONFIDENCE).ok()?;
        let level = before.value;
        Some(ComparedLoad {
            load: old.load.to_string(),
            old: before.value,
            new: after.value,
            shift: shift.estimate / level,
            lower: shift.interval.map(|interval| interval.lower / level),
            upper: shift.interval.map(|interval| interval.upper / level),
            noise: noise(&[&before.trials, &after.trials]),
        })
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1}%", share * 100.0)
}

/// Returns the median difference between two trials of the same result, as a share of the mean. Runs differ by this
/// much for reasons that the trials of one run do not show, such as a restart of the backend.
fn noise(results: &[&Vec<f64>]) -> Option<f64> {
    let mut distances = Vec::new();
    for trials in results {
        let mean = trials.iter().sum::<f64>() / trials.len() as f64;
        for (number, one) in trials.iter().enumerate() {
            let others = trials[number + 1..].iter();
            distances.extend(others.map(|other| ((one - other) / mean).abs()));
        }
    }
    (!distances.is_empty()).then(|| median(&distances))
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
            let line = format!("the measurements differ, which may cause a change: {what}");
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
        let load = &figure.loads[0];
        assert!(
            (load.shift + 0.1).abs() < 0.01 && figure.p_worse < 0.05,
            "{figure:?}"
        );
        assert!(
            load.upper < Some(0.0) && load.noise < Some(0.03),
            "{figure:?}"
        );
        assert!(
            compared
                .table()
                .contains("output_throughput: worse (p 0.00"),
            "{}",
            compared.table()
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
    fn a_fall_of_a_twentieth_is_found_at_any_number_of_loads() {
        let mut random = tokengauge_stats::seeded(3);
        for loads in 1..=6 {
            let old = simulated(loads, 1.0, &mut random);
            let new = simulated(loads, 0.95, &mut random);
            let compared = Comparison::of(&old, &new);
            assert!(compared.worse().count() > 0, "{loads}: {compared:#?}");
        }
    }

    fn simulated(loads: u32, level: f64, random: &mut tokengauge_stats::Generator) -> Results {
        use rand::RngExt;
        let mut noise = || {
            let draws = std::iter::repeat_with(|| random.random::<f64>());
            1.0 + 0.01 * (draws.take(12).sum::<f64>() - 6.0)
        };
        let level = |streams: u32| {
            let trials = (1..=5).map(|number| {
                let mut trial = trial(number, Ok(100.0 * level * noise()));
                let figures = trial.figures.as_mut().expect("figures");
                for (metric, value) in [
                    (Metric::TpsMean, 50.0 * level * noise()),
                    (Metric::TtftMean, 0.2 / level * noise()),
                ] {
                    let (lower, upper) = (None, None);
                    figures.insert(
                        metric,
                        crate::trial::Figure {
                            value,
                            lower,
                            upper,
                        },
                    );
                }
                trial
            });
            LevelResult {
                load: crate::level::LoadName::of(&crate::load::Load::Concurrency(streams)),
                ..crate::level::tests::level(trials.collect())
            }
        };
        let levels = (1..=loads).map(level).collect();
        Results::of(Settings::default(), String::new(), levels, false)
    }

    #[test]
    fn a_figure_that_the_new_result_withholds_is_not_passed_over() {
        let mut random = tokengauge_stats::seeded(3);
        let old = simulated(2, 1.0, &mut random);
        let mut new = simulated(2, 1.0, &mut random);
        new.levels[1].figures.remove(&Metric::TtftMean);
        let compared = Comparison::of(&old, &new);
        let lost = ["concurrency 2: the new result withholds ttft_mean"];
        assert_eq!(compared.undecided(), lost);
        assert!(compared.table().contains(lost[0]));
        assert!(Comparison::of(&new, &old).undecided().is_empty());
    }

    #[test]
    fn few_trials_show_nothing_and_other_loads_are_said() {
        let compared = Comparison::of(&results(&OLD[..2]), &results(&[80.0, 81.0]));
        assert_eq!(compared.figures[0].change, Change::TooFewTrials);
        let undecided = compared.undecided();
        assert!(
            undecided[0].contains("output_throughput has too few trials")
                && undecided[0].contains("--trials 4 or more"),
            "{undecided:?}"
        );
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
                .contains("concurrency 8: the new result does not have this load")
        );
        assert_eq!(
            compared.undecided(),
            ["no load has figures in both results"]
        );
    }
}
