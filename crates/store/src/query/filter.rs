//! Filters, paging and sorting of queries.

use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_core::call::{CostUnavailable, OperationClass, Outcome, TpsUnavailable};
use tokengauge_core::dimension::{Dimension, Kept};
use tokengauge_core::throughput::RateFilter;

/// Names by dimension, which calls must have; see [`Dimension::selects`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<Dimension, String>);

impl Names {
    pub fn get(&self, by: Dimension) -> Option<&str> {
        self.0.get(&by).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Dimension, &str)> {
        self.0.iter().map(|(by, name)| (*by, name.as_str()))
    }

    /// Whether only these dimensions have names.
    pub fn are_of(&self, some: &[Dimension]) -> bool {
        self.0.keys().all(|by| some.contains(by))
    }
}

/// Leaves out dimensions without a name.
impl FromIterator<(Dimension, Option<String>)> for Names {
    fn from_iter<I: IntoIterator<Item = (Dimension, Option<String>)>>(names: I) -> Names {
        let names = names.into_iter();
        Names(names.filter_map(|(by, name)| Some((by, name?))).collect())
    }
}

impl<const N: usize> From<[(Dimension, Option<String>); N]> for Names {
    fn from(names: [(Dimension, Option<String>); N]) -> Names {
        names.into_iter().collect()
    }
}

/// Which calls. Absent parts match everything; present ones must all match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Calls that began at this instant or later; sessions whose last call ended then or later.
    pub since: Option<SystemTime>,
    /// Calls that began before this instant; sessions that began before it.
    pub until: Option<SystemTime>,
    /// The name that calls have of each of these dimensions.
    pub names: Names,
    /// How calls ended: any of these; all where there is none.
    pub outcomes: Vec<Outcome>,
    pub session: Option<String>,
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

    pub fn has_class(&self, class: OperationClass) -> bool {
        self.operation_classes.is_empty() || self.operation_classes.contains(&class)
    }

    /// Whether calls are selected by why they have no cost or no speed, which no sum knows.
    pub fn by_reason(&self) -> bool {
        self.cost_unavailable.is_some() || self.tps_unavailable.is_some()
    }

    /// Whether sums by time answer for calls by these dimensions: they know no session, user, key,
    /// tool and length.
    pub fn summed(&self, by: &[Dimension]) -> bool {
        let mut all = self
            .names
            .iter()
            .map(|(by, _)| by)
            .chain(by.iter().copied());
        self.spending_summed(by) && all.all(|by| by.definition().kept != Kept::Spending)
    }

    /// Whether sums of tokens and costs answer, which know users, keys and tools, too.
    pub(crate) fn spending_summed(&self, by: &[Dimension]) -> bool {
        let classes = |by: &Dimension| by.definition().kept == Kept::Class;
        self.session.is_none() && !self.by_reason() && !by.iter().any(classes)
    }

    /// The same for tokens by second, which know routes, upstreams, models and workloads alone;
    /// `None` where more is asked.
    pub fn throughput(&self) -> Option<RateFilter> {
        use Dimension::{Model, Route, Upstream, Workload};
        let known = self.names.are_of(&[Route, Upstream, Model, Workload]);
        let more = self.session.is_some() || !self.outcomes.is_empty() || self.by_reason();
        let name = |by| self.names.get(by).map(str::to_owned);
        (known && !more).then(|| RateFilter {
            route: name(Route),
            upstream: name(Upstream),
            model: name(Model),
            workload: name(Workload),
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
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

#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// Names the next page; `None` where this is the last.
    pub next_cursor: Option<String>,
}

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
    pub sort: SessionSort,
    /// The smallest first.
    pub ascending: bool,
    pub page: Paging,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesMetric {
    /// Decode speed, tokens per second.
    #[default]
    Tps,
    /// Time to first token, seconds.
    Ttft,
}
