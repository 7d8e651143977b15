//! Metrics of spending, budgets and quotas.

use super::families;

families! {
    /// Configured cost in US dollars per hour of all GPUs of the upstream. Divided by tokens per
    /// hour, it is the cost per token.
    UPSTREAM_GPU_USD_PER_HOUR: Gauge[Upstream] = "tokengauge_upstream_gpu_usd_per_hour", Dollars;
    /// Largest share of the budget that a single session, agent or other name has spent in this
    /// period. 1 is the whole budget.
    BUDGET_SPENT_RATIO: Gauge[Budget] = "tokengauge_budget_spent_ratio", Ratio;
    /// Cost in US dollars of the calls that count for the budget.
    BUDGET_SPENT_USD: Sum[Budget] = "tokengauge_budget_spent_usd_total", Dollars;
    /// Times that a session, agent or other name reached a warning threshold of the budget.
    BUDGET_WARNINGS: Counter[BudgetThreshold] = "tokengauge_budget_warnings_total", Count;
    /// Calls refused because the budget is spent.
    BUDGET_BLOCKED: Counter[Budget] = "tokengauge_budget_blocked_total", Count;
    /// Calls that the budget would have refused if its mode were not shadow.
    BUDGET_SHADOW_BLOCKED: Counter[Budget] = "tokengauge_budget_shadow_blocked_total", Count;
    /// Calls whose body could not be read although a blocking budget depends on it. They were
    /// refused, or charged to one shared budget (`on_unreadable`).
    BUDGET_UNREADABLE: Counter[Budget] = "tokengauge_budget_unreadable_total", Count;
    /// Sessions, agents or other names that the budget forgot because there were too many. Names
    /// that spent least are forgotten first. A name that the budget does not know counts as having
    /// spent as much as the highest-spending forgotten name.
    BUDGET_FORGOTTEN: Counter[Budget] = "tokengauge_budget_forgotten_total", Count;
    /// Calls refused by the quota: too few requests, tokens or concurrent calls remained, the body
    /// could not be read, or the quota store did not respond.
    QUOTA_REFUSED: Counter[QuotaResource] = "tokengauge_quota_refused_total", Count;
    /// 1 while the quota is in effect, otherwise 0. With `while_burning` it is in effect only while
    /// its objective burns, with `while_runaway` only while a session runs away.
    QUOTA_HOLDS: Gauge[Quota] = "tokengauge_quota_holds", Count;
    /// Calls that the quota would have refused if its mode were not shadow.
    QUOTA_SHADOW_REFUSED: Counter[QuotaResource] = "tokengauge_quota_shadow_refused_total", Count;
    /// Smallest remaining amount of any name, for a quota that processes share through a quota
    /// store.
    QUOTA_REMAINING: Gauge[QuotaResource] = "tokengauge_quota_remaining", Count;
    /// Calls that share one quota bucket instead of having a bucket for their name. The reasons:
    /// the body could not be read, the call had no name, or the quota cannot count more names.
    QUOTA_SHARED: Counter[QuotaReason] = "tokengauge_quota_shared_total", Count;
}
