//! Causes of a changed mean: a different mix of strata, or changes within the strata.

use crate::check;
use crate::error::{Result, StatsError};

/// The observations of one stratum in one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// The number of observations or another weight, at least 0.
    pub weight: f64,
    /// The mean of the observations, in the unit of the figure; ignored if the weight is 0.
    pub mean: f64,
}

/// One stratum, such as prompts of 1k to 8k tokens, before and after. A weight of 0 means no observations in that
/// period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stratum {
    /// The earlier period, or the baseline.
    pub before: Group,
    /// The later period.
    pub after: Group,
}

/// The contributions of one stratum to the difference of the means, in the unit of the figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// The contribution of the changed share: (share after − share before) · mean of both means.
    pub mix: f64,
    /// The contribution of the changed mean: (mean after − mean before) · mean of both shares.
    pub within: f64,
}

/// The contributions to a difference of two means.
#[derive(Clone, Debug, PartialEq)]
pub struct Decomposition {
    /// The mean of the earlier period.
    pub before: f64,
    /// The mean of the later period.
    pub after: f64,
    /// The contribution of changed shares: the sum of [`Part::mix`] over all strata.
    pub mix: f64,
    /// The contribution of changes within strata. `mix + within` is `after - before`, up to rounding.
    pub within: f64,
    /// The contributions of the strata, in input order. The mix of a single stratum depends on the level of the figure;
    /// the sum does not.
    pub parts: Vec<Part>,
}

/// Decomposes the difference of two means into the part of the mix and the part within strata, by Kitagawa's method. It
/// works for means; medians cannot be decomposed.
///
/// Shares are weighted by the average of both means, and means by the average of both shares. The result therefore does
/// not depend on the direction, and there is no remainder. A stratum that is missing in one period gets the mean of the
/// other period, so that its whole contribution is mix.
///
/// Source: Kitagawa, "Components of a difference between two rates", JASA 50 (1955).
///
/// # Errors
///
/// Returns an error if a period has no observations, a value is not finite, or a weight is negative.
///
/// ```
/// use tokengauge_stats::mix::{Group, Stratum, decompose};
///
/// // Seconds to the first token: as before at each length, but more long prompts.
/// let short = Stratum { before: Group { weight: 90.0, mean: 0.25 }, after: Group { weight: 50.0, mean: 0.25 } };
/// let long = Stratum { before: Group { weight: 10.0, mean: 2.25 }, after: Group { weight: 50.0, mean: 2.25 } };
/// let found = decompose(&[short, long]).unwrap();
/// assert!((found.after - found.before - 0.8).abs() < 1e-12);
/// assert!((found.mix - 0.8).abs() < 1e-12 && found.within.abs() < 1e-12);
/// ```
pub fn decompose(strata: &[Stratum]) -> Result<Decomposition> {
    let before = Period::of(strata, |stratum| stratum.before)?;
    let after = Period::of(strata, |stratum| stratum.after)?;
    let parts: Vec<Part> = strata
        .iter()
        .map(|stratum| part(stratum, before.weight, after.weight))
        .collect();
    Ok(Decomposition {
        before: before.mean,
        after: after.mean,
        mix: check::answer(parts.iter().map(|part| part.mix).sum())?,
        within: check::answer(parts.iter().map(|part| part.within).sum())?,
        parts,
    })
}

struct Period {
    weight: f64,
    mean: f64,
}

impl Period {
    fn of(strata: &[Stratum], of: impl Fn(&Stratum) -> Group) -> Result<Self> {
        let groups: Vec<Group> = strata
            .iter()
            .map(of)
            .filter(|group| group.weight != 0.0)
            .collect();
        for group in &groups {
            check::finite(&[group.weight, group.mean])?;
            if group.weight < 0.0 {
                return Err(StatsError::OutOfRange {
                    name: "a weight",
                    wanted: "at least 0",
                    value: group.weight,
                });
            }
        }
        let weight = check::answer(groups.iter().map(|group| group.weight).sum())?;
        check::at_least(1, groups.len())?;
        let mean = groups
            .iter()
            .map(|group| group.weight / weight * group.mean)
            .sum();
        Ok(Self {
            weight,
            mean: check::answer(mean)?,
        })
    }
}

fn part(stratum: &Stratum, before_weight: f64, after_weight: f64) -> Part {
    let Stratum { before, after } = *stratum;
    let (before_mean, after_mean) = match (before.weight == 0.0, after.weight == 0.0) {
        (true, true) => return Part::default(),
        (true, false) => (after.mean, after.mean),
        (false, true) => (before.mean, before.mean),
        (false, false) => (before.mean, after.mean),
    };
    let (before_share, after_share) = (before.weight / before_weight, after.weight / after_weight);
    Part {
        mix: (after_share - before_share) * (before_mean / 2.0 + after_mean / 2.0),
        within: (after_mean - before_mean) * f64::midpoint(before_share, after_share),
    }
}
