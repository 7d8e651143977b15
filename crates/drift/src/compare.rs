//! The distance of a signal from its reference.

use crate::chance;
use crate::report::{DriftState, Figures, SignalDrift};
use crate::settings::{Season, Settings};
use crate::signal::Cell;
use crate::windows::{Missing, Pair, Weighted, Windows};
use tokengauge_stats::drift::{Distribution, stability_index};

/// The smallest range for distances, as a share of the reference's median. The store's classes are 2 % wide, so a signal
/// that hardly varies would drift by one class.
const LEAST_RANGE: f64 = 0.1;

pub(crate) fn compare(
    windows: &Windows<'_>,
    cell: Cell,
    settings: &Settings,
) -> Option<SignalDrift> {
    let (pair, learning) = match windows.pair(cell) {
        Ok(pair) => {
            let learning = too_few(&pair, settings);
            (Some(pair), learning)
        }
        Err(Missing::Signal) => return None,
        Err(Missing::Current) => (None, Some("no calls in the current window".to_owned())),
        Err(Missing::Reference) => (None, Some(no_reference(settings.season))),
    };
    let judged = pair.as_ref().filter(|_| learning.is_none());
    let sizes = judged.and_then(|pair| Sizes::of(pair).ok());
    let beyond = match (judged, &sizes) {
        (Some(pair), Some(sizes)) if sizes.reach(settings) => {
            chance::beyond(windows, cell, pair, &[])
        }
        (Some(_), _) => Some(false),
        (None, _) => None,
    };
    let learning = learning.or_else(|| beyond.is_none().then(too_few_windows));
    Some(SignalDrift {
        signal: cell.signal,
        bucket: cell.place.map(|place| cell.signal.class(place)),
        state: DriftState::of(beyond),
        learning,
        reference: pair.as_ref().map(|pair| figures(&pair.reference)),
        current: pair.as_ref().map(|pair| figures(&pair.current)),
        distance: sizes.as_ref().and_then(|sizes| sizes.distance),
        stability_index: sizes.and_then(|sizes| sizes.stability_index),
    })
}

pub(crate) fn no_reference(season: Season) -> String {
    match season {
        Season::Week => "two weeks of the reference must have calls in the same hours of the week as the current window",
        Season::Day => "two days of the reference must have calls in the same hours as the current window",
        Season::None => "the reference must have calls",
    }
    .to_owned()
}

pub(crate) fn too_few(pair: &Pair, settings: &Settings) -> Option<String> {
    let needed = settings.thresholds.min_sessions as f64;
    let windows = [
        ("current window", &pair.current),
        ("reference", &pair.reference),
    ];
    let few = windows
        .iter()
        .find(|(_, window)| window.sessions() < needed);
    few.map(|(name, window)| {
        let sessions = window.sessions().floor();
        format!("the {name} has {sessions} of the {needed} required sessions")
    })
}

pub(crate) fn too_few_windows() -> String {
    format!(
        "{} earlier windows are needed to distinguish a change from chance",
        chance::MIN_WINDOWS
    )
}

struct Sizes {
    distance: Option<f64>,
    stability_index: Option<f64>,
    /// The Wasserstein-1 distance as a share of the reference's mean. It is infinite if the mean is 0.
    change: f64,
}

impl Sizes {
    fn of(pair: &Pair) -> tokengauge_stats::Result<Sizes> {
        let reference = Distribution::of_histogram(&pair.reference.points)?;
        let current = Distribution::of_histogram(&pair.current.points)?;
        let moved = reference.wasserstein(&current)?;
        let median = reference.quantile(0.5)?.max(current.quantile(0.5)?);
        let range = reference.interquartile_range().max(LEAST_RANGE * median);
        let mean = pair.reference.mean();
        Ok(Sizes {
            distance: (range > 0.0).then(|| moved / range),
            stability_index: stability_index(&reference, &current).ok(),
            change: if mean > 0.0 {
                moved / mean
            } else {
                f64::INFINITY
            },
        })
    }

    fn reach(&self, settings: &Settings) -> bool {
        let thresholds = &settings.thresholds;
        // Without distinct deciles only the distance decides.
        let index = self.stability_index;
        self.distance.is_some_and(|is| is >= thresholds.distance)
            && index.is_none_or(|is| is >= thresholds.stability_index)
            && self.change >= thresholds.min_change
    }
}

fn figures(window: &Weighted) -> Figures {
    let distribution = Distribution::of_histogram(&window.points).ok();
    let quantile = |share| distribution.as_ref()?.quantile(share).ok();
    Figures {
        calls: window.calls(),
        sessions: window.sessions(),
        mean: window.mean(),
        p50: quantile(0.5),
        p90: quantile(0.9),
    }
}
