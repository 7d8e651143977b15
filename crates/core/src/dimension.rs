//! Dimensions, by which calls are filtered and grouped. The table below defines each one once. The
//! columns of the ledger, the parameters of the API, the options of commands, the lists on the page
//! and the span attributes are derived from it.

use crate::call::CallRecord;
use crate::lengths::{output_length, prompt_length};
use std::borrow::Cow;

/// The separator between tool names in a record. Tool names do not contain it.
pub const TOOLS_BETWEEN: char = '+';

/// Where the ledger stores a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A column of `series`, for dimensions with few values. All aggregates over time include it.
    Series,
    /// A column of `series`, for names that anybody can invent. If there are too many series,
    /// further names become `other`.
    OpenSeries,
    /// A column of `calls` and of `daily_spending`, for dimensions with many values. Only the daily
    /// sums of tokens and costs include it.
    Spending,
    /// Not stored: derived from a count when a question is answered.
    Class,
}

/// A row of the table of dimensions.
#[derive(Debug)]
pub struct Definition {
    /// The dimension.
    pub dimension: Dimension,
    /// The description for people: a sentence without a full stop.
    pub about: &'static str,
    /// The name in the API, in commands (with `-` for `_`) and in the JSON of reports.
    pub name: &'static str,
    /// The title of the list of values on the page. `None` if the page has no list.
    pub title: Option<&'static str>,
    /// Where the ledger stores the dimension.
    pub kept: Kept,
    /// Whether calls can be filtered by a value.
    pub filter: bool,
    /// The span attribute with the value.
    pub attribute: Option<&'static str>,
    /// Returns the value of a call.
    pub value: fn(&CallRecord) -> Option<Cow<'_, str>>,
}

macro_rules! dimensions {
    ($(#[doc = $about:literal] $dimension:ident { $($field:ident: $is:expr,)* })*) => {
        /// A property by which calls are filtered and grouped.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Dimension {
            #[default]
            $(#[doc = $about] $dimension,)*
        }

        /// Every dimension, in the order of [`Dimension`].
        pub const DIMENSIONS: &[Definition] = &[$(Definition {
            dimension: Dimension::$dimension,
            about: $about.trim_ascii(),
            $($field: $is,)*
        }),*];
    };
}

dimensions! {
    /// The model that responded, otherwise the model that was requested
    Model {
        name: "model",
        title: Some("Models"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: None,
        value: |call| model_of(call).map(Cow::Borrowed),
    }
    /// The workload that the call belongs to
    Workload {
        name: "workload",
        title: Some("Workloads"),
        kept: Kept::Series,
        filter: true,
        attribute: Some("tokengauge.workload"),
        value: |call| name(&call.workload),
    }
    /// The upstream that the call went to
    Upstream {
        name: "upstream",
        title: Some("Upstreams"),
        kept: Kept::Series,
        filter: true,
        attribute: Some("tokengauge.upstream"),
        value: |call| Some(Cow::Borrowed(&call.upstream)),
    }
    /// The route that matched the request
    Route {
        name: "route",
        title: Some("Routes"),
        kept: Kept::Series,
        filter: true,
        attribute: Some("tokengauge.route"),
        value: |call| Some(Cow::Borrowed(&call.route)),
    }
    /// The agent that made the call
    Agent {
        name: "agent",
        title: Some("Agents"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: Some("tokengauge.agent"),
        value: |call| name(&call.agent),
    }
    /// The user, hashed unless the configuration says otherwise
    User {
        name: "user",
        title: Some("Users"),
        kept: Kept::Spending,
        filter: true,
        attribute: None,
        value: |call| name(&call.user),
    }
    /// The team that pays for the call
    Team {
        name: "team",
        title: Some("Teams"),
        kept: Kept::Series,
        filter: true,
        attribute: Some("tokengauge.team"),
        value: |call| name(&call.team),
    }
    /// The cost center that pays for the call
    CostCenter {
        name: "cost_center",
        title: Some("Cost centers"),
        kept: Kept::Series,
        filter: true,
        attribute: Some("tokengauge.cost_center"),
        value: |call| name(&call.cost_center),
    }
    /// The tenant for whom the call was made
    Tenant {
        name: "tenant",
        title: Some("Tenants"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: Some("tokengauge.tenant"),
        value: |call| name(&call.tenant),
    }
    /// The digest of the provider key in the request, as printed by `tokengauge print key-hash`
    KeyHash {
        name: "key_hash",
        title: None,
        kept: Kept::Spending,
        filter: true,
        attribute: None,
        value: |call| name(&call.key_hash),
    }
    /// The tools that the response calls, as one combined value
    Tool {
        name: "tool",
        title: Some("Tools"),
        kept: Kept::Spending,
        filter: true,
        attribute: Some("tokengauge.tools"),
        value: |call| name(&call.tools),
    }
    /// The provider that a gateway used, if the response names it
    ServedBy {
        name: "served_by",
        title: Some("Served by"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: Some("tokengauge.served_by"),
        value: |call| name(&call.served_by),
    }
    /// How much reasoning the request asked for, such as `high`
    ReasoningEffort {
        name: "reasoning_effort",
        title: Some("Reasoning effort"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: Some("tokengauge.reasoning_effort"),
        value: |call| name(&call.reasoning_effort),
    }
    /// The experiment that the call was part of
    Experiment {
        name: "experiment",
        title: Some("Experiments"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: Some("tokengauge.experiment"),
        value: |call| name(&call.experiment),
    }
    /// The variant of the experiment
    Variant {
        name: "variant",
        title: Some("Variants"),
        kept: Kept::OpenSeries,
        filter: false,
        attribute: Some("tokengauge.variant"),
        value: |call| name(&call.variant),
    }
    /// How the call ended
    Outcome {
        name: "outcome",
        title: Some("Outcomes"),
        kept: Kept::Series,
        filter: false,
        attribute: Some("tokengauge.outcome"),
        value: |call| Some(Cow::Borrowed(call.outcome.as_str())),
    }
    /// The length of the prompt, as a class
    PromptLength {
        name: "prompt_length",
        title: Some("Prompt length"),
        kept: Kept::Class,
        filter: false,
        attribute: None,
        value: |call| input(call).map(|tokens| Cow::Borrowed(prompt_length(tokens))),
    }
    /// The length of the response, as a class
    OutputLength {
        name: "output_length",
        title: Some("Output length"),
        kept: Kept::Class,
        filter: false,
        attribute: None,
        value: |call| output(call).map(|tokens| Cow::Borrowed(output_length(tokens))),
    }
    /// The engine and hardware of the upstream, as configured in `[upstream.facts]` at that time
    UpstreamFacts {
        name: "upstream_facts",
        title: Some("Hardware and engine"),
        kept: Kept::Series,
        filter: false,
        attribute: None,
        value: |call| call.upstream_facts.as_ref().map(|facts| Cow::Owned(facts.to_string())),
    }
    /// The cluster of the pod that measured the call (only in a fleet)
    Cluster {
        name: "cluster",
        title: Some("Clusters"),
        kept: Kept::Series,
        filter: true,
        attribute: None,
        value: |call| name(&call.pod.as_ref()?.cluster),
    }
    /// The namespace of the pod that measured the call (only in a fleet)
    Namespace {
        name: "namespace",
        title: Some("Namespaces"),
        kept: Kept::Series,
        filter: true,
        attribute: None,
        value: |call| name(&call.pod.as_ref()?.namespace),
    }
    /// The name of the pod that measured the call (only in a fleet)
    Pod {
        name: "pod",
        title: Some("Pods"),
        kept: Kept::OpenSeries,
        filter: true,
        attribute: None,
        value: |call| name(&call.pod.as_ref()?.name),
    }
}

impl Dimension {
    /// The row of the table for this dimension.
    pub const fn definition(self) -> &'static Definition {
        &DIMENSIONS[self as usize]
    }

    /// The name in the API and in the JSON of reports.
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// The dimension with this name.
    pub fn named(name: &str) -> Option<Dimension> {
        let mut all = DIMENSIONS.iter().map(|row| row.dimension);
        all.find(|dimension| dimension.name() == name)
    }

    /// The column in the ledger.
    pub const fn column(self) -> &'static str {
        match self {
            Dimension::Tool => "tools",
            other => other.name(),
        }
    }

    /// Whether the ledger has a column of `series` for this dimension.
    pub const fn is_in_series(self) -> bool {
        is_of(self.definition(), List::Series)
    }

    /// The value of a call.
    pub fn of(self, call: &CallRecord) -> Option<Cow<'_, str>> {
        (self.definition().value)(call)
    }

    /// Whether the filter `wanted` selects calls that have `value`. A tool selects every call whose
    /// combined value contains it. A filter with several tools selects only that exact combined
    /// value.
    pub fn selects(self, wanted: &str, value: Option<&str>) -> bool {
        let among = |names: &str| names.split(TOOLS_BETWEEN).any(|name| name == wanted);
        value == Some(wanted) || self == Dimension::Tool && value.is_some_and(among)
    }
}

/// The dimensions that have a column in `series`.
pub const IN_SERIES: [Dimension; count(List::Series)] = listed(List::Series);
/// The dimensions that have a column in `calls` and `daily_spending`.
pub const SPENDING: [Dimension; count(List::Spending)] = listed(List::Spending);
/// The dimensions that calls can be filtered by.
pub const FILTERS: [Dimension; count(List::Filters)] = listed(List::Filters);

#[derive(Clone, Copy)]
enum List {
    Series,
    Spending,
    Filters,
}

const fn is_of(row: &Definition, list: List) -> bool {
    match list {
        List::Series => matches!(row.kept, Kept::Series | Kept::OpenSeries),
        List::Spending => matches!(row.kept, Kept::Spending),
        List::Filters => row.filter,
    }
}

const fn count(list: List) -> usize {
    let (mut at, mut found) = (0, 0);
    while at < DIMENSIONS.len() {
        found += is_of(&DIMENSIONS[at], list) as usize;
        at += 1;
    }
    found
}

const fn listed<const N: usize>(list: List) -> [Dimension; N] {
    let mut all = [Dimension::Model; N];
    let (mut at, mut found) = (0, 0);
    while at < DIMENSIONS.len() {
        if is_of(&DIMENSIONS[at], list) {
            all[found] = DIMENSIONS[at].dimension;
            found += 1;
        }
        at += 1;
    }
    all
}

fn name(name: &Option<String>) -> Option<Cow<'_, str>> {
    name.as_deref().map(Cow::Borrowed)
}

/// The model that responded, otherwise the model that was requested.
pub fn model_of(call: &CallRecord) -> Option<&str> {
    call.model.as_deref().or(call.model_requested.as_deref())
}

fn input(call: &CallRecord) -> Option<u64> {
    call.tokens.reported.input.or(call.tokens.normalised.input)
}

fn output(call: &CallRecord) -> Option<u64> {
    call.tokens
        .reported
        .output
        .or(call.tokens.normalised.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_is_found_by_its_name_and_has_a_row() {
        for row in DIMENSIONS {
            assert_eq!(row.dimension.definition().name, row.name);
            assert_eq!(Dimension::named(row.name), Some(row.dimension));
            assert!(!row.about.ends_with('.'), "{}", row.about);
        }
        assert_eq!(Dimension::named("tools"), None);
    }

    #[test]
    fn a_tool_selects_calls_of_several_tools_and_several_tools_select_the_same_alone() {
        let selects = |wanted| Dimension::Tool.selects(wanted, Some("fetch+search"));
        assert!(selects("search") && selects("fetch+search"));
        assert!(!selects("fetch+searches") && !selects("fet") && !selects("search+fetch"));
    }
}
