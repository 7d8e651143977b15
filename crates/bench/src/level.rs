//! Combines the trials of one load: Student's t across trials, tails over all calls.

use crate::figure::{LevelFigure, Method, TailFigure};
use crate::gauge::BothSides;
pub use crate::load_name::LoadName;
use crate::metric::{Metric, Part, TailMetric, TailOf};
use crate::objective::{Objective, ObjectiveResult, ObjectiveVerdict};
use crate::steady::{Criteria, Reason, Withheld};
use crate::trial::{TrialResult, mean, quantile, weighted_quantile};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use strum::VariantArray;
use tokengauge_stats::{bootstrap, student, tail};

/// The confidence of the bounds of tails, as in MLPerf LoadGen.
const TAIL_CONFIDENCE: f64 = 0.99;

/// How many calls of the counted trials have a figure, and why the other calls have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Judged {
    /// The number of calls that have the figure.
    pub calls: usize,
    /// The number of all calls.
    pub of: usize,
    /// The number of calls without the figure, by reason.
    pub without: BTreeMap<String, usize>,
}

/// The cost of a million output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Price {
    /// US dollars per million output tokens, from the hourly cost of the hardware and the throughput at this load.
    pub hardware_usd: Option<f64>,
    /// US dollars per million output tokens, from the model's list price for these calls, including their input.
    pub list_usd: Option<f64>,
}

/// Quantiles of the calls (or tokens) at 0 %, 2 %, … 100 %.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Distributions {
    /// Quantiles of the time to first token, in seconds.
    pub ttft: Vec<f64>,
    /// Quantiles of the time between tokens, in seconds.
    pub itl: Vec<f64>,
}

/// The results of one load.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct LevelResult {
    /// The load.
    pub load: LoadName,
    /// The trials of this load.
    pub trials: Vec<TrialResult>,
    /// The figures over all counted trials; empty if they are withheld.
    pub figures: BTreeMap<Metric, LevelFigure>,
    /// The tails over the calls of all counted trials.
    pub tails: Vec<TailFigure>,
    /// The calls that TPS and times between tokens are computed from.
    #[serde(default)]
    pub judged_tps: Judged,
    /// The calls that TTFT is computed from.
    #[serde(default)]
    pub judged_ttft: Judged,
    /// The distributions of times.
    pub distributions: Distributions,
    /// The results of the objectives at this load.
    pub objectives: Vec<ObjectiveResult>,
    /// The cost of a million output tokens at this load.
    pub usd_per_million_output: Price,
    /// The same calls as a tokengauge proxy measured them.
    pub gauge: Option<BothSides>,
    /// Why there are no figures.
    pub withheld: Vec<Withheld>,
    /// Why some of the figures are withheld, if the load has other figures.
    #[serde(default)]
    pub partly_withheld: Vec<Withheld>,
}

impl LevelResult {
    /// Combines the trials of a load. `hardware` is the cost of the backend in US dollars per hour.
    pub fn of(
        load: LoadName,
        trials: Vec<TrialResult>,
        objectives: &[Objective],
        hardware: Option<f64>,
        criteria: &Criteria,
    ) -> LevelResult {
        let withheld = withheld(&trials);
        let partly_withheld = if withheld.is_empty() {
            partly_withheld(&trials)
        } else {
            Vec::new()
        };
        let counting = || trials.iter().filter(|trial| trial.figures.is_some());
        let (figures, tails, distributions) = if withheld.is_empty() {
            let has = |part| !partly_withheld.iter().any(|it| it.part == part);
            let mut figures = figures(&trials, criteria);
            figures.retain(|metric, _| has(metric.part()));
            let tails = TailMetric::SHOWN
                .into_iter()
                .chain(objectives.iter().filter_map(Objective::tail))
                .filter(|metric| has(Some(metric.part())))
                .fold(Vec::new(), |mut all: Vec<TailFigure>, metric| {
                    if !all.iter().any(|tail| tail.name == metric.name()) {
                        all.push(tail_figure(&trials, metric));
                    }
                    all
                });
            let mut distributions = distributions(&trials);
            if !has(Some(Part::Ttft)) {
                distributions.ttft.clear();
            }
            if !has(Some(Part::Tps)) {
                distributions.itl.clear();
            }
            (figures, tails, distributions)
        } else {
            Default::default()
        };
        let judged = objectives.iter().map(|objective| {
            let mut result = objective.judge(&figures, &tails);
            if result.verdict == ObjectiveVerdict::NotShown {
                let why = withheld.iter().chain(&partly_withheld);
                let why = why.filter(|it| it.part.is_none() || it.part == objective.part());
                let why: Vec<_> = why.map(ToString::to_string).collect();
                result.reason = Some(not_shown(objective, &result, &trials, &why));
            }
            result
        });
        let throughput = figures
            .get(&Metric::OutputThroughput)
            .map(|figure| figure.value);
        let hardware_usd = hardware
            .zip(throughput)
            .map(|(an_hour, tps)| an_hour / 3600.0 / tps * 1e6);
        let tokens: f64 = counting().map(|trial| trial.sample.output_tokens).sum();
        let costs: Option<f64> = counting().map(|trial| trial.sample.cost_usd).sum();
        let list_usd = costs.filter(|_| tokens > 0.0 && !figures.is_empty());
        LevelResult {
            objectives: judged.collect(),
            usd_per_million_output: Price {
                hardware_usd,
                list_usd: list_usd.map(|usd| usd / tokens * 1e6),
            },
            judged_tps: judged_tps(&trials),
            judged_ttft: judged_ttft(&trials),
            load,
            figures,
            tails,
            distributions,
            gauge: None,
            withheld,
            partly_withheld,
            trials,
        }
    }

    /// Returns whether the load meets all objectives. A load at which calls fail or pile up misses them. A load whose
    /// figures are withheld for another reason neither meets nor misses them.
    pub fn verdict(&self) -> ObjectiveVerdict {
        let any = |verdict| self.objectives.iter().any(|it| it.verdict == verdict);
        if self.withheld.iter().any(is_fatal) || any(ObjectiveVerdict::Missed) {
            ObjectiveVerdict::Missed
        } else if !self.withheld.is_empty() || any(ObjectiveVerdict::NotShown) {
            ObjectiveVerdict::NotShown
        } else {
            ObjectiveVerdict::Kept
        }
    }

    /// Returns the names of the withheld figures: the load for all of them, or the load and the part.
    pub fn without(&self) -> Vec<String> {
        let mut parts: Vec<_> = self
            .partly_withheld
            .iter()
            .filter_map(|it| it.part)
            .collect();
        parts.dedup();
        let load = &self.load;
        let named = parts.iter().map(|part| {
            let part: &str = part.into();
            format!("{load} ({part})")
        });
        let all = (!self.withheld.is_empty()).then(|| load.to_string());
        named.chain(all).collect()
    }

    /// Returns the number of trials with which the tails of all objectives have enough calls; `None` if they already
    /// have, or if more trials do not help.
    pub fn trials_for_tails(&self, objectives: &[Objective]) -> Option<u32> {
        let of = |tail: TailMetric| {
            let withheld = |it: &Withheld| it.part == Some(tail.part());
            if self.partly_withheld.iter().any(withheld) {
                return None;
            }
            let (calls, needed) = calls_and_needed(&self.trials, tail);
            let each = calls as f64 / self.trials.len() as f64;
            (0 < calls && calls < needed).then(|| (needed as f64 / each).ceil() as u32)
        };
        let tails = objectives.iter().filter_map(Objective::tail);
        tails
            .filter_map(of)
            .max()
            .filter(|_| self.withheld.is_empty())
    }

    /// Returns whether the intervals of throughput, TPS and TTFT over several trials are within `share` of their
    /// values.
    pub fn is_known_within(&self, share: f64) -> bool {
        let known = |metric: &Metric| {
            let figure = self.figures.get(metric);
            figure.is_some_and(|figure| {
                let bounds = figure.lower.zip(figure.upper);
                let reach = bounds.map(|(lower, upper)| (upper - lower) / 2.0);
                figure.method == Method::SequentialStudentT
                    && reach.is_some_and(|reach| reach <= share * figure.value)
            })
        };
        let figures = [Metric::OutputThroughput, Metric::TpsMean, Metric::TtftMean];
        figures.iter().all(known)
    }

    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.figures.get(&metric).map(|figure| figure.value)
    }
}

impl TailMetric {
    fn calls_needed(self) -> usize {
        let share = f64::from(self.percent) / 100.0;
        tail::calls_needed(share, TAIL_CONFIDENCE).unwrap_or(usize::MAX)
    }
}

impl Objective {
    fn tail(&self) -> Option<TailMetric> {
        match self.of {
            crate::objective::ObjectiveMetric::Tail(tail) => Some(tail),
            crate::objective::ObjectiveMetric::Figure(_) => None,
        }
    }
}

fn withheld(trials: &[TrialResult]) -> Vec<Withheld> {
    let reasons = || {
        trials.iter().flat_map(|trial| {
            let all = trial.withheld.iter().filter(|it| it.part.is_none());
            all.map(|reason| with_trial(trial, reason))
        })
    };
    let fatal: Vec<_> = reasons().filter(is_fatal).collect();
    let counting = trials
        .iter()
        .filter(|trial| trial.figures.is_some())
        .count();
    match (fatal.is_empty(), 2 * counting > trials.len()) {
        (false, _) => fatal,
        (true, false) => reasons().collect(),
        (true, true) => Vec::new(),
    }
}

fn partly_withheld(trials: &[TrialResult]) -> Vec<Withheld> {
    let withheld = |part: Part| {
        let with = trials.iter().filter(|trial| trial.has(part)).count();
        let reasons = trials.iter().flat_map(move |trial| {
            let of = move |it: &&Withheld| it.part == Some(part);
            let reasons = trial.withheld.iter().filter(of);
            reasons.map(|reason| with_trial(trial, reason))
        });
        reasons.filter(move |_| 2 * with <= trials.len())
    };
    let parts = [Part::Ttft, Part::Tps, Part::Latency];
    parts.into_iter().flat_map(withheld).collect()
}

fn with_trial(trial: &TrialResult, withheld: &Withheld) -> Withheld {
    Withheld {
        message: format!("trial {}: {}", trial.trial, withheld.message),
        ..withheld.clone()
    }
}

fn is_fatal(withheld: &Withheld) -> bool {
    matches!(withheld.reason, Reason::FailedCalls | Reason::Overloaded)
}

fn calls_and_needed(trials: &[TrialResult], metric: TailMetric) -> (usize, usize) {
    (times(trials, metric).count(), metric.calls_needed())
}

fn not_shown(
    objective: &Objective,
    result: &ObjectiveResult,
    trials: &[TrialResult],
    withheld: &[String],
) -> String {
    let tail = objective.tail();
    if let Some((calls, needed)) = tail.map(|tail| calls_and_needed(trials, tail))
        && calls < needed
    {
        // Calls of trials without figures also show how many calls fit into a trial.
        let calls = calls.max(trials.iter().map(|trial| trial.calls).sum());
        let measured: f64 = trials.iter().map(|trial| trial.measured).sum();
        let least = needed.max(trials.len() * bootstrap::MIN_OBSERVATIONS);
        let factor = least as f64 / calls.max(1) as f64;
        if factor > 1.0 {
            let seconds = (measured / trials.len() as f64 * factor).ceil();
            return format!(
                "only {calls} of the {least} needed calls; measure for at least {seconds} s in each of {} trials \
                 (--benchmark-duration)",
                trials.len()
            );
        }
    }
    let unit = objective.unit();
    match (withheld.is_empty(), result.value, result.bound) {
        (false, ..) => withheld.join("; "),
        (true, Some(value), Some(bound)) => format!(
            "the figure is {} and may be {}: make more trials (--trials) or measure longer (--benchmark-duration)",
            unit.show(value),
            unit.show(bound)
        ),
        _ => "no call has this figure".to_owned(),
    }
}

fn figures(trials: &[TrialResult], criteria: &Criteria) -> BTreeMap<Metric, LevelFigure> {
    let of = |metric: &Metric| {
        let found = trials
            .iter()
            .filter_map(|trial| trial.figures.as_ref()?.get(metric));
        let found: Vec<_> = found.copied().collect();
        let values: Vec<_> = found.iter().map(|figure| figure.value).collect();
        let figure = match (
            found.as_slice(),
            student::mean(&values, criteria.confidence_after(values.len())),
        ) {
            ([], _) => return None,
            ([only], _) => LevelFigure {
                value: only.value,
                lower: only.lower,
                upper: only.upper,
                method: Method::MovingBlockBootstrap,
                trials: values,
            },
            (_, mean_of_trials) => {
                let interval = mean_of_trials.ok().map(|mean| mean.interval);
                LevelFigure {
                    value: mean(&values),
                    lower: interval.map(|interval| interval.lower),
                    upper: interval.map(|interval| interval.upper),
                    method: match criteria.stop_within {
                        Some(_) => Method::SequentialStudentT,
                        None => Method::StudentT,
                    },
                    trials: values,
                }
            }
        };
        Some((*metric, figure))
    };
    Metric::VARIANTS.iter().filter_map(of).collect()
}

fn having(trials: &[TrialResult], part: Part) -> impl Iterator<Item = &TrialResult> {
    trials.iter().filter(move |trial| trial.has(part))
}

/// Returns a tail over the calls of all trials. The tail of a speed is computed from seconds per token, so that the bad
/// side is the high one.
fn tail_figure(trials: &[TrialResult], metric: TailMetric) -> TailFigure {
    let times: Vec<f64> = times(trials, metric).collect();
    let shown = |time: f64| match metric.of {
        TailOf::Tps => 1.0 / time,
        _ => time,
    };
    let share = f64::from(metric.percent) / 100.0;
    let bound = tail::bound(&times, share, TAIL_CONFIDENCE).ok();
    TailFigure {
        name: metric.name(),
        value: bound.map(|_| shown(quantile(&times, share))),
        bound: bound.map(|tail| shown(tail.bound)),
        calls: times.len(),
        calls_needed: metric.calls_needed(),
    }
}

fn times(trials: &[TrialResult], metric: TailMetric) -> impl Iterator<Item = f64> {
    having(trials, metric.part()).flat_map(move |trial| {
        let sample = &trial.sample;
        let (ttft, times): (&[(f64, f64)], &[f64]) = match metric.of {
            TailOf::Ttft => (&sample.ttft, &[]),
            TailOf::Latency => (&[], &sample.latency),
            TailOf::Tps => (&[], &sample.tpot),
        };
        ttft.iter()
            .map(|(_, ttft)| *ttft)
            .chain(times.iter().copied())
    })
}

fn judged_tps(trials: &[TrialResult]) -> Judged {
    let mut judged = Judged::default();
    for trial in having(trials, Part::Tps) {
        judged.calls += trial.sample.tpot.len();
        judged.of += trial.calls;
        for (reason, calls) in &trial.without_tps {
            *judged.without.entry(reason.clone()).or_default() += calls;
        }
    }
    judged
}

fn judged_ttft(trials: &[TrialResult]) -> Judged {
    let having = || having(trials, Part::Ttft);
    let calls = having().map(|trial| trial.sample.ttft.len()).sum();
    let of = having().map(|trial| trial.calls).sum();
    let without = (of > calls).then(|| ("failed_or_no_text".to_owned(), of - calls));
    Judged {
        calls,
        of,
        without: without.into_iter().collect(),
    }
}

fn distributions(trials: &[TrialResult]) -> Distributions {
    let shares = || (0..=50).map(|step| f64::from(step) / 50.0);
    let ttft: Vec<_> = having(trials, Part::Ttft)
        .flat_map(|trial| trial.sample.ttft.iter().map(|(_, ttft)| *ttft))
        .collect();
    let itl: Vec<_> = having(trials, Part::Tps)
        .flat_map(|trial| trial.sample.inter_token.iter().copied())
        .collect();
    Distributions {
        ttft: if ttft.is_empty() {
            Vec::new()
        } else {
            shares().map(|share| quantile(&ttft, share)).collect()
        },
        itl: shares()
            .filter_map(|share| weighted_quantile(&itl, share))
            .collect(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::load::Load;
    use crate::trial::{Figure, Sample};
    use rand::RngExt;

    pub(crate) fn trial(number: u32, throughput: Result<f64, Reason>) -> TrialResult {
        let figure = |value| Figure {
            value,
            lower: Some(value * 0.9),
            upper: Some(value * 1.1),
        };
        let reason = throughput.err().map(|reason| Withheld {
            reason,
            part: None,
            message: "why".to_owned(),
        });
        TrialResult {
            trial: number,
            started_at: String::new(),
            measured_after: 0.0,
            measured: 60.0,
            steady_after: Some(0.0),
            calls: 100,
            failed: 0,
            in_flight: 8.0,
            client_lag: 0.0,
            client_lag_p99: 0.0,
            client_throttled: 0.0,
            without_tps: BTreeMap::new(),
            figures: throughput
                .ok()
                .map(|value| BTreeMap::from([(Metric::OutputThroughput, figure(value))])),
            withheld: reason.into_iter().collect(),
            interval: 1.0,
            timeline: Vec::new(),
            sample: Sample {
                ttft: (0..50)
                    .map(|number| (0.0, f64::from(number) / 100.0))
                    .collect(),
                tpot: (0..50)
                    .map(|number| 1.0 / (50.0 + f64::from(number)))
                    .collect(),
                ..Sample::default()
            },
        }
    }

    pub(crate) fn level(trials: Vec<TrialResult>) -> LevelResult {
        let load = LoadName::of(&Load::Concurrency(8));
        LevelResult::of(load, trials, &[], Some(2.0), &Criteria::default())
    }

    #[test]
    fn several_trials_have_students_interval_and_one_its_own() {
        let three = level(vec![
            trial(1, Ok(100.0)),
            trial(2, Ok(104.0)),
            trial(3, Ok(102.0)),
        ]);
        let figure = &three.figures[&Metric::OutputThroughput];
        // t(2) = 4.303, s = 2.
        assert_eq!((figure.value, figure.method), (102.0, Method::StudentT));
        assert!((figure.upper.expect("known") - (102.0 + 4.3027 * 2.0 / 3f64.sqrt())).abs() < 0.01);
        let one = level(vec![trial(1, Ok(100.0))]);
        let figure = &one.figures[&Metric::OutputThroughput];
        assert_eq!(
            (figure.lower, figure.method),
            (Some(90.0), Method::MovingBlockBootstrap)
        );
        // 2 dollars an hour at 100 tokens a second.
        let price = one.usd_per_million_output.hardware_usd.expect("known");
        assert!((price - 5.5556).abs() < 0.001, "{price}");
    }

    /// Without a trend, the interval after any trial misses the truth in only a few runs.
    #[test]
    fn intervals_hold_after_every_trial_at_once() {
        let criteria = Criteria {
            stop_within: Some(0.01),
            confidence: 0.9,
            ..Criteria::default()
        };
        let plain = Criteria {
            stop_within: None,
            ..criteria
        };
        let mut random = tokengauge_stats::seeded(5);
        let mut normal = || {
            let draws = std::iter::repeat_with(|| random.random::<f64>());
            draws.take(12).sum::<f64>() - 6.0
        };
        let runs = 1_000;
        let (mut sequential, mut each) = (0, 0);
        for _ in 0..runs {
            let trials: Vec<f64> = (0..20).map(|_| 100.0 + normal()).collect();
            let left = |criteria: &Criteria| {
                (2..=trials.len()).any(|count| {
                    let confidence = criteria.confidence_after(count);
                    let found = student::mean(&trials[..count], confidence);
                    !found.expect("trials").interval.contains(100.0)
                })
            };
            sequential += usize::from(left(&criteria));
            each += usize::from(left(&plain));
        }
        assert!(sequential <= runs / 10 && sequential > 0, "{sequential}");
        assert!(
            each > 2 * runs / 10,
            "{each}: looking again and again errs more often"
        );
    }

    #[test]
    fn a_load_is_known_once_all_of_its_figures_are() {
        let criteria = Criteria {
            stop_within: Some(0.05),
            ..Criteria::default()
        };
        let of = |speed: [f64; 4]| {
            let with_speed = |(number, speed): (u32, f64)| {
                let mut trial = trial(number, Ok(100.0 + f64::from(number) / 10.0));
                let figures = trial.figures.as_mut().expect("figures");
                for (metric, value) in [(Metric::TpsMean, speed), (Metric::TtftMean, 0.2)] {
                    let (lower, upper) = (Some(value), Some(value));
                    figures.insert(
                        metric,
                        Figure {
                            value,
                            lower,
                            upper,
                        },
                    );
                }
                trial
            };
            let trials = (1..).zip(speed).map(with_speed).collect();
            let load = LoadName::of(&Load::Concurrency(8));
            LevelResult::of(load, trials, &[], None, &criteria)
        };
        assert!(of([40.0, 40.1, 40.0, 39.9]).is_known_within(0.05));
        assert!(!of([40.0, 50.0, 40.0, 30.0]).is_known_within(0.05));
    }

    #[test]
    fn one_trial_of_three_may_not_be_steady_but_no_call_may_fail() {
        let most = level(vec![
            trial(1, Ok(100.0)),
            trial(2, Err(Reason::NotSteady)),
            trial(3, Ok(1.0)),
        ]);
        assert_eq!(most.figures[&Metric::OutputThroughput].trials, [100.0, 1.0]);
        let half = level(vec![trial(1, Ok(100.0)), trial(2, Err(Reason::NotSteady))]);
        assert_eq!(half.withheld[0].message, "trial 2: why");
        let failed = level(vec![
            trial(1, Ok(1.0)),
            trial(2, Err(Reason::FailedCalls)),
            trial(3, Ok(1.0)),
        ]);
        assert!(failed.figures.is_empty() && failed.tails.is_empty());
        assert_eq!(failed.usd_per_million_output, Price::default());
    }

    #[test]
    fn a_figure_that_most_trials_withhold_is_missing_and_the_others_are_not() {
        let unsteady = |number: u32| TrialResult {
            withheld: vec![Withheld {
                reason: Reason::NotSteady,
                part: Some(Part::Ttft),
                message: "TTFT changed".to_owned(),
            }],
            ..trial(number, Ok(100.0))
        };
        let objectives = ["ttft_p90<=1s", "tps_p10>=1"].map(|text| text.parse().expect("one"));
        let of = |trials| {
            let load = LoadName::of(&Load::Concurrency(8));
            LevelResult::of(load, trials, &objectives, None, &Criteria::default())
        };
        let most = of(vec![unsteady(1), unsteady(2), trial(3, Ok(100.0))]);
        assert!(most.withheld.is_empty() && most.figures.len() == 1);
        assert!(most.tails.iter().all(|tail| !tail.name.starts_with("ttft")));
        assert_eq!(most.without(), ["concurrency 8 (TTFT)"]);
        let [ttft, tps] = &most.objectives[..] else {
            panic!("{:?}", most.objectives);
        };
        let reason = "trial 1: TTFT changed; trial 2: TTFT changed";
        assert_eq!(ttft.reason.as_deref(), Some(reason));
        assert_eq!(
            (tps.verdict, most.verdict()),
            (ObjectiveVerdict::Kept, ObjectiveVerdict::NotShown)
        );
        let one = of(vec![unsteady(1), trial(2, Ok(100.0)), trial(3, Ok(100.0))]);
        assert_eq!(
            (one.without(), one.verdict()),
            (Vec::new(), ObjectiveVerdict::Kept)
        );
        assert_eq!(one.tails[0].calls, 100);
    }

    #[test]
    fn tails_are_over_all_calls_or_there_are_too_few() {
        let tails = level(vec![trial(1, Ok(1.0)), trial(2, Ok(1.0))]).tails;
        let tail = |name: &str| {
            tails
                .iter()
                .find(|tail| tail.name == name)
                .expect(name)
                .clone()
        };
        let p90 = tail("ttft_p90");
        assert_eq!((p90.calls, p90.calls_needed), (100, 64));
        assert!(p90.bound > p90.value && p90.value > Some(0.4), "{p90:?}");
        let slow = tail("tps_p10");
        assert!(
            slow.bound < slow.value && slow.value < Some(60.0),
            "{slow:?}"
        );
        let p99 = tail("ttft_p99");
        assert_eq!((p99.value, p99.bound, p99.calls_needed), (None, None, 662));
    }
}
