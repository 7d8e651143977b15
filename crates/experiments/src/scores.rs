//! Comparisons of scores from outside.

use crate::compare::{CHECK_ALPHA, ComparedScore, Comparison, compare_in, sequence};
use crate::experiment::Rules;
use crate::group::Group;
use crate::metric::Metric;
use crate::observed::Sums;
use crate::stratum::Stratum;
use crate::withheld::Withheld;
use tokengauge_stats::ratio::{Arm, Unit, difference};
use tokengauge_store::query::UnitScores;

/// The units of one side that have a score of one name.
#[derive(Clone, Debug, Default)]
pub struct ScoredGroup {
    pub group: Group,
    /// All complete units, with 1 for those that have a score.
    scored: Arm,
}

impl ScoredGroup {
    /// Returns the units of a side that have the score `name`. `units` are all complete units of the side.
    pub fn of<'a>(
        name: &str,
        units: impl IntoIterator<Item = (Stratum, &'a Sums, &'a UnitScores)>,
    ) -> ScoredGroup {
        let mut side = ScoredGroup::default();
        for (stratum, sums, scores) in units {
            let score = scores.get(name);
            side.scored.push(Unit {
                numerator: f64::from(u8::from(score.is_some())),
                denominator: 1.0,
            });
            if let Some(score) = score {
                let sums = Sums {
                    score: *score,
                    ..*sums
                };
                side.group.push(stratum, &sums);
            }
        }
        side
    }

    /// The share of complete units that have a score.
    pub fn share(&self) -> f64 {
        self.group.units() as f64 / self.scored.units().max(1) as f64
    }
}

/// Compares a score of two sides. The difference is withheld if one side has fewer scored units than the rules
/// require, or if the sides have different shares of scored units.
pub fn compare_scores(
    name: &str,
    [baseline, changed]: [&ScoredGroup; 2],
    rules: &Rules,
) -> Comparison {
    let groups = [&baseline.group, &changed.group];
    let metric = std::iter::once(Metric::Score);
    let compared = compare_in(metric, groups, rules).pop();
    let mut comparison = compared.unwrap_or(Comparison {
        metric: Metric::Score,
        score: None,
        baseline: None,
        changed: None,
        difference: Err(Withheld::NoTraffic),
    });
    comparison.score = Some(ComparedScore {
        name: name.to_owned(),
        is_share: groups.iter().all(|group| group.is_share(Metric::Score)),
    });
    if let Some(reason) =
        too_few(groups, rules).or_else(|| scored_differ([baseline, changed], rules))
    {
        comparison.difference = Err(reason);
    }
    comparison
}

fn too_few([baseline, changed]: [&Group; 2], rules: &Rules) -> Option<Withheld> {
    let (got, what) = if changed.units() < baseline.units() {
        (changed.units(), "units of the other side have a score")
    } else {
        (baseline.units(), "units of the baseline have a score")
    };
    let needed = rules.min_units.max(2);
    (got < needed).then_some(Withheld::TooFewScores { what, got, needed })
}

fn scored_differ([baseline, changed]: [&ScoredGroup; 2], rules: &Rules) -> Option<Withheld> {
    let estimate = difference(&baseline.scored, &changed.scored).ok()?;
    let p = sequence(rules).ok()?.p_value(&estimate, 0.0).ok()?;
    (p <= CHECK_ALPHA).then(|| Withheld::ScoredDiffer {
        baseline: baseline.share(),
        changed: changed.share(),
    })
}
