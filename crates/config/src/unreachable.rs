//! Warns of routes and workloads that receive no calls, because an earlier one matches all of them.

use super::problems::Problems;
use super::spanned::Spanned;
use super::*;

type Header = (HeaderName, HeaderValue);

/// Warns if one of the `earlier` routes matches every call of `route`.
pub(super) fn route(
    route: &Route,
    place: &Spanned<String>,
    earlier: &[Arc<Route>],
    places: &[Spanned<String>],
    problems: &mut Problems<'_>,
) {
    let (wanted, mut earlier) = (&route.matches, earlier.iter().zip(places));
    if let Some((other, at)) = earlier.find(|(other, _)| covers_route(&other.matches, wanted)) {
        let line = problems.line_of(at);
        let same = covers_route(wanted, &other.matches);
        let why = if same {
            "matches the same calls"
        } else {
            "matches all calls of this route"
        };
        let name = &other.name;
        problems.warn(
            place,
            format!(
                "this route gets no calls: route `{name}` in line {line} {why} and is tried first"
            ),
        );
    }
}

fn covers_route(one: &Matches, other: &Matches) -> bool {
    let rest = other.path_prefix.strip_prefix(one.path_prefix.as_str());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && (one.host.is_none() || one.host == other.host)
        && covers_headers(&one.headers, &other.headers)
}

/// Warns if one of the `earlier` workloads matches every call of `workload`.
pub(super) fn workload(
    workload: &Workload,
    place: &Spanned<String>,
    earlier: &[Workload],
    places: &[Spanned<String>],
    problems: &mut Problems<'_>,
) {
    let mut earlier = earlier.iter().zip(places);
    if let Some((other, at)) = earlier.find(|(other, _)| covers_workload(other, workload)) {
        let (name, line) = (&other.name, problems.line_of(at));
        problems.warn(
            place,
            format!("this workload gets no calls: workload `{name}` in line {line} matches all its calls and is tried first"),
        );
    }
}

fn covers_workload(one: &Workload, other: &Workload) -> bool {
    fn covers<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
        one.is_none() || one == other
    }
    covers(&one.route, &other.route)
        && covers(&one.model, &other.model)
        && covers(&one.agent, &other.agent)
        && covers_headers(&one.headers, &other.headers)
}

fn covers_headers(one: &[Header], other: &[Header]) -> bool {
    one.iter().all(|header| other.contains(header))
}
