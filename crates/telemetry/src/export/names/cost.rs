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
/// Cost of the calls that count for the budget.
pub const BUDGET_SPENT_USD: Metric = counter(
    "tokengauge_budget_spent_usd_total",
    Unit::Dollars,
    &["budget"],
    "Cost of the calls that count for the budget.",
);
/// Times that anyone has spent the budget up to a threshold of it.
pub const BUDGET_WARNINGS: Metric = counter(
    "tokengauge_budget_warnings_total",
    Unit::Count,
    &["budget", "threshold"],
    "Times that anyone has spent the budget up to a threshold of it.",
);
/// Calls refused because the budget is spent.
pub const BUDGET_BLOCKED: Metric = counter(
    "tokengauge_budget_blocked_total",
    Unit::Count,
    &["budget"],
    "Calls refused because the budget is spent.",
);
/// Calls that shadow mode let in.
pub const BUDGET_SHADOW_BLOCKED: Metric = counter(
    "tokengauge_budget_shadow_blocked_total",
    Unit::Count,
    &["budget"],
    "Calls that the budget would have refused if its mode were not shadow.",
);
/// Calls that decide by a body that nobody can read.
pub const BUDGET_UNREADABLE: Metric = counter(
    "tokengauge_budget_unreadable_total",
    Unit::Count,
    &["budget"],
    "Calls that a blocking budget depends on the body of, which could not be read: refused, or counted together.",
);
/// The bound on names.
pub const BUDGET_FORGOTTEN: Metric = counter(
    "tokengauge_budget_forgotten_total",
    Unit::Count,
    &["budget"],
    "Sessions, agents or other names that were forgotten because there were too many, those who spent least first; whoever is not known counts as having spent what they had.",
);
/// Calls refused by quotas.
pub const QUOTA_REFUSED: Metric = counter(
    "tokengauge_quota_refused_total",
    Unit::Count,
    &["quota", "resource"],
    "Calls refused because the quota had too few requests, tokens or calls at once left, or because it needs a body that can be read.",
);
/// Whether a quota holds.
pub const QUOTA_HOLDS: Metric = gauge(
    "tokengauge_quota_holds",
    Unit::Count,
    &["quota"],
    "1 while the quota holds; one with `while_burning` does so only while its objective burns.",
);
/// Calls that shadow mode let in.
pub const QUOTA_SHADOW_REFUSED: Metric = counter(
    "tokengauge_quota_shadow_refused_total",
    Unit::Count,
    &["quota", "resource"],
    "Calls that the quota would have refused if its mode were not shadow.",
);
/// The bucket of those who have none of their own.
pub const QUOTA_SHARED: Metric = counter(
    "tokengauge_quota_shared_total",
    Unit::Count,
    &["quota", "reason"],
    "Calls that counted together in place of each for its own name: they named nobody, too many names were known, or their body could not be read.",
);
