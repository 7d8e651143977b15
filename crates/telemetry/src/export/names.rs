//! The one table of metrics: names, kinds, labels, buckets, help. Both exporters, the
//! rules, the dashboards' test and the reference in docs/metrics.md read it.

mod calls;
mod cost;
mod own;
mod slo;
mod upstreams;

pub use calls::*;
pub use cost::*;
pub use own::*;
pub use slo::*;
pub use upstreams::*;

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Tokens.
    Tokens,
    /// Tokens per second.
    TokensPerSecond,
    /// A ratio; 1 is equal.
    Ratio,
    /// US dollars.
    Dollars,
}

impl Unit {
    /// The word for it at the end of a name; `None` where things are counted.
    fn word(self) -> Option<&'static str> {
        match self {
            Unit::Count => None,
            Unit::Seconds => Some("seconds"),
            Unit::Bytes => Some("bytes"),
            Unit::Tokens => Some("tokens"),
            Unit::TokensPerSecond => Some("tokens_per_second"),
            Unit::Ratio => Some("ratio"),
            Unit::Dollars => Some("usd"),
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Metric {
    /// Its name, prefix included.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: Unit,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, ascending; empty for the others.
    pub buckets: &'static [f64],
    /// One sentence.
    pub help: &'static str,
}

impl Metric {
    /// The unit, where the name ends with it: only then may OpenMetrics tell it.
    pub fn unit_in_name(&self) -> Option<&'static str> {
        let family = self.name.trim_end_matches("_total");
        let before = |word: &&str| family.strip_suffix(word).is_some_and(|b| b.ends_with('_'));
        self.unit.word().filter(before)
    }
}

/// The upper bounds of a histogram's buckets: those of the table and `more`, ascending.
pub fn buckets(metric: &Metric, more: &[f64]) -> Vec<f64> {
    let usable = more.iter().filter(|bound| bound.is_finite());
    let mut bounds: Vec<f64> = metric.buckets.iter().chain(usable).copied().collect();
    bounds.sort_by(f64::total_cmp);
    bounds.dedup();
    bounds
}

const fn counter(
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Counter, unit, labels, &[], help)
}

const fn gauge(
    name: &'static str,
    unit: Unit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    metric(name, Kind::Gauge, unit, labels, &[], help)
}

const fn metric(
    name: &'static str,
    kind: Kind,
    unit: Unit,
    labels: &'static [&'static str],
    buckets: &'static [f64],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        unit,
        labels,
        buckets,
        help,
    }
}

/// The labels of what is known per model.
pub const MODEL: &[&str] = &["upstream", "route", "model", "workload"];

/// Every metric there is.
pub const ALL: &[Metric] = &[
    REQUESTS,
    TIME_TO_FIRST_TOKEN,
    TIME_TO_FIRST_TOKEN_UPSTREAM,
    TIME_TO_FIRST_ANSWER,
    OUTPUT_TOKENS_PER_SECOND,
    REPORTED_TOKENS_PER_SECOND,
    INTER_TOKEN_LATENCY,
    TIME_PER_OUTPUT_TOKEN,
    REQUEST_DURATION,
    TOKENS,
    DECODE_TOKENS,
    DECODE_SECONDS,
    TPS_UNAVAILABLE,
    STALLS,
    TOKEN_RATIO,
    COST_USD,
    PRICED_OUTPUT_TOKENS,
    UPSTREAM_GPU_USD_PER_HOUR,
    BUDGET_SPENT_RATIO,
    BUDGET_SPENT_USD,
    BUDGET_WARNINGS,
    BUDGET_BLOCKED,
    BUDGET_SHADOW_BLOCKED,
    BUDGET_UNREADABLE,
    BUDGET_FORGOTTEN,
    QUOTA_REFUSED,
    QUOTA_SHADOW_REFUSED,
    QUOTA_SHARED,
    QUOTA_HOLDS,
    STREAMS_IN_FLIGHT,
    STREAMS_STALLED,
    OUTPUT_TOKENS_PER_SECOND_NOW,
    OUTPUT_TOKENS_PER_SECOND_PEAK,
    OUTPUT_TOKENS_PER_SECOND_SUSTAINED,
    RATE_LIMITED,
    UPSTREAM_CONNECTIONS,
    UPSTREAM_PENDING,
    UPSTREAM_REFUSED,
    UPSTREAM_UP,
    UPSTREAM_INFO,
    UPSTREAM_WARMING,
    UPSTREAM_QUEUE_DEPTH,
    UPSTREAM_RUNNING,
    UPSTREAM_KV_CACHE,
    UPSTREAM_QUEUE_SECONDS,
    UPSTREAM_QUEUE_REQUESTS,
    UPSTREAM_PREFILL_SECONDS,
    UPSTREAM_PREFILL_REQUESTS,
    UPSTREAM_SCRAPE_FAILURES,
    PROXY_OVERHEAD,
    METER_LAGGED_FRAMES,
    METER_SKIPPED_BODIES,
    METER_DROPPED_CALLS,
    METER_PANICS,
    OBSERVER_PANICS,
    METER_QUEUE_BYTES,
    SERIES_COLLAPSED,
    EXPORT_FAILURES,
    ADMIN_CONNECTIONS,
    ADMIN_CONNECTIONS_CLOSED,
    EVENT_LISTENERS,
    EVENT_LISTENERS_REFUSED,
    EVENTS_LOST,
    LEDGER_RECORDS,
    LEDGER_LOST_RECORDS,
    LEDGER_COLLAPSED_NAMES,
    LEDGER_BYTES,
    BUILD_INFO,
    CONFIG_RELOADS,
    CONFIG_LAST_RELOAD_SUCCESSFUL,
    CONFIG_FALLBACK,
    CONFIG_LAST_RELOAD_SUCCESS_SECONDS,
    CONFIG_INFO,
    INJECTIONS,
    RUNTIME_WORKERS,
    RUNTIME_ALIVE_TASKS,
    RUNTIME_GLOBAL_QUEUE_DEPTH,
    SLO_EVENTS,
    SLO_OBJECTIVE_RATIO,
    SLO_ERROR_BUDGET_REMAINING,
    SLO_BURN_RATE,
    PROCESS_CPU_SECONDS,
    PROCESS_RESIDENT_MEMORY,
    PROCESS_OPEN_FDS,
    PROCESS_THREADS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_that_promtool_checks() {
        for metric in ALL {
            let (name, counter) = (metric.name, metric.kind == Kind::Counter);
            assert!(
                name.starts_with("tokengauge_") || name.starts_with("process_"),
                "{name}"
            );
            assert_eq!(name.ends_with("_total"), counter, "{name}");
            let base = name.trim_end_matches("_total");
            assert_eq!(
                base.ends_with("_seconds"),
                metric.unit == Unit::Seconds,
                "{name}"
            );
            assert_eq!(
                base.ends_with("_bytes"),
                metric.unit == Unit::Bytes,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
            assert!(!metric.help.contains(['\\', '"', '\n']), "{name}");
            assert_eq!(
                ALL.iter().filter(|other| other.name == name).count(),
                1,
                "{name}"
            );
        }
    }

    #[test]
    fn every_histogram_has_ascending_buckets_and_nothing_else_has_any() {
        for metric in ALL {
            let histogram = metric.kind == Kind::Histogram;
            assert_eq!(!metric.buckets.is_empty(), histogram, "{}", metric.name);
            assert!(
                metric.buckets.is_sorted_by(|one, next| one < next),
                "{}",
                metric.name
            );
        }
    }
}
