//! What is spent, and of which budget.

use super::{Metric, Unit, counter, gauge};

/// What own GPUs cost.
pub const UPSTREAM_GPU_USD_PER_HOUR: Metric = gauge(
    "tokengauge_upstream_gpu_usd_per_hour",
    Unit::Dollars,
    &["upstream"],
    "Cost of an hour of all GPUs of the upstream, as configured; over its throughput it is the cost of a token.",
);
/// How near the limit somebody is.
pub const BUDGET_SPENT_RATIO: Metric = gauge(
    "tokengauge_budget_spent_ratio",
    Unit::Ratio,
    &["budget"],
    "Largest share of the budget that any one has spent in this period: 1 is all of it.",
);
/// What was spent.
pub const BUDGET_SPENT_USD: Metric = counter(
    "tokengauge_budget_spent_usd_total",
    Unit::Dollars,
    &["budget"],
    "Cost of the calls that count for the budget.",
);
/// Thresholds passed.
pub const BUDGET_WARNINGS: Metric = counter(
    "tokengauge_budget_warnings_total",
    Unit::Count,
    &["budget", "threshold"],
    "Times that anyone has spent the budget up to a threshold of it.",
);
/// Calls refused.
pub const BUDGET_BLOCKED: Metric = counter(
    "tokengauge_budget_blocked_total",
    Unit::Count,
    &["budget"],
    "Calls refused because the budget is spent.",
);
/// The bound on names.
pub const BUDGET_FORGOTTEN: Metric = counter(
    "tokengauge_budget_forgotten_total",
    Unit::Count,
    &["budget"],
    "Sessions, agents or other names whose spending was forgotten because there were too many; those who spent least go first.",
);
/// Calls refused by quotas.
pub const QUOTA_REFUSED: Metric = counter(
    "tokengauge_quota_refused_total",
    Unit::Count,
    &["quota", "resource"],
    "Calls refused because the quota had too few requests, tokens or calls at once left.",
);
/// Whether a quota holds.
pub const QUOTA_HOLDS: Metric = gauge(
    "tokengauge_quota_holds",
    Unit::Count,
    &["quota"],
    "1 while the quota holds; one with `while_burning` does so only while its objective burns.",
);
/// The bound on names.
pub const QUOTA_UNLIMITED: Metric = counter(
    "tokengauge_quota_unlimited_total",
    Unit::Count,
    &["quota"],
    "Calls let in without the quota because too many sessions, keys or other names were known.",
);
