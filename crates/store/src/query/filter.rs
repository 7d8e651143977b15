use std::collections::BTreeMap;
use std::time::SystemTime;
use tokengauge_core::call::{CostUnavailable, OperationClass, Outcome, TpsUnavailable};
use tokengauge_core::dimension::{Dimension, Kept};
use tokengauge_core::throughput::RateFilter;

/// Required names of calls by dimension; see [`Dimension::selects`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<Dimension, String>);

impl Names {
    pub fn get(&self, by: Dimension) -> Option<&str> {
        self.0.get(&by).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Dimension, &str)> {
        self.0.iter().map(|(by, name)| (*by, name.as_str()))
    }

    pub fn are_of(&self, some: &[Dimension]) -> bool {
        self.0.keys().all(|by| some.contains(by))
    }
}

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

/// Selects calls. A missing part matches everything; all given parts must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Selects calls that began at this time or later, and sessions whose last call ended then or
    /// later.
    pub since: Option<SystemTime>,
    /// Selects calls and sessions that began before this time.
    pub until: Option<SystemTime>,
    /// The required name of each dimension.
    pub names: Names,
    /// Allowed outcomes; empty allows all.
    pub outcomes: Vec<Outcome>,
    pub session: Option<String>,
    /// Selects calls by why they have no cost. Ignored for sessions.
    pub cost_unavailable: Option<CostUnavailable>,
    /// Selects calls by why they have no decode speed. Ignored for sessions.
    pub tps_unavailable: Option<TpsUnavailable>,
    /// Allowed classes of operations; empty allows all. Ignored for sessions.
    pub operation_classes: Vec<OperationClass>,
}

impl Filter {
    pub fn counted() -> Vec<OperationClass> {
        let all = OperationClass::ALL.into_iter();
        all.filter(|class| class.counts()).collect()
    }

    pub fn has_outcome(&self, outcome: Outcome) -> bool {
        self.outcomes.is_empty() || self.outcomes.contains(&outcome)
    }

    pub fn has_class(&self, class: OperationClass) -> bool {
        self.operation_classes.is_empty() || self.operation_classes.contains(&class)
    }

    /// Whether calls are selected by why they have no cost or no speed, which sums do not contain.
    pub fn by_reason(&self) -> bool {
        self.cost_unavailable.is_some() || self.tps_unavailable.is_some()
    }

    /// Whether rollups can answer for calls by these dimensions. Rollups have no session, user,
    /// key, tool and length.
    pub fn summed(&self, by: &[Dimension]) -> bool {
        let mut all = self
            .names
            .iter()
            .map(|(by, _)| by)
            .chain(by.iter().copied());
        self.spending_summed(by) && all.all(|by| by.definition().kept != Kept::Spending)
    }

    /// Whether sums of tokens and costs can answer, which also have users, keys and tools.
    pub(crate) fn spending_summed(&self, by: &[Dimension]) -> bool {
        let classes = |by: &Dimension| by.definition().kept == Kept::Class;
        self.session.is_none() && !self.by_reason() && !by.iter().any(classes)
    }

    /// The filter for tokens by second, which have only routes, upstreams, models and workloads;
    /// `None` if the filter uses other parts.
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

/// Sums by day, which are kept longer than calls if space is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DailySums {
    /// All sums, for what [`Filter::summed`] allows.
    All,
    /// Tokens and costs, also by user, key and tools.
    Spending,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paging {
    pub limit: usize,
    /// The `next_cursor` of the previous page.
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
    /// The cursor of the next page; `None` on the last page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionSort {
    #[default]
    LastAt,
    StartedAt,
    Cost,
    Tokens,
    Calls,
    /// Time from the first start to the last end.
    Duration,
    Errors,
    /// Median time to first token.
    Ttft,
    Tps,
}

impl SessionSort {
    /// Parses the API's name of a sort key.
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

/// Selects and sorts sessions. Unknown values come last in either order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionQuery {
    /// Selects sessions with calls that match. Different calls may match different parts.
    pub filter: Filter,
    /// A part of the session's id or of an agent's name, case-insensitive.
    pub search: Option<String>,
    pub sort: SessionSort,
    pub ascending: bool,
    pub page: Paging,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesMetric {
    #[default]
    Tps,
    /// Time to first token in seconds.
    Ttft,
}
