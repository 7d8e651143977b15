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
/// The highest price of a million tokens or of a GPU hour.
pub(crate) const HIGHEST_PRICE: f64 = 1e6;

/// US dollars per million tokens, before those that the binary carries; the first that matches ([cost](cost.md)).
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Price {
    /// The model that answered, else the one asked for; `*` is any run of characters.
    pub(crate) model: Spanned<String>,
    /// The upstream's name; any by default.
    pub(crate) upstream: Option<Spanned<String>>,
    /// Only calls with more input tokens.
    pub(crate) above: Option<u64>,
    /// Of input; this, `output` or both are needed.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) input: Option<f64>,
    /// Of input from the provider's cache; as `input` by default.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) cached_input: Option<f64>,
    /// Of input that is written to the cache; as `input` by default.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) cache_write: Option<f64>,
    /// Of input that is kept there for an hour; as `cache_write` by default.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) cache_write_1h: Option<f64>,
    /// Of output.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) output: Option<f64>,
    /// Of reasoning; as `output` by default.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = USD))]
    pub(crate) reasoning: Option<f64>,
    /// A factor for the service tiers flex and batch; none by default.
    #[schemars(extend("minimum" = 0, "maximum" = HIGHEST_PRICE, "x-must" = "a number from 0 up"))]
    pub(crate) batch: Option<f64>,
}

const USD: &str = "a number from 0 up, in US dollars per million tokens";

/// Who may spend how much. Budgets warn, and refuse calls only where `block` says so.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budget {
    /// Becomes a label.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// Who has a budget of their own.
    #[serde(default)]
    #[schemars(with = "EnumNames<BudgetScope>", extend("default" = "all"))]
    pub(crate) per: BudgetScope,
    /// The calls that it is for; all by default.
    #[serde(default)]
    pub(crate) select: Select,
    /// What may be spent in a period, in US dollars.
    #[schemars(extend("exclusiveMinimum" = 0, "x-must" = "a number of US dollars above 0"))]
    pub(crate) usd: f64,
    /// When there is new money: a duration of whole seconds, at least a minute, or `month`, by the calendar of UTC.
    #[schemars(extend("default" = Span(DEFAULT_PERIOD), "x-type" = "duration or \"month\""))]
    pub(crate) period: Option<Spanned<String>>,
    /// At these shares of it: a log line, a metric, and a message to those under `[[notify]]`.
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
    /// Whether calls are refused with 429 from then until the period ends.
    #[serde(default)]
    pub(crate) block: bool,
    /// With `block`: `shadow` counts what it would have refused, and refuses nothing.
    #[schemars(with = "Option<EnumNames<Mode>>", extend("default" = "enforce"))]
    pub(crate) mode: Option<Spanned<Mode>>,
    /// With `block`: 422 where the body decides and servers could read it differently, or `count` it against one budget
    /// that all of those share.
    #[schemars(with = "Option<EnumNames<OnUnreadable>>", extend("default" = "refuse"))]
    pub(crate) on_unreadable: Option<Spanned<OnUnreadable>>,
}

/// How much there is: `requests_per_minute`, `tokens_per_minute`, `concurrent`, at least one of them. Tokens are those of
/// input and output, charged as they stream: whoever took more than there was waits until it is paid. 429 with
/// `retry-after`, in the words of the dialect.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quota {
    /// Becomes a label.
    #[schemars(with = "Label")]
    pub(crate) name: Spanned<String>,
    /// Who has a quota of their own.
    #[serde(default)]
    #[schemars(with = "EnumNames<quota::QuotaScope>", extend("default" = "all"))]
    pub(crate) per: quota::QuotaScope,
    /// The calls that it is for; all by default.
    #[serde(default)]
    pub(crate) select: Select,
    /// Requests a minute, at once or spread.
    #[schemars(extend("minimum" = 1, "x-reason" = REFUSE_ALL))]
    pub(crate) requests_per_minute: Option<u32>,
    /// Tokens a minute.
    #[schemars(extend("minimum" = 1, "x-reason" = REFUSE_ALL))]
    pub(crate) tokens_per_minute: Option<u32>,
    /// Calls at once; 0 refuses all.
    pub(crate) concurrent: Option<u32>,
    /// Holds only while this objective is worth a page: sheds load.
    pub(crate) while_burning: Option<Spanned<String>>,
    /// Is for the calls of sessions that run away alone (`[runaway]`): with `concurrent = 0` it stops them.
    #[serde(default)]
    pub(crate) while_runaway: bool,
    /// `shadow` counts what it would have refused, and refuses nothing.
    #[serde(default)]
    #[schemars(with = "EnumNames<Mode>", extend("default" = "enforce"))]
    pub(crate) mode: Mode,
    /// Where the body decides and servers could read it differently: `count` it as one that the quota is for, or
    /// `refuse` it with 422.
    #[schemars(with = "Option<EnumNames<OnUnreadable>>", extend("default" = "count"))]
    pub(crate) on_unreadable: Option<OnUnreadable>,
}

const REFUSE_ALL: &str = "; `concurrent = 0` refuses all calls";
