use super::file;
use super::objectives::{check_route, check_workload};
use super::problems::{Problems, check_label};
use super::scalar::Span;
use super::spanned::Spanned;
use super::*;
use std::collections::HashSet;
use tokengauge_core::time::span_text;
use tokengauge_drift::{Season, Select, Settings as Drift, Thresholds};

pub(super) fn drifts(
    written: Vec<Spanned<file::Drift>>,
    routes: &[Arc<Route>],
    measure: &Measure,
    ledger: Option<&Ledger>,
    problems: &mut Problems<'_>,
) -> Vec<Drift> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for spanned in written {
        let written = spanned.into_inner();
        let name = written.name.clone();
        check_label(&name, problems);
        if !names.insert(name.get_ref().clone()) {
            let reason = format!(
                "there are two [[drift]] named `{}`; give each its own `name`",
                name.get_ref()
            );
            problems.at(&name, reason);
        }
        check_windows(&written, ledger, problems);
        all.push(drift(written, routes, measure, problems));
    }
    all
}

fn drift(
    written: file::Drift,
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Drift {
    let select = written.select;
    check_route(select.route.as_ref(), routes, problems);
    check_workload(select.workload.as_ref(), routes, measure, problems);
    let default = Thresholds::default();
    let text = |written: Option<Spanned<String>>| written.map(Spanned::into_inner);
    Drift {
        name: written.name.into_inner().into(),
        select: Select {
            model: select.model.map(Pattern::new),
            route: text(select.route),
            workload: text(select.workload),
        },
        reference: written
            .reference
            .map_or(Drift::REFERENCE, |span| span.get_ref().0),
        current: written
            .current
            .map_or(Drift::CURRENT, |span| span.get_ref().0),
        season: written.season.unwrap_or_default(),
        thresholds: Thresholds {
            min_sessions: written.min_sessions.unwrap_or(default.min_sessions),
            distance: written.distance.unwrap_or(default.distance),
            stability_index: written.stability_index.unwrap_or(default.stability_index),
            min_change: written.min_change.unwrap_or(default.min_change),
            outcome_share: written.outcome_share.unwrap_or(default.outcome_share),
        },
    }
}

/// Checks the total length of both windows, and that the ledger keeps calls for that long.
fn check_windows(written: &file::Drift, ledger: Option<&Ledger>, problems: &mut Problems<'_>) {
    let (reference, current) = (&written.reference, &written.current);
    for span in [reference, current].into_iter().flatten() {
        let span_is = span.get_ref().0;
        if !span_is.as_secs().is_multiple_of(3_600) || span_is.subsec_nanos() > 0 {
            problems.at(
                span,
                "must be whole hours: the ledger has distributions by hour",
            );
        }
    }
    let of = |span: &Option<Spanned<Span>>, default| {
        span.as_ref().map_or(default, |span| span.get_ref().0)
    };
    let (before, now) = (of(reference, Drift::REFERENCE), of(current, Drift::CURRENT));
    let blamed = reference.as_ref().or(current.as_ref());
    let blamed = blamed.map_or(written.name.span(), Spanned::span);
    let blamed = Spanned::new(blamed, ());
    if before < now {
        let reason = format!(
            "the reference ({}) must not be shorter than the current window ({})",
            span_text(before),
            span_text(now)
        );
        problems.at(&blamed, reason);
    }
    let season = written.season.unwrap_or_default();
    if let Some(period) = season.period().filter(|period| before < 2 * *period) {
        let name: &str = season.into();
        let reason = format!(
            "the season `{name}` needs a reference of at least {}, two periods, or `season = \"{}\"`",
            span_text(2 * period),
            if season == Season::Week {
                "day"
            } else {
                "none"
            }
        );
        problems.at(&blamed, reason);
    }
    match ledger {
        None => problems.at(
            &written.name,
            "needs a ledger: set `state_dir` at the top of the file, or `path` in [ledger]",
        ),
        Some(ledger) if ledger.retention_age < before + now => {
            let reason = format!(
                "reference and current window are {} together, and the ledger forgets calls after {}: \
                 raise `retention_age` in [ledger]",
                span_text(before + now),
                span_text(ledger.retention_age)
            );
            problems.at(&blamed, reason);
        }
        Some(_) => {}
    }
}
