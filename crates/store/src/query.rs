//! Queries over finished calls, and the rows of their results, which are the same for the ledger
//! and for calls in memory.

mod cache_breaks;
mod capacity;
mod costs;
mod coverage;
mod distributions;
mod filter;
mod marks;
mod prompt_tools;
mod rows;
mod scores;
mod units;

pub use cache_breaks::{CacheBreakCause, CacheBreakSums, CacheBreaks};
pub use costs::{CostPoint, CostQuery, CostSeries, CostSums, Costs};
pub use coverage::Coverage;
pub use distributions::{
    Distribution, DistributionSelector, DistributionSeries, Distributions, Signal, UNKNOWN_BUCKET,
};
pub use filter::*;
pub use marks::{Mark, MarkKind, MarkQuery, MarkSubject, NewMark};
pub use prompt_tools::{
    InputCost, InputPrices, PromptPlace, PromptToolRow, PromptToolSums, PromptToolUse, PromptTools,
    priced,
};
pub use rows::*;
pub use scores::{
    MAX_SUMMARIES, ScoreIndex, ScoreQuery, ScoreSum, ScoreSummary, ScoredUnit, UnitScores,
    summaries,
};
pub use tokengauge_core::dimension::Dimension;
pub use units::{
    CallUnit, CallUnitQuery, CallUnits, ExperimentUnit, ExperimentUnits, Threshold, UnitKind,
    UnitQuery, UnitSums,
};

pub(crate) use cache_breaks::MAX_CAUSES;
pub(crate) use capacity::{CapacitySums, class_of_concurrency};
pub(crate) use coverage::Covered;
pub(crate) use distributions::{OUTCOMES, SESSION_CLASSES, hours};
pub(crate) use prompt_tools::MAX_TOOLS;
pub(crate) use scores::{CallIds, ScoreId, ScoreTally, sort as sort_scores};
pub(crate) use units::COUNTS;
