//! Metrics of spending, budgets and quotas.

use super::families;

families! {
    /// Cost of an hour of all GPUs of the upstream, as configured; over its throughput it is the cost
    /// of a token.
    UPSTREAM_GPU_USD_PER_HOUR: Gauge[Upstream] = "tokengauge_upstream_gpu_usd_per_hour", Dollars;
    /// Largest share of the budget that any one has spent in this period: 1 is all of it.
    BUDGET_SPENT_RATIO: Gauge[Budget] = "tokengauge_budget_spent_ratio", Ratio;
    /// Cost of the calls that count for the budget.
    BUDGET_SPENT_USD: Sum[Budget] = "tokengauge_budget_spent_usd_total", Dollars;
    /// Times that anyone has spent the budget up to a threshold of it.
    BUDGET_WARNINGS: Counter[BudgetThreshold] = "tokengauge_budget_warnings_total", Count;
    /// Calls refused because the budget is spent.
    BUDGET_BLOCKED: Counter[Budget] = "tokengauge_budget_blocked_total", Count;
    /// Calls that the budget would have refused if its mode were not shadow.
    BUDGET_SHADOW_BLOCKED: Counter[Budget] = "tokengauge_budget_shadow_blocked_total", Count;
    /// Calls that a blocking budget depends on the body of, which could not be read: refused, or
    /// counted together.
    BUDGET_UNREADABLE: Counter[Budget] = "tokengauge_budget_unreadable_total", Count;
    /// Sessions, agents or other names that were forgotten because there were too many, those who
    /// spent least first; whoever is not known counts as having spent what they had.
    BUDGET_FORGOTTEN: Counter[Budget] = "tokengauge_budget_forgotten_total", Count;
    /// Calls refused because the quota had too few requests, tokens or calls at once left, because
    /// it needs a body that can be read, or because its quota store does not answer.
    QUOTA_REFUSED: Counter[QuotaResource] = "tokengauge_quota_refused_total", Count;
    /// 1 while the quota holds; one with `while_burning` does so only while its objective burns,
    /// one with `while_runaway` only while a session runs away.
    QUOTA_HOLDS: Gauge[Quota] = "tokengauge_quota_holds", Count;
    /// Calls that the quota would have refused if its mode were not shadow.
    QUOTA_SHADOW_REFUSED: Counter[QuotaResource] = "tokengauge_quota_shadow_refused_total", Count;
    /// Least that any name has left of a quota that processes share through a quota store.
    QUOTA_REMAINING: Gauge[QuotaResource] = "tokengauge_quota_remaining", Count;
    /// Calls that counted together in place of each for its own name: they named nobody, too many
    /// names were known, or their body could not be read.
    QUOTA_SHARED: Counter[QuotaReason] = "tokengauge_quota_shared_total", Count;
}
