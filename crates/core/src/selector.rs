//! Selects calls by the names that they have.

use crate::pattern::Pattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which calls count. Absent parts match all.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// The workload.
    pub workload: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The model that answered, else the one asked for.
    pub model: Option<Pattern>,
    /// The agent, by its own name.
    pub agent: Option<Pattern>,
    /// The team that pays.
    #[serde(default)]
    pub team: Option<String>,
    /// The cost center.
    #[serde(default)]
    pub cost_center: Option<String>,
    /// The tenant.
    #[serde(default)]
    pub tenant: Option<String>,
}

impl Selector {
    /// Whether a call with these names counts.
    pub fn matches(&self, call: &Names<'_>) -> bool {
        let is = |wanted: &Option<String>, name: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| name == Some(wanted))
        };
        let like = |wanted: &Option<Pattern>, name: Option<&str>| {
            let wanted = wanted.as_ref();
            wanted.is_none_or(|wanted| name.is_some_and(|name| wanted.matches(name)))
        };
        is(&self.workload, call.workload)
            && is(&self.route, Some(call.route))
            && is(&self.upstream, Some(call.upstream))
            && like(&self.model, call.model)
            && like(&self.agent, call.agent)
            && is(&self.team, call.team)
            && is(&self.cost_center, call.cost_center)
            && is(&self.tenant, call.tenant)
    }
}

/// The names that a selector looks at.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The workload.
    pub workload: Option<&'a str>,
    /// The route.
    pub route: &'a str,
    /// The upstream.
    pub upstream: &'a str,
    /// The model that answered, else the one asked for.
    pub model: Option<&'a str>,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The team that pays.
    pub team: Option<&'a str>,
    /// The cost center.
    pub cost_center: Option<&'a str>,
    /// The tenant.
    pub tenant: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_without_parts_takes_every_call_and_each_part_narrows() {
        let call = Names {
            workload: Some("chat"),
            route: "openai",
            upstream: "openai",
            model: Some("gpt-4.1-mini"),
            agent: None,
            team: Some("search"),
            cost_center: None,
            tenant: None,
        };
        let selector = Selector::default();
        assert!(selector.matches(&call));
        let narrowed = |change: fn(&mut Selector)| {
            let mut selector = Selector::default();
            change(&mut selector);
            selector.matches(&call)
        };
        assert!(narrowed(|s| s.workload = Some("chat".into())));
        assert!(!narrowed(|s| s.workload = Some("voice".into())));
        assert!(!narrowed(|s| s.route = Some("other".into())));
        assert!(narrowed(|s| s.model = Some(Pattern::new("gpt-*"))));
        assert!(!narrowed(|s| s.model = Some(Pattern::new("o3"))));
        assert!(!narrowed(|s| s.agent = Some(Pattern::new("*"))), "no agent");
        assert!(narrowed(|s| s.team = Some("search".into())));
        assert!(!narrowed(|s| s.tenant = Some("search".into())), "no tenant");
    }
}
