//! What units are alike in before they have an arm: units are compared with their like.

use crate::group::Group;
use crate::metric::{METRICS, Metric};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokengauge_stats::ratio::Arm;
use tokengauge_stats::{Error, stratified};
use tokengauge_store::query::{UnitKind, UnitSums};

/// Units of each group that a stratum must have. Smaller ones are compared as one.
pub const MIN_UNITS_OF_STRATUM: u64 = 10;

/// What was so before the first call of a unit was answered: how long its prompt is, and when it
/// was. Nothing of it can be the
/// variant's doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stratum {
    /// The place of the first prompt's length among `PROMPT_LENGTHS` of `tokengauge_core::lengths`, where that is known.
    prompt: Option<usize>,
    /// When it began.
    time: Option<Time>,
}

/// When a unit began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Time {
    /// The hour of the day in UTC. Each arm has the same share of units at any time, so that hours only explain part of how
    /// units differ.
    Hour(u8),
    /// The part of a rollout, whose sides may have other shares in each.
    Slot(usize),
}

/// The sums of one group's units in a stratum, by metric.
pub(crate) type Arms = [Arm; METRICS];

impl Stratum {
    /// That of a unit. Blocks of time have none: a block is not assigned when its first call comes.
    pub fn of(sums: &UnitSums, kind: UnitKind) -> Stratum {
        match kind {
            UnitKind::Block(_) => Stratum::default(),
            UnitKind::Session | UnitKind::Agent | UnitKind::User => Stratum {
                prompt: sums.first_prompt,
                time: Some(Time::Hour(hour(sums.first_at()))),
            },
        }
    }

    /// That of a unit which began in a part of a rollout.
    pub fn in_slot(prompt: Option<usize>, slot: usize) -> Stratum {
        Stratum {
            prompt,
            time: Some(Time::Slot(slot)),
        }
    }

    /// With a prompt of a class of length, in an hour of the day.
    #[cfg(test)]
    pub(crate) fn new(prompt: usize, hour: u8) -> Stratum {
        Stratum {
            prompt: Some(prompt),
            time: Some(Time::Hour(hour)),
        }
    }

    /// Without what matters least.
    fn coarser(self) -> Stratum {
        match self.time {
            Some(Time::Slot(_)) => Stratum {
                prompt: None,
                ..self
            },
            _ => Stratum { time: None, ..self },
        }
    }
}

fn hour(at: SystemTime) -> u8 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    (since.unwrap_or(Duration::ZERO).as_secs() / 3_600 % 24) as u8
}

/// The strata of two groups, metric by metric.
pub(crate) struct Strata(Vec<[Arms; 2]>);

impl Strata {
    /// The strata that both groups have enough units of: by prompt and time; the remaining units by prompt, or by part of a
    /// rollout; the units that still remain together. It depends on how many units there are, never on how they went.
    pub(crate) fn of(baseline: &Group, changed: &Group) -> Strata {
        let mut strata: BTreeMap<Stratum, [Arms; 2]> = BTreeMap::new();
        for (side, group) in [baseline, changed].into_iter().enumerate() {
            for (stratum, arms) in group.strata() {
                merge(&mut strata.entry(*stratum).or_default()[side], arms);
            }
        }
        for coarser in [Stratum::coarser, |_| Stratum::default()] {
            let few: BTreeMap<Stratum, [Arms; 2]>;
            (strata, few) = strata.into_iter().partition(|(_, pair)| enough(pair));
            for (stratum, pair) in few {
                add(strata.entry(coarser(stratum)).or_default(), &pair);
            }
        }
        let rest = strata.remove(&Stratum::default());
        let mut strata: Vec<[Arms; 2]> = strata.into_values().collect();
        match (rest, strata.iter_mut().min_by_key(|pair| units(pair))) {
            // Too few to stand alone go to the smallest of the others.
            (Some(rest), Some(smallest)) if !enough(&rest) => add(smallest, &rest),
            (Some(rest), _) => strata.push(rest),
            (None, _) => {}
        }
        Strata(strata)
    }

    /// Both groups by the sums of one metric.
    ///
    /// # Errors
    ///
    /// Those of [`stratified::Strata::new`].
    pub(crate) fn by(&self, metric: Metric) -> Result<stratified::Strata, Error> {
        let at = metric as usize;
        let strata = self
            .0
            .iter()
            .map(|[baseline, changed]| stratified::Stratum {
                baseline: baseline[at],
                changed: changed[at],
            });
        stratified::Strata::new(&strata.collect::<Vec<_>>())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

fn enough(pair: &[Arms; 2]) -> bool {
    pair.iter()
        .all(|arms| arms[0].units() >= MIN_UNITS_OF_STRATUM)
}

fn units(pair: &[Arms; 2]) -> u64 {
    pair.iter().map(|arms| arms[0].units()).sum()
}

fn add(to: &mut [Arms; 2], more: &[Arms; 2]) {
    to.iter_mut()
        .zip(more)
        .for_each(|(to, more)| merge(to, more));
}

fn merge(to: &mut Arms, more: &Arms) {
    to.iter_mut()
        .zip(more)
        .for_each(|(to, more)| to.merge(more));
}
