//! Why a mean changed: the mix of calls changed, or calls of one class did.

use crate::report::{Stratum, Why};
use crate::settings::Settings;
use crate::signal::{Cell, SignalName};
use crate::windows::{Pair, Windows};
use tokengauge_stats::mix::{Decomposition, Group, decompose};

/// The decomposition of a signal's mean by classes. `None` if a window has too few calls.
pub(crate) fn why(windows: &Windows<'_>, signal: SignalName, settings: &Settings) -> Option<Why> {
    let whole = Cell::all_of(signal);
    let all = windows.pair(whole).ok()?;
    if crate::compare::too_few(&all, settings).is_some() {
        return None;
    }
    let classes: Vec<(usize, Pair)> = signal
        .places()
        .filter_map(|place| {
            let cell = Cell {
                signal,
                place: Some(place),
            };
            Some((place, windows.weighed_by(cell, whole).ok()?))
        })
        .filter(|(_, pair)| pair.reference.weight() + pair.current.weight() > 0.0)
        .collect();
    let strata: Vec<_> = classes.iter().map(|(_, pair)| stratum(pair)).collect();
    let found = decompose(&strata).ok()?;
    Some(answer(signal, &classes, &found))
}

fn stratum(pair: &Pair) -> tokengauge_stats::mix::Stratum {
    let group = |window: &crate::windows::Weighted| Group {
        weight: window.weight(),
        mean: window.mean(),
    };
    tokengauge_stats::mix::Stratum {
        before: group(&pair.reference),
        after: group(&pair.current),
    }
}

fn answer(signal: SignalName, classes: &[(usize, Pair)], found: &Decomposition) -> Why {
    let sum = |of: fn(&Pair) -> f64| classes.iter().map(|(_, pair)| of(pair)).sum::<f64>();
    let before = sum(|pair| pair.reference.weight());
    let after = sum(|pair| pair.current.weight());
    let strata = classes.iter().zip(&found.parts);
    let strata = strata.map(|((place, pair), part)| Stratum {
        name: signal.class(*place),
        share_before: pair.reference.weight() / before,
        share_after: pair.current.weight() / after,
        mean_before: (pair.reference.weight() > 0.0).then(|| pair.reference.mean()),
        mean_after: (pair.current.weight() > 0.0).then(|| pair.current.mean()),
        mix: part.mix,
        within: part.within,
    });
    Why {
        signal,
        before: found.before,
        after: found.after,
        mix: found.mix,
        within: found.within,
        strata: strata.collect(),
    }
}
