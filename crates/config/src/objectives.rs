//! `[[workload]]` and `[[slo]]`: from the file's tables to settings.

use super::common::headers;
use super::file;
use super::file::DEFAULT_MIN_EVENTS;
use super::file::DEFAULT_MIN_STREAMS;
use super::file::DEFAULT_OBJECTIVE;
use super::file::DEFAULT_SLICE_TARGET;
use super::file::DEFAULT_WINDOW;
use super::problems::{Problems, check_label};
use super::scalar::Window;
use super::spanned::Spanned;
use super::unreachable;
use super::*;
use std::collections::HashSet;
use tokengauge_meter::INTER_TOKEN_BOUNDS;
use tokengauge_slo::{
    Judgement, MAX_OBJECTIVES, MONTH, PRESETS, Preset, Selector, Sli, Slice, Weight,
};

const DAY: Duration = Duration::from_secs(24 * 3600);

type Threshold = fn(f64) -> Sli;

pub(super) fn workloads(
    written: Vec<file::Workload>,
    routes: &[Arc<Route>],
    problems: &mut Problems<'_>,
) -> Vec<Workload> {
    let mut all = Vec::new();
    let mut places = Vec::new();
    for written in written {
        check_label(&written.name, problems);
        check_route(written.route.as_ref(), routes, problems);
        let place = written.name.clone();
        let workload = Workload {
            name: written.name.into_inner().into(),
            route: written.route.map(|route| route.into_inner().into()),
            model: written.model.map(Pattern::new),
            agent: written.agent.map(Pattern::new),
            headers: headers(written.headers, problems),
            stall_threshold: written.stall_threshold.map(|span| span.0),
        };
        unreachable::workload(&workload, &place, &all, &places, problems);
        all.push(workload);
        places.push(place);
    }
    all
}

pub(super) fn check_route(
    route: Option<&Spanned<String>>,
    routes: &[Arc<Route>],
    problems: &mut Problems<'_>,
) {
    if let Some(route) = route
        && !routes.iter().any(|known| *known.name == **route.get_ref())
    {
        problems.at(
            route,
            format!("there is no route named `{}`", route.get_ref()),
        );
    }
}

pub(super) fn check_workload(
    workload: Option<&Spanned<String>>,
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) {
    if let Some(workload) = workload {
        let wanted = workload.get_ref().as_str();
        let known = measure.workloads.iter().any(|known| &*known.name == wanted)
            || routes
                .iter()
                .any(|route| route.workload.as_deref() == Some(wanted));
        if !known {
            let reason = format!(
                "there is no [[workload]] named `{wanted}`, and no route has this `workload`"
            );
            problems.at(workload, reason);
        }
    }
}

pub(super) fn slos(
    written: Vec<Spanned<file::Slo>>,
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Vec<Arc<Objective>> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for spanned in written {
        let place = place(&spanned);
        for objective in slo(spanned, &place, routes, measure, problems) {
            if !names.insert(objective.name.clone()) {
                let reason = format!(
                    "there are two objectives named `{}`; give each its own `name`",
                    objective.name
                );
                problems.at(&place, reason);
            }
            if all.len() == MAX_OBJECTIVES {
                problems.at(
                    &place,
                    format!("there can be at most {MAX_OBJECTIVES} objectives"),
                );
            }
            all.push(Arc::new(objective));
        }
    }
    all
}

/// The location of problems of the whole objective: its name, its preset or its table, in this order.
fn place(spanned: &Spanned<file::Slo>) -> Spanned<()> {
    let slo = spanned.get_ref();
    let named = slo.name.as_ref().or(slo.preset.as_ref());
    Spanned::new(named.map_or(spanned.span(), Spanned::span), ())
}

/// Resolves an `[[slo]]` table to one objective or to the objectives of its preset.
fn slo(
    spanned: Spanned<file::Slo>,
    place: &Spanned<()>,
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Vec<Objective> {
    let written = spanned.into_inner();
    if let Some(name) = &written.name {
        check_label(name, problems);
    }
    if let Some(share) = written
        .objective
        .as_ref()
        .filter(|share| *share.get_ref() == 1.0)
    {
        let reason = "has no error budget: one bad call is an outage until it leaves the window; 0.999 allows one in 1000";
        problems.warn(share, reason);
    }
    let select = selector(&written.select, routes, measure, problems);
    let slis = indicators(&written, problems);
    match (&written.preset, slis.as_slice()) {
        (Some(preset), []) => of_preset(&written, preset, &select, problems),
        (Some(preset), _) => {
            problems.at(preset, "a preset sets the indicators; remove the others");
            Vec::new()
        }
        (None, [sli]) => {
            let Some(name) = &written.name else {
                problems.at(place, "an objective without a preset needs a `name`");
                return Vec::new();
            };
            let name = name.get_ref().clone();
            vec![objective(&written, name, *sli, select, problems)]
        }
        (None, []) => {
            problems.at(
                place,
                "has no indicator; add one such as `ttft.at_most = \"500ms\"`, `output_tps.at_least = 30` or `availability = true`",
            );
            Vec::new()
        }
        (None, _) => {
            problems.at(place, "has several indicators; write an [[slo]] for each");
            Vec::new()
        }
    }
}

fn of_preset(
    written: &file::Slo,
    preset: &Spanned<String>,
    select: &Selector,
    problems: &mut Problems<'_>,
) -> Vec<Objective> {
    let Some(found) = Preset::named(preset.get_ref()) else {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        let reason = format!("is not a preset; the presets are {}", names.join(", "));
        problems.at(preset, reason);
        return Vec::new();
    };
    let base = written.name.as_ref().unwrap_or(preset).get_ref();
    let all = found.slis.iter().map(|(end, sli)| {
        objective(
            written,
            format!("{base}-{end}"),
            *sli,
            select.clone(),
            problems,
        )
    });
    all.collect()
}

fn objective(
    written: &file::Slo,
    name: String,
    sli: Sli,
    select: Selector,
    problems: &mut Problems<'_>,
) -> Objective {
    let window = match written.window {
        None => DEFAULT_WINDOW,
        Some(Window::Month) => MONTH,
        Some(Window::Span(span)) => span,
    };
    let slice_target = written.slice_target.as_ref();
    let slice_target = slice_target.map_or(DEFAULT_SLICE_TARGET, |target| *target.get_ref());
    Objective {
        name: name.into(),
        objective: written
            .objective
            .as_ref()
            .map_or(DEFAULT_OBJECTIVE, |share| *share.get_ref()),
        window,
        calendar_month: matches!(written.window, Some(Window::Month)),
        judgement: Judgement {
            sli,
            select,
            weight: weight(written, sli, problems),
            min_output_tokens: written.min_output_tokens.unwrap_or(0),
            min_streams: written.throughput.as_ref().map_or(0, |throughput| {
                let few = throughput.get_ref().min_streams;
                few.unwrap_or(DEFAULT_MIN_STREAMS)
            }),
            warm_up: written.warm_up.unwrap_or(true),
            slice: slice(written, slice_target, problems),
        },
        min_events: written.min_events.unwrap_or(DEFAULT_MIN_EVENTS),
        description: written.description.clone(),
        runbook_url: written.runbook_url.clone(),
        dashboard_url: written.dashboard_url.clone(),
    }
}

/// `token` is allowed only for indicators with a value per token.
fn weight(written: &file::Slo, sli: Sli, problems: &mut Problems<'_>) -> Weight {
    let Some(weight) = &written.weight else {
        return Weight::Request;
    };
    if *weight.get_ref() == Weight::Token {
        match sli {
            Sli::OutputTps(_) => {}
            Sli::InterTokenLatency(most) if INTER_TOKEN_BOUNDS.contains(&most) => {}
            Sli::InterTokenLatency(_) => {
                let bounds: Vec<String> = INTER_TOKEN_BOUNDS.iter().map(f64::to_string).collect();
                let reason = format!(
                    "with `weight = \"token\"`, the threshold must be one of {} seconds",
                    bounds.join(", ")
                );
                problems.at(weight, reason);
            }
            _ => problems.at(
                weight,
                "only `output_tps` and `inter_token_latency` can be weighted by token",
            ),
        }
    }
    *weight.get_ref()
}

fn slice(written: &file::Slo, target: f64, problems: &mut Problems<'_>) -> Option<Slice> {
    let Some(slice) = &written.slice else {
        if let Some(target) = &written.slice_target {
            problems.at(target, "needs a `slice`, such as \"5m\"");
        }
        return None;
    };
    let every = slice.get_ref().0;
    let whole = every.as_secs().is_multiple_of(60) && every.subsec_nanos() == 0;
    if !whole || every.is_zero() || every > DAY {
        problems.at(slice, "must be whole minutes, at most a day");
    }
    Some(Slice { every, target })
}

pub(super) fn selector(
    written: &file::Select,
    routes: &[Arc<Route>],
    measure: &Measure,
    problems: &mut Problems<'_>,
) -> Selector {
    check_route(written.route.as_ref(), routes, problems);
    if let Some(upstream) = &written.upstream
        && !routes
            .iter()
            .flat_map(|route| route.upstreams())
            .any(|known| *known.name == **upstream.get_ref())
    {
        let reason = format!(
            "no route leads to an upstream named `{}`",
            upstream.get_ref()
        );
        problems.at(upstream, reason);
    }
    check_workload(written.workload.as_ref(), routes, measure, problems);
    let text =
        |written: &Option<Spanned<String>>| written.as_ref().map(|text| text.get_ref().clone());
    Selector {
        workload: text(&written.workload),
        route: text(&written.route),
        upstream: text(&written.upstream),
        model: written.model.as_deref().map(Pattern::new),
        agent: written.agent.as_deref().map(Pattern::new),
        team: written.team.clone(),
        cost_center: written.cost_center.clone(),
        tenant: written.tenant.clone(),
    }
}

/// The indicator for the throughput of an upstream per minute.
fn of_upstream(
    written: &file::Slo,
    place: &Spanned<file::Throughput>,
    problems: &mut Problems<'_>,
) {
    if written.select.upstream.is_none() {
        let reason = "is measured per upstream; set `select.upstream`";
        problems.at(place, reason);
    }
    let select = &written.select;
    for (name, is_set) in [
        ("agent", select.agent.is_some()),
        ("team", select.team.is_some()),
        ("cost_center", select.cost_center.is_some()),
        ("tenant", select.tenant.is_some()),
    ] {
        if is_set {
            let kind = name.replace('_', " ");
            let reason = format!("is not measured per {kind}; remove `select.{name}`");
            problems.at(place, reason);
        }
    }
    if let Some(slice) = &written.slice {
        let reason = "does not apply to `throughput`, which is evaluated per minute";
        problems.at(slice, reason);
    }
}

fn indicators(written: &file::Slo, problems: &mut Problems<'_>) -> Vec<Sli> {
    let mut found = Vec::new();
    if let Some(availability) = &written.availability {
        if !availability.get_ref() {
            problems.at(availability, "must be `true` or omitted");
        }
        found.push(Sli::Availability);
    }
    let longest: [(_, Threshold); 5] = [
        (written.ttft, Sli::Ttft),
        (written.time_to_first_answer, Sli::TimeToFirstAnswer),
        (written.duration, Sli::Duration),
        (written.inter_token_latency, Sli::InterTokenLatency),
        (written.longest_gap, Sli::LongestGap),
    ];
    let longest = longest.into_iter().filter_map(|(threshold, sli)| {
        threshold.map(|threshold: file::Longest| sli(threshold.at_most.0.as_secs_f64()))
    });
    found.extend(longest);
    let output = written.output_tps.map(|tps| Sli::OutputTps(tps.at_least));
    let total = written.total_tps.map(|tps| Sli::TotalTps(tps.at_least));
    found.extend(output.into_iter().chain(total));
    if let Some(throughput) = &written.throughput {
        of_upstream(written, throughput, problems);
        found.push(Sli::Throughput(throughput.get_ref().at_least));
    }
    found.extend(written.cost_usd.map(|cost| Sli::CostUsd(cost.at_most)));
    found.extend(written.stalls.map(|stalls| Sli::Stalls(stalls.at_most)));
    found
}
