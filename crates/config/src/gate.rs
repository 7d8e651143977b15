use super::file;
use super::objectives::{check_route, check_workload};
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use super::*;
use std::collections::HashSet;
use tokengauge_core::experiment::AssignedUnit;
use tokengauge_experiments::{DEFAULT_ALPHA, Metric, Rules};
use tokengauge_gate::{Ceilings, Gate, Margins, Select};
use tokengauge_slo::Sli;
use tokengauge_store::query::{Threshold, UnitKind};

/// The names that a gate may refer to.
pub(super) struct Known<'a> {
    pub(super) routes: &'a [Arc<Route>],
    pub(super) measure: &'a Measure,
    pub(super) slos: &'a [Arc<Objective>],
}

pub(super) fn gates(
    written: Vec<Spanned<file::Gate>>,
    known: &Known<'_>,
    problems: &mut Problems<'_>,
) -> Vec<Gate> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for spanned in written {
        let written = spanned.into_inner();
        let name = &written.name;
        check_label(name, problems);
        if !names.insert(name.get_ref().clone()) {
            let reason = format!(
                "there are two gates named `{}`; give each its own `name`",
                name.get_ref()
            );
            problems.at(name, reason);
        }
        all.push(gate(&written, known, problems));
    }
    all
}

fn gate(written: &file::Gate, known: &Known<'_>, problems: &mut Problems<'_>) -> Gate {
    let candidate = select(&written.candidate, known, problems);
    let baseline = select(&written.baseline, known, problems);
    if candidate == baseline {
        let reason = "candidate and baseline select the same calls; add a key in which they differ";
        problems.at(&written.candidate, reason);
    }
    let span = |span: &Option<scalar::Span>| span.as_ref().map(|span| span.0);
    Gate {
        name: written.name.get_ref().clone(),
        candidate,
        baseline,
        unit: match written.unit.unwrap_or_default() {
            AssignedUnit::Session => UnitKind::Session,
            AssignedUnit::Agent => UnitKind::Agent,
            AssignedUnit::User => UnitKind::User,
        },
        rules: Rules {
            alpha: written.alpha.unwrap_or(DEFAULT_ALPHA),
            ttft_above: span(&written.ttft_above).map(|span| Threshold::near(span.as_secs_f64())),
            tps_below: written.tps_below.map(Threshold::near),
            min_units: written.min_sessions.unwrap_or(Gate::MIN_UNITS),
            settled_after: span(&written.settled_after).unwrap_or(Rules::default().settled_after),
            scores: Vec::new(),
        },
        margins: margins(written, problems),
        scores: scores(written, problems),
        ceilings: Ceilings {
            failures: written.max_failures,
            cost: written.max_cost,
        },
        objectives: objectives(&written.slos, known.slos, problems),
        max_burn: written.max_burn.unwrap_or(Gate::MAX_BURN),
        window: span(&written.window).unwrap_or(Gate::WINDOW),
        max_wait: span(&written.max_wait),
    }
}

fn select(
    written: &Spanned<file::GateSelect>,
    known: &Known<'_>,
    problems: &mut Problems<'_>,
) -> Select {
    let named = written.get_ref();
    check_route(named.route.as_ref(), known.routes, problems);
    check_workload(
        named.workload.as_ref(),
        known.routes,
        known.measure,
        problems,
    );
    if let Some(upstream) = &named.upstream {
        let mut upstreams = known.routes.iter().flat_map(|route| route.upstreams());
        if !upstreams.any(|known| *known.name == **upstream.get_ref()) {
            let name = upstream.get_ref();
            problems.at(
                upstream,
                format!("no route leads to an upstream named `{name}`"),
            );
        }
    }
    let text =
        |written: &Option<Spanned<String>>| written.as_ref().map(|text| text.get_ref().clone());
    let select = Select {
        route: text(&named.route),
        upstream: text(&named.upstream),
        model: named.model.clone(),
        workload: text(&named.workload),
        experiment: named.experiment.clone(),
        variant: named.variant.clone(),
    };
    if select == Select::default() {
        problems.at(
            written,
            "selects nothing; add a route, upstream, model, workload, or experiment and variant",
        );
    }
    if select.variant.is_some() && select.experiment.is_none() {
        problems.at(written, "a `variant` also needs its `experiment`");
    }
    select
}

fn margins(written: &file::Gate, problems: &mut Problems<'_>) -> Margins {
    let of = &written.not_worse_by;
    for (margin, threshold, name) in [
        (of.ttft_above, written.ttft_above.is_some(), "ttft_above"),
        (of.tps_below, written.tps_below.is_some(), "tps_below"),
    ] {
        if margin.is_some() && !threshold {
            let reason = format!("`not_worse_by.{name}` needs the threshold `{name}` of the gate");
            problems.at(&written.name, reason);
        }
    }
    let share = |margin: Option<f64>| Some(margin.unwrap_or(Margins::SHARE));
    let ttft = share(of.ttft_above).filter(|_| written.ttft_above.is_some());
    let slow = share(of.tps_below).filter(|_| written.tps_below.is_some());
    let all = [
        (Metric::Tps, Some(of.tps.unwrap_or(Margins::TPS))),
        (Metric::TtftAbove, ttft),
        (Metric::TpsBelow, slow),
        (Metric::Cost, of.cost),
        (Metric::Failures, share(of.failures)),
        (Metric::Truncated, share(of.truncated)),
        (Metric::Refused, share(of.refused)),
        (Metric::Empty, share(of.empty)),
        (Metric::CutOff, of.cut_off),
        (Metric::InvalidToolCalls, of.invalid_tool_calls),
    ]
    .into_iter();
    Margins(
        all.filter_map(|(metric, margin)| Some((metric, margin?)))
            .collect(),
    )
}

fn scores(written: &file::Gate, problems: &mut Problems<'_>) -> Vec<(String, f64)> {
    let names = written.scores.iter().map(|score| &score.name);
    check_scores(names, problems);
    let scores = written.scores.iter();
    scores
        .map(|score| (score.name.get_ref().clone(), score.not_worse_by))
        .collect()
}

/// Reports names that no score can have, and names that are given twice.
pub(super) fn check_scores<'a>(
    names: impl Iterator<Item = &'a Spanned<String>>,
    problems: &mut Problems<'_>,
) {
    let mut seen = HashSet::new();
    for name in names {
        if !tokengauge_core::score::is_name(name.get_ref()) {
            let reason = "the name of a score must have 1 to 64 of the characters a-z, 0-9, `_`, `.` and `-`";
            problems.at(name, reason);
        }
        if !seen.insert(name.get_ref()) {
            problems.at(
                name,
                format!("the score `{}` is listed twice", name.get_ref()),
            );
        }
    }
}

/// Resolves objectives by name. They must judge single calls.
fn objectives(
    names: &[Spanned<String>],
    slos: &[Arc<Objective>],
    problems: &mut Problems<'_>,
) -> Vec<Arc<Objective>> {
    let mut found = Vec::new();
    for name in names {
        let wanted = name.get_ref();
        let Some(slo) = slos.iter().find(|slo| *slo.name == **wanted) else {
            problems.at(name, format!("there is no [[slo]] named `{wanted}`"));
            continue;
        };
        let judgement = &slo.judgement;
        if judgement.slice.is_some() || matches!(judgement.sli, Sli::Throughput(_)) {
            let reason = format!(
                "`{wanted}` judges slices of time; a gate needs an objective that judges each call"
            );
            problems.at(name, reason);
        }
        found.push(Arc::clone(slo));
    }
    found
}
