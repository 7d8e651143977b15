//! The tables of prices, budgets and quotas.

use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use super::objectives::Select;
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tokengauge_accounting::cost::budget::{BudgetScope, MAX_WARNINGS};
use tokengauge_accounting::quota;
use tokengauge_core::caller::{Mode, OnUnreadable};

pub(crate) const DEFAULT_PERIOD: Duration = Duration::from_secs(24 * 3600);
pub(crate) const DEFAULT_WARNINGS: [f64; 3] = [0.5, 0.8, 1.0];
/// For a million tokens or a GPU hour, in US dollars.
pub(crate) const HIGHEST_PRICE: f64 = 1e6;

/// A price in US dollars per million tokens ([cost](cost.md)). A `[[price]]` overrides the list prices in the binary.
/// The first price that matches a call is used.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    /// A pattern for the model that answered, such as `gpt-4.1*`. `*` matches any characters. If the answer names no
    /// model, the requested model is used.
    pub(crate) model: Spanned<String>,
    /// The name of the upstream that the price is for. Without a name, the price is for every upstream.
    pub(crate) upstream: Option<Spanned<String>>,
    /// Restricts the price to calls with more input tokens than this, such as `200000`.
    pub(crate) above: Option<u64>,
    /// The price of a million input tokens. A price needs `input`, `output` or both.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) input: Option<f64>,
    /// The price of a million input tokens that were read from the provider's cache. The default is `input`.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) cached_input: Option<f64>,
    /// The price of a million input tokens that were written to the provider's cache. The default is `input`.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) cache_write: Option<f64>,
    /// The price of a million input tokens that were written to the provider's cache for an hour. The default is
    /// `cache_write`.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) cache_write_1h: Option<f64>,
    /// The price of a million output tokens.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) output: Option<f64>,
    /// The price of a million reasoning tokens. The default is `output`.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) reasoning: Option<f64>,
    /// A factor on the price of calls in the service tiers `flex` and `batch`, such as `0.5`. Without a factor, these
    /// calls have no cost.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = "a number from 0 up"))]
    pub(crate) batch: Option<f64>,
}

const USD: &str = "a number from 0 up, in US dollars per million tokens";

/// How much calls may cost in a period. A budget warns; it refuses calls only with `block = true`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budget {
    /// The name of the budget in alerts and metric labels.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The kind of caller that gets a separate budget, such as `session` for one budget per session. With `all`, all
    /// calls share one budget.
    #[serde(default)]
    #[schemars(with = "EnumNames<BudgetScope>", extend("default" = "all"))]
    pub(crate) per: BudgetScope,
    /// The calls that the budget applies to. The default is all calls.
    #[serde(default)]
    pub(crate) select: Select,
    /// How many US dollars may be spent in a period.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = "a number of US dollars above 0"))]
    pub(crate) usd: f64,
    /// The time after which spending starts from zero again: whole seconds, at least a minute, or `month` for the
    /// calendar month in UTC.
    #[schemars(extend("default" = Span(DEFAULT_PERIOD), "x-type" = "duration or \"month\""))]
    pub(crate) period: Option<Spanned<String>>,
    /// The shares of `usd` at which the budget warns: with a log line, a metric and a message to the receivers in
    /// `[[notify]]`.
    #[schemars(extend(
        "default" = DEFAULT_WARNINGS,
        "maxItems" = MAX_WARNINGS,
        "items" = {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 100,
            "x-must": "shares of the budget above 0, such as [0.5, 1.0]",
        },
    ))]
    pub(crate) warn_at: Option<Vec<f64>>,
    /// Whether calls get status 429 after the budget is spent, until the period ends.
    #[serde(default)]
    pub(crate) block: bool,
    /// With `block`: `enforce` refuses calls, and `shadow` only counts the calls that it would have refused.
    #[schemars(with = "Option<EnumNames<Mode>>", extend("default" = "enforce"))]
    pub(crate) mode: Option<Spanned<Mode>>,
    /// With `block`: what happens if the budget depends on a request body that servers could read differently. `refuse`
    /// answers with status 422. `count` charges one budget that all such calls share.
    #[schemars(with = "Option<EnumNames<OnUnreadable>>", extend("default" = "refuse"))]
    pub(crate) on_unreadable: Option<Spanned<OnUnreadable>>,
}

/// Limits requests, tokens or concurrent calls. A quota needs `requests_per_minute`, `tokens_per_minute` or
/// `concurrent`. A refused call gets status 429 with `retry-after`. Input and output tokens are charged while they
/// stream; a caller that used too many is refused until the debt is paid off.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quota {
    /// The name of the quota in metric labels.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// The kind of caller that gets a separate quota, such as `session` for one quota per session. With `all`, all
    /// calls share one quota.
    #[serde(default)]
    #[schemars(with = "EnumNames<quota::QuotaScope>", extend("default" = "all"))]
    pub(crate) per: quota::QuotaScope,
    /// The calls that the quota applies to. The default is all calls.
    #[serde(default)]
    pub(crate) select: Select,
    /// How many requests are admitted per minute. All requests of a minute may come at once.
    #[schemars(extend("minimum" = 1, "x-reason" = REFUSE_ALL))]
    pub(crate) requests_per_minute: Option<u32>,
    /// How many input and output tokens may be used per minute.
    #[schemars(extend("minimum" = 1, "x-reason" = REFUSE_ALL))]
    pub(crate) tokens_per_minute: Option<u32>,
    /// How many calls may be in flight at once. 0 refuses all calls.
    pub(crate) concurrent: Option<u32>,
    /// The name of an `[[slo]]`. The quota applies only while this objective burns its error budget fast enough for a
    /// page, which sheds load.
    pub(crate) while_burning: Option<Spanned<String>>,
    /// Whether the quota applies only to calls of runaway sessions, which `[runaway]` defines. Together with
    /// `concurrent = 0`, the quota stops these sessions.
    #[serde(default)]
    pub(crate) while_runaway: bool,
    /// `enforce` refuses calls, and `shadow` only counts the calls that it would have refused.
    #[serde(default)]
    #[schemars(with = "EnumNames<Mode>", extend("default" = "enforce"))]
    pub(crate) mode: Mode,
    /// What happens if the quota depends on a request body that servers could read differently. `count` counts the call
    /// against one bucket that all such calls share. `refuse` answers with status 422.
    #[schemars(with = "Option<EnumNames<OnUnreadable>>", extend("default" = "count"))]
    pub(crate) on_unreadable: Option<OnUnreadable>,
}

const REFUSE_ALL: &str = "; `concurrent = 0` refuses all calls";
