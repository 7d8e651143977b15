use super::timed_call::TimedCall;
use super::totals::tokens;
use crate::query::{CostQuery, CostSeries, CostSums, Costs};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use tokengauge_core::time::Timestamp;

pub fn costs<'a>(calls: impl Iterator<Item = TimedCall<'a>>, query: &CostQuery) -> Costs {
    let mut groups: HashMap<Option<String>, BTreeMap<u64, CostSums>> = HashMap::new();
    for past in calls {
        let name = query.by.of(past.record).map(Cow::into_owned);
        let steps = groups.entry(name).or_default();
        let sums = steps.entry(query.step_of(past.started)).or_default();
        sums.merge(&sums_of(&past));
    }
    let mut series: Vec<_> = groups
        .into_iter()
        .map(|(name, steps)| CostSeries::of(name, 1, steps))
        .collect();
    series.sort_by(|one, other| {
        let by_rank = one.sums.rank().cmp(&other.sums.rank());
        by_rank.then_with(|| one.name.cmp(&other.name))
    });
    let others = series.split_off(query.most.min(series.len()));
    Costs {
        step: query.step.as_secs().max(1),
        series,
        others: together(others),
    }
}

fn together(others: Vec<CostSeries>) -> Option<CostSeries> {
    let mut all = others.into_iter();
    let first = CostSeries {
        name: None,
        ..all.next()?
    };
    let mut points: BTreeMap<Timestamp, CostSums> = BTreeMap::new();
    let (mut names, mut sums) = (0, CostSums::default());
    for series in std::iter::once(first).chain(all) {
        names += series.names;
        sums.merge(&series.sums);
        for point in series.points {
            points.entry(point.at).or_default().merge(&point.sums);
        }
    }
    let points = points.into_iter();
    Some(CostSeries {
        name: None,
        names,
        sums,
        points: points
            .map(|(at, sums)| crate::query::CostPoint { at, sums })
            .collect(),
    })
}

fn sums_of(past: &TimedCall<'_>) -> CostSums {
    let tokens = tokens(past.record);
    let counted = tokens.input.or(tokens.output).is_some();
    let cost_usd = past.record.cost_usd;
    CostSums {
        calls: 1,
        errors: u64::from(past.failed()),
        tokens,
        cost_usd,
        unpriced_calls: u64::from(cost_usd.is_none() && counted),
    }
}
