use super::file;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use super::*;
use std::collections::{HashMap, HashSet};
use tokengauge_core::call::Dialect;
use tokengauge_core::experiment::{AssignedUnit, SplitBy};
use tokengauge_experiments::{self as experiments, DEFAULT_ALPHA, DEFAULT_MIN_UNITS, Rules};
use tokengauge_proxy::settings::{Arm, Split};
use tokengauge_store::query::{Threshold, UnitKind};

/// Resolves the experiments, in the order of the file, and adds their arms to the routes.
pub(super) fn experiments(
    written: Vec<Spanned<file::Experiment>>,
    upstreams: &HashMap<String, Arc<Upstream>>,
    routes: &mut [Arc<Route>],
    problems: &mut Problems<'_>,
) -> Vec<experiments::Experiment> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for spanned in written {
        let written = spanned.into_inner();
        check_label(&written.name, problems);
        let name = written.name.get_ref();
        if !names.insert(name.clone()) {
            let reason =
                format!("there are two experiments named `{name}`; give each its own `name`");
            problems.at(&written.name, reason);
        }
        let arms = arms(&written, upstreams, problems);
        let by = split_by(&written, problems);
        if let Some(arms) = &arms {
            split(&written, by, arms, routes, problems);
        }
        all.push(experiments::Experiment {
            name: name.clone(),
            arms: arms.unwrap_or_default().iter().map(weighed).collect(),
            unit: unit_kind(by),
            rules: rules(&written, problems),
        });
    }
    all
}

fn weighed(arm: &Arm) -> experiments::Arm {
    experiments::Arm {
        name: arm.name.to_string(),
        weight: arm.weight,
    }
}

fn unit_kind(by: SplitBy) -> UnitKind {
    match by {
        SplitBy::Block(length) => UnitKind::Block(length),
        SplitBy::Unit(AssignedUnit::Session) => UnitKind::Session,
        SplitBy::Unit(AssignedUnit::Agent) => UnitKind::Agent,
        SplitBy::Unit(AssignedUnit::User) => UnitKind::User,
    }
}

fn rules(written: &file::Experiment, problems: &mut Problems<'_>) -> Rules {
    super::gate::check_scores(written.scores.iter(), problems);
    let scores = written.scores.iter();
    let default = Rules::default();
    let ttft = written.ttft_above.as_ref();
    let settled = written.settled_after.as_ref();
    Rules {
        alpha: written.alpha.unwrap_or(DEFAULT_ALPHA),
        ttft_above: ttft.map(|span| Threshold::near(span.0.as_secs_f64())),
        tps_below: written.tps_below.map(Threshold::near),
        min_units: written.min_units.unwrap_or(DEFAULT_MIN_UNITS),
        settled_after: settled.map_or(default.settled_after, |span| span.0),
        scores: scores.map(|name| name.get_ref().clone()).collect(),
    }
}

fn split_by(written: &file::Experiment, problems: &mut Problems<'_>) -> SplitBy {
    let Some(switchback) = &written.switchback else {
        let unit = written.unit.as_ref();
        return SplitBy::Unit(unit.map_or_else(AssignedUnit::default, |unit| *unit.get_ref()));
    };
    if written.unit.is_some() {
        problems.at(
            switchback,
            "give either `switchback` or `unit`, not both: the units of a switchback are blocks of time",
        );
    }
    let length = switchback.get_ref().0;
    if length.subsec_nanos() != 0 {
        problems.at(switchback, "must be a whole number of seconds");
    }
    if written.arms.is_none() {
        problems.at(
            switchback,
            "needs `arms`: without them no block is assigned",
        );
    }
    SplitBy::Block(length)
}

fn arms(
    written: &file::Experiment,
    upstreams: &HashMap<String, Arc<Upstream>>,
    problems: &mut Problems<'_>,
) -> Option<Vec<Arm>> {
    let Some(spanned) = &written.arms else {
        if let Some(route) = &written.route {
            problems.at(route, "needs `arms`: without them nothing is split");
        }
        return None;
    };
    let mut names = HashSet::new();
    let mut arms = Vec::new();
    if spanned.get_ref().len() < 2 {
        problems.at(spanned, "needs at least two arms to compare");
    }
    for written in spanned.get_ref() {
        let name = written.name.get_ref();
        check_label(&written.name, problems);
        if name.contains('/') {
            // The header of agents separates experiment and variant with a slash.
            problems.at(&written.name, "the name of an arm may not have a `/`");
        }
        if !names.insert(name) {
            problems.at(
                &written.name,
                format!("there are two arms named `{name}`; give each its own `name`"),
            );
        }
        let weight = written
            .weight
            .as_ref()
            .map_or(1.0, |weight| *weight.get_ref());
        if let Some(written) = &written.weight
            && !(weight > 0.0 && weight <= 1e6)
        {
            let reason = format!(
                "arm `{name}`: `weight` must be above 0 and at most 1000000; remove an arm that should get no calls"
            );
            problems.at(written, reason);
        }
        let wanted = written.upstream.get_ref();
        match upstreams.get(wanted) {
            Some(upstream) => arms.push(Arm {
                name: name.as_str().into(),
                weight,
                upstream: Arc::clone(upstream),
            }),
            None => problems.at(
                &written.upstream,
                format!("arm `{name}`: there is no upstream named `{wanted}`"),
            ),
        }
    }
    Some(arms)
}

fn split(
    written: &file::Experiment,
    by: SplitBy,
    arms: &[Arm],
    routes: &mut [Arc<Route>],
    problems: &mut Problems<'_>,
) {
    let Some(wanted) = &written.route else {
        problems.at(
            &written.name,
            "needs the `route` whose calls are split among its arms",
        );
        return;
    };
    let mut named = routes.iter();
    let Some(index) = named.position(|route| *route.name == **wanted.get_ref()) else {
        let reason = format!("there is no route named `{}`", wanted.get_ref());
        problems.at(wanted, reason);
        return;
    };
    if let Some(reason) = unequal_dialects(arms, &routes[index], routes) {
        problems.at(wanted, reason);
    }
    let route = &mut routes[index];
    if let Some(other) = &route.split {
        let reason = format!(
            "the experiment `{}` already splits the calls of this route",
            other.experiment
        );
        problems.at(wanted, reason);
    }
    let experiment: Arc<str> = written.name.get_ref().as_str().into();
    let salt = written.salt.clone();
    Arc::make_mut(route).split = Some(Arc::new(Split {
        salt: salt.unwrap_or_else(|| experiment.to_string()),
        experiment,
        by,
        arms: arms.to_vec(),
    }));
}

/// Says why the arms do not behave alike: the routes that lead to their upstreams use different dialects.
fn unequal_dialects(arms: &[Arm], route: &Route, routes: &[Arc<Route>]) -> Option<String> {
    let of_arm = |arm: &Arm| -> Vec<Dialect> {
        let to_it = routes
            .iter()
            .filter(|route| *route.upstream.name == *arm.upstream.name);
        to_it.filter_map(|route| route.dialect).collect()
    };
    let named = |dialects: &[Dialect]| {
        let words = dialects.iter().map(|dialect| serde_json::json!(dialect));
        let words = words.filter_map(|word| word.as_str().map(str::to_owned));
        words.collect::<Vec<_>>().join(", ")
    };
    let mut wanted: Vec<Dialect> = route.dialect.into_iter().collect();
    for arm in arms {
        let spoken = of_arm(arm);
        if wanted.is_empty() {
            wanted = spoken;
        } else if !spoken.is_empty() && !spoken.iter().any(|dialect| wanted.contains(dialect)) {
            return Some(format!(
                "its arms speak different dialects: `{}` is routed to as {}, the others as {}",
                arm.name,
                named(&spoken),
                named(&wanted)
            ));
        }
    }
    None
}
