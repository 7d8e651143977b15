//! Assigns calls to workloads. Headers are matched when the call begins, because they are not kept.
//! The model is matched when it is known.

use super::headers::HeaderAttribution;
use http::{HeaderName, HeaderValue};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokengauge_core::observer::CallStart;
use tokengauge_core::pattern::Pattern;

/// A group of calls. The first workload that matches names the group of a call. A route's
/// `workload` applies to calls that match none.
#[derive(Clone, Debug)]
pub struct Workload {
    pub name: Arc<str>,
    pub route: Option<Arc<str>>,
    pub model: Option<Pattern>,
    /// The name that the agent gives itself.
    pub agent: Option<Pattern>,
    /// Headers that must be present with exactly these values.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub stall_threshold: Option<Duration>,
}

#[derive(Debug)]
pub struct WorkloadAssignment {
    /// One bit for each workload whose headers, route and agent match.
    candidates: u64,
    fallback: Option<Arc<str>>,
    found: OnceLock<Option<u8>>,
}

impl WorkloadAssignment {
    pub fn new(
        all: &[Workload],
        start: &CallStart<'_>,
        attribution: Option<&HeaderAttribution>,
    ) -> WorkloadAssignment {
        let agent = attribution.and_then(HeaderAttribution::agent);
        let mut candidates = 0;
        for (at, workload) in all.iter().enumerate().take(u64::BITS as usize) {
            if possible(workload, start, agent) {
                candidates |= 1 << at;
            }
        }
        WorkloadAssignment {
            candidates,
            fallback: start.workload.cloned(),
            found: OnceLock::new(),
        }
    }

    /// The name for the requested model. Once a model has decided it, it does not change.
    pub fn name<'a>(
        &'a self,
        all: &'a [Workload],
        model: impl FnOnce() -> Option<String>,
    ) -> Option<&'a Arc<str>> {
        match self.found(all, model) {
            Some(workload) => Some(&workload.name),
            None => self.fallback.as_ref(),
        }
    }

    /// The names for a call that requests each of `models`; `None` if an unknown model decides.
    pub(crate) fn names(&self, all: &[Workload], models: Option<&[String]>) -> Option<Vec<String>> {
        if models.is_none() && self.depends_on_model(all) {
            return None;
        }
        let first = models.and_then(|models| models.first());
        let own = self.name(all, || first.cloned());
        let mut names: Vec<_> = own.map(|name| name.to_string()).into_iter().collect();
        for model in models.unwrap_or_default().iter().skip(1) {
            let other = self.name_with(all, model);
            let other = other.filter(|other| !names.iter().any(|name| **name == ***other));
            names.extend(other.map(|name| name.to_string()));
        }
        Some(names)
    }

    /// The name if `model` were requested, regardless of an earlier decision.
    fn name_with<'a>(&'a self, all: &'a [Workload], model: &str) -> Option<&'a Arc<str>> {
        match self.first(all, Some(model)) {
            Some(at) => Some(&all[usize::from(at)].name),
            None => self.fallback.as_ref(),
        }
    }

    fn depends_on_model(&self, all: &[Workload]) -> bool {
        let mut candidates = (0..u64::BITS).zip(all);
        let of_model = |(at, workload): (u32, &Workload)| {
            self.candidates & (1 << at) != 0 && workload.model.is_some()
        };
        candidates.any(of_model)
    }

    pub fn stall_threshold(
        &self,
        all: &[Workload],
        model: impl FnOnce() -> Option<String>,
    ) -> Option<Duration> {
        self.found(all, model)?.stall_threshold
    }

    fn found<'a>(
        &self,
        all: &'a [Workload],
        model: impl FnOnce() -> Option<String>,
    ) -> Option<&'a Workload> {
        if self.candidates == 0 {
            return None;
        }
        let found = match self.found.get() {
            Some(found) => *found,
            None => {
                let model = model();
                let found = self.first(all, model.as_deref());
                if model.is_some() {
                    let _ = self.found.set(found);
                }
                found
            }
        };
        found.map(|at| &all[usize::from(at)])
    }

    fn first(&self, all: &[Workload], model: Option<&str>) -> Option<u8> {
        let fits = |workload: &Workload| {
            let wanted = workload.model.as_ref();
            wanted.is_none_or(|wanted| model.is_some_and(|model| wanted.matches(model)))
        };
        let mut all = (0..u64::BITS as u8).zip(all);
        let first = all.find(|(at, workload)| self.candidates & (1 << at) != 0 && fits(workload));
        first.map(|(at, _)| at)
    }
}

fn possible(workload: &Workload, start: &CallStart<'_>, agent: Option<&str>) -> bool {
    let route = workload.route.as_deref();
    route.is_none_or(|route| route == &**start.route)
        && workload
            .agent
            .as_ref()
            .is_none_or(|wanted| agent.is_some_and(|agent| wanted.matches(agent)))
        && workload.headers.iter().all(|(name, value)| {
            let mut values = start.headers.get_all(name).iter();
            values.any(|found| found == value)
        })
}

#[cfg(test)]
mod tests {
    use super::super::rules::Rules;
    use super::*;
    use http::{HeaderMap, Method, Uri};
    use std::time::{Instant, SystemTime};

    fn workload(name: &str) -> Workload {
        Workload {
            name: name.into(),
            route: None,
            model: None,
            agent: None,
            headers: Vec::new(),
            stall_threshold: None,
        }
    }

    fn assigned(all: &[Workload], agent: &str, header: &str) -> WorkloadAssignment {
        let mut headers = HeaderMap::new();
        headers.insert("x-kind", header.parse().expect("a header value"));
        headers.insert("user-agent", agent.parse().expect("a header value"));
        let attribution = HeaderAttribution::of(&headers, &Uri::default(), None, &Rules::default());
        let fallback = "of-the-route".into();
        let start = CallStart {
            received: Instant::now(),
            started_at: SystemTime::UNIX_EPOCH,
            method: &Method::POST,
            uri: &Uri::from_static("/"),
            headers: &headers,
            peer: None,
            port: None,
            route: &"r".into(),
            upstream: &"u".into(),
            dialect: None,
            workload: Some(&fallback),
            inject_usage: false,
            variant: None,
        };
        WorkloadAssignment::new(all, &start, attribution.as_deref())
    }

    #[test]
    fn the_first_that_matches_wins_and_the_routes_own_is_for_the_rest() {
        let by_header = Workload {
            headers: vec![("x-kind".parse().unwrap(), "live".parse().unwrap())],
            ..workload("voice")
        };
        let by_model = Workload {
            model: Some(Pattern::new("big-*")),
            ..workload("batch")
        };
        let by_agent = Workload {
            agent: Some(Pattern::new("codex*")),
            route: Some("r".into()),
            ..workload("agent")
        };
        let elsewhere = Workload {
            route: Some("other".into()),
            ..workload("elsewhere")
        };
        let all = [elsewhere, by_header, by_model, by_agent];
        let name = |agent, header, model: &str| {
            let assigned = assigned(&all, agent, header);
            let name = assigned.name(&all, || Some(model.to_owned()));
            name.map(|name| name.to_string())
        };
        assert_eq!(name("codex/1", "live", "big-1").as_deref(), Some("voice"));
        assert_eq!(name("codex/1", "x", "big-1").as_deref(), Some("batch"));
        assert_eq!(name("codex/1", "x", "small").as_deref(), Some("agent"));
        assert_eq!(
            name("curl/8", "x", "small").as_deref(),
            Some("of-the-route")
        );
    }

    #[test]
    fn what_a_model_decides_waits_for_it_and_then_stays() {
        let all = [Workload {
            model: Some(Pattern::new("big-*")),
            stall_threshold: Some(Duration::from_millis(250)),
            ..workload("batch")
        }];
        let assigned = assigned(&all, "curl/8", "x");
        assert_eq!(
            assigned.name(&all, || None).map(|name| &**name),
            Some("of-the-route")
        );
        let big = || Some("big-1".to_owned());
        assert_eq!(
            assigned.stall_threshold(&all, big),
            Some(Duration::from_millis(250))
        );
        assert_eq!(
            assigned.name(&all, || None).map(|name| &**name),
            Some("batch")
        );
    }
}
