//! The distance of a mix of outcomes or finish reasons from its reference.

use crate::chance::{self, PLACES};
use crate::compare::{no_reference, too_few, too_few_windows};
use crate::report::{DriftState, Figures, SignalDrift};
use crate::settings::Settings;
use crate::signal::{Cell, SignalName};
use crate::windows::{Missing, Pair, Weighted, Windows};
use tokengauge_stats::drift::LEAST_SHARE;
use tokengauge_store::query::Signal;

pub(crate) fn compare(
    windows: &Windows<'_>,
    signal: SignalName,
    settings: &Settings,
) -> Option<SignalDrift> {
    let whole = Cell::all_of(signal);
    let mut answer = SignalDrift {
        signal,
        bucket: None,
        state: DriftState::Learning,
        learning: None,
        reference: None,
        current: None,
        distance: None,
        stability_index: None,
    };
    let pair = match windows.pair(whole) {
        Ok(pair) => pair,
        Err(Missing::Signal) => return None,
        Err(Missing::Current) => {
            answer.learning = Some("no calls in the current window".to_owned());
            return Some(answer);
        }
        Err(Missing::Reference) => {
            answer.learning = Some(no_reference(settings.season));
            return Some(answer);
        }
    };
    let shares = shares(windows, whole, &pair);
    let first = shares.first().copied().unwrap_or_default();
    answer.reference = Some(figures(&pair.reference, first.0));
    answer.current = Some(figures(&pair.current, first.1));
    answer.learning = too_few(&pair, settings);
    if answer.learning.is_some() {
        return Some(answer);
    }
    let moved = shares.iter().map(|(was, is)| (is - was).abs()).sum::<f64>() / 2.0;
    answer.distance = Some(moved);
    answer.stability_index = Some(shares.iter().copied().map(index).sum());
    let large = moved >= settings.thresholds.outcome_share;
    let beyond = if large {
        chance::beyond(windows, whole, &pair, &shares)
    } else {
        Some(false)
    };
    answer.state = DriftState::of(beyond);
    answer.learning = beyond.is_none().then(too_few_windows);
    Some(answer)
}

/// The share of each kind before and now. The first kind is complete calls, or calls that finished by themselves.
fn shares(windows: &Windows<'_>, whole: Cell, pair: &Pair) -> Vec<(f64, f64)> {
    debug_assert!(matches!(
        whole.signal.stored(),
        Signal::Outcome | Signal::FinishReason
    ));
    let kind = |place| Cell {
        place: Some(place),
        ..whole
    };
    let of = |place| {
        let kind = windows.weighed_by(kind(place), whole).ok();
        kind.map_or((0.0, 0.0), |kind| {
            (
                kind.reference.weight() / pair.reference.weight(),
                kind.current.weight() / pair.current.weight(),
            )
        })
    };
    PLACES.map(of).collect()
}

/// The contribution of a kind to the population stability index.
fn index((was, is): (f64, f64)) -> f64 {
    let (was, is) = (was.max(LEAST_SHARE), is.max(LEAST_SHARE));
    (is - was) * (is / was).ln()
}

fn figures(window: &Weighted, share: f64) -> Figures {
    Figures {
        calls: window.calls(),
        sessions: window.sessions(),
        mean: share,
        p50: None,
        p90: None,
    }
}
