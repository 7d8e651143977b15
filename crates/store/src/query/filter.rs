//! Filters, paging and sorting of queries.

use std::time::SystemTime;
use tokengauge_core::call::{CostUnavailable, OperationClass, Outcome, TpsUnavailable};
use tokengauge_core::throughput::RateFilter;

/// The separator between the names of tools in a record. No name contains it.
pub(crate) const TOOLS_BETWEEN: char = '+';

/// Which calls. Absent parts match everything; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Calls that began at this instant or later; sessions whose last call ended then or later.
    pub since: Option<SystemTime>,
    /// Calls that began before this instant; sessions that began before it.
    pub until: Option<SystemTime>,
    /// The model that answered, else the one asked for.
    pub model: Option<String>,
    /// The workload.
    pub workload: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The user, as records have it.
    pub user: Option<String>,
    /// The team that pays.
    pub team: Option<String>,
    /// The cost center.
    pub cost_center: Option<String>,
    /// The tenant.
    pub tenant: Option<String>,
    /// The digest of the key that calls carried.
    pub key_hash: Option<String>,
    /// A tool that calls call, alone or among others. Several names with a `+` between them are
    /// exactly these tools, as records have them.
    pub tool: Option<String>,
    /// The experiment.
    pub experiment: Option<String>,
    /// How calls ended: any of these; all where there is none.
    pub outcomes: Vec<Outcome>,
    /// The session.
    pub session: Option<String>,
    /// The cluster of the pod that measured the call.
    pub cluster: Option<String>,
    /// The namespace of that pod.
    pub namespace: Option<String>,
    /// The name of that pod.
    pub pod: Option<String>,
    /// Why calls have no cost. Sessions are not selected by it.
    pub cost_unavailable: Option<CostUnavailable>,
    /// Why calls have no decode speed. Sessions are not selected by it.
    pub tps_unavailable: Option<TpsUnavailable>,
    /// Classes of operations; all where there is none. Sessions are those of all of their calls.
    pub operation_classes: Vec<OperationClass>,
}

impl Filter {
    /// The classes that are counted by default.
    pub fn counted() -> Vec<OperationClass> {
        let all = OperationClass::ALL.into_iter();
        all.filter(|class| class.counts()).collect()
    }

    /// Whether calls that ended like this match.
    pub fn has_outcome(&self, outcome: Outcome) -> bool {
        self.outcomes.is_empty() || self.outcomes.contains(&outcome)
    }

    /// Whether operations of this class match.
    pub fn has_class(&self, class: OperationClass) -> bool {
        self.operation_classes.is_empty() || self.operation_classes.contains(&class)
    }

    /// Whether calls are selected by why they have no cost or no speed, which no sum knows.
    pub fn by_reason(&self) -> bool {
        self.cost_unavailable.is_some() || self.tps_unavailable.is_some()
    }

    /// Whether a call with these `tools`, as its record has them, matches.
    pub fn has_tool(&self, tools: Option<&str>) -> bool {
        let Some(wanted) = self.tool.as_deref() else {
            return true;
        };
        let Some(tools) = tools else { return false };
        tools == wanted || tools.split(TOOLS_BETWEEN).any(|tool| tool == wanted)
    }

    /// Whether sums by time answer for calls by these dimensions: they know no session, user, key,
    /// tool and length.
    pub fn summed(&self, by: &[Dimension]) -> bool {
        let spenders = [Dimension::User, Dimension::KeyHash, Dimension::Tool];
        let spender = [&self.user, &self.key_hash, &self.tool];
        self.spending_summed(by)
            && spender.into_iter().all(Option::is_none)
            && !by.iter().any(|by| spenders.contains(by))
    }

    /// Whether sums of tokens and costs answer, which know users, keys and tools, too.
    pub(crate) fn spending_summed(&self, by: &[Dimension]) -> bool {
        let lengths = [Dimension::PromptLength, Dimension::OutputLength];
        self.session.is_none() && !self.by_reason() && !by.iter().any(|by| lengths.contains(by))
    }

    /// The same for tokens by second, which know routes, upstreams, models and workloads alone;
    /// `None` where more is asked.
    pub fn throughput(&self) -> Option<RateFilter> {
        let of_pods = [&self.cluster, &self.namespace, &self.pod];
        let more = [&self.agent, &self.user, &self.experiment, &self.session];
        let paying = [&self.team, &self.cost_center, &self.tenant, &self.key_hash];
        let more = more
            .into_iter()
            .chain(of_pods)
            .chain(paying)
            .chain([&self.tool]);
        let more = more.flatten().next().is_some() || !self.outcomes.is_empty();
        let more = more || self.by_reason();
        (!more).then(|| RateFilter {
            route: self.route.clone(),
            upstream: self.upstream.clone(),
            model: self.model.clone(),
            workload: self.workload.clone(),
        })
    }
}

/// The sums by day that a ledger keeps, longer than calls where room is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DailySums {
    /// All sums, by what [`Filter::summed`] allows.
    All,
    /// Tokens and costs, also by user, key and tools.
    Spending,
}

/// The page that is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Rows at most.
    pub limit: usize,
    /// Where the page before ended, as its `next_cursor` said.
    pub cursor: Option<String>,
}

impl Default for Paging {
    fn default() -> Self {
        Paging {
            limit: 100,
            cursor: None,
        }
    }
}

/// A page of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Names the next page; `None` where this is the last.
    pub next_cursor: Option<String>,
}

/// What sessions are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionSort {
    /// When the last call ended.
    #[default]
    LastAt,
    /// When the first call began.
    StartedAt,
    /// US dollars.
    Cost,
    /// Input and output tokens together.
    Tokens,
    /// Calls.
    Calls,
    /// From the first start to the last end.
    Duration,
    /// Calls that did not end well.
    Errors,
    /// The median time to first token.
    Ttft,
    /// Tokens per second while decoding.
    Tps,
}

impl SessionSort {
    /// The sort of that name, as the API writes it.
    pub fn parse(name: &str) -> Option<SessionSort> {
        Some(match name {
            "last_at" => SessionSort::LastAt,
            "started_at" => SessionSort::StartedAt,
            "cost" => SessionSort::Cost,
            "tokens" => SessionSort::Tokens,
            "calls" => SessionSort::Calls,
            "duration" => SessionSort::Duration,
            "errors" => SessionSort::Errors,
            "ttft" => SessionSort::Ttft,
            "tps" => SessionSort::Tps,
            _ => return None,
        })
    }
}

/// Which sessions, in which order. What is unknown comes last in either order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionQuery {
    /// Sessions with a call that matches; each part may be matched by another call.
    pub filter: Filter,
    /// A part of the session's id or of an agent's name, in any case.
    pub search: Option<String>,
    /// What they are sorted by.
    pub sort: SessionSort,
    /// The smallest first.
    pub ascending: bool,
    /// Which part of them.
    pub page: Paging,
}

/// What a time series is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesMetric {
    /// Decode speed, tokens per second.
    #[default]
    Tps,
    /// Time to first token, seconds.
    Ttft,
}

/// What calls may have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dimension {
    /// The model that answered, else the one asked for.
    #[default]
    Model,
    /// The workload.
    Workload,
    /// The route.
    Route,
    /// The upstream.
    Upstream,
    /// The agent.
    Agent,
    /// The user, hashed unless the configuration says otherwise.
    User,
    /// The experiment.
    Experiment,
    /// The variant of the experiment.
    Variant,
    /// How calls ended.
    Outcome,
    /// What the operator said of the upstream's engine and hardware.
    UpstreamFacts,
    /// The class of the prompt's length.
    PromptLength,
    /// The class of the answer's length.
    OutputLength,
    /// The cluster of the pod that measured the call.
    Cluster,
    /// The namespace of that pod.
    Namespace,
    /// The name of that pod.
    Pod,
    /// The team that pays.
    Team,
    /// The cost center.
    CostCenter,
    /// The tenant.
    Tenant,
    /// The digest of the key that calls carried.
    KeyHash,
    /// The tools that calls call, together.
    Tool,
}
