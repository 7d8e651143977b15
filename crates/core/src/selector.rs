//! Selects calls by their names.

use crate::pattern::Pattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Selects calls. Absent fields match all calls.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Name of the workload.
    pub workload: Option<String>,
    /// Name of the route.
    pub route: Option<String>,
    /// Name of the upstream.
    pub upstream: Option<String>,
    /// Model that responded, otherwise the model that was requested.
    pub model: Option<Pattern>,
    /// Name of the agent.
    pub agent: Option<Pattern>,
    /// Team that pays for the call.
    #[serde(default)]
    pub team: Option<String>,
    /// Cost center that pays for the call.
    #[serde(default)]
    pub cost_center: Option<String>,
    /// Tenant for whom the call is made.
    #[serde(default)]
    pub tenant: Option<String>,
}

impl Selector {
    /// Whether the selector selects a call with these names.
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

/// The names of a call that a selector compares.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Name of the workload.
    pub workload: Option<&'a str>,
    /// Name of the route.
    pub route: &'a str,
    /// Name of the upstream.
    pub upstream: &'a str,
    /// Model that responded, otherwise the model that was requested.
    pub model: Option<&'a str>,
    /// Name of the agent.
    pub agent: Option<&'a str>,
    /// Team that pays for the call.
    pub team: Option<&'a str>,
    /// Cost center that pays for the call.
    pub cost_center: Option<&'a str>,
    /// Tenant for whom the call is made.
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
