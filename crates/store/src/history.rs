//! Queries over call records in memory or from a call log: sessions, models, workloads, time
//! series. The ledger gives equal results.

mod cache_breaks;
mod changed_upstream;
mod costs;
mod coverage;
mod distributions;
mod experiment_units;
mod groups;
mod knee;
mod matching;
mod prompt_tools;
mod quantile;
mod scored;
mod sessions;
mod tasks;
mod throughput;
mod time;
mod timed_call;
mod timeseries;
mod totals;
mod waterfall;

#[cfg(test)]
mod tests;

pub use cache_breaks::cache_breaks;
pub(crate) use changed_upstream::CapacityBucket;
pub use costs::costs;
pub use coverage::coverage;
pub use distributions::{distributions, hourly_distributions};
pub use experiment_units::{UnitTally, call_units, experiment_units};
pub use groups::{Group, Groups, groups};
pub(crate) use knee::capacity_since_change;
pub use knee::{capacity_of, knee};
pub use matching::{matches, matches_session};
pub use prompt_tools::{add_prompt_tools, prompt_tools};
pub use quantile::quantile;
pub use scored::scored_units;
pub use sessions::{sessions, task_seconds};
pub use tasks::tasks;
pub use throughput::ThroughputHistory;
pub use time::{duration, instant};
pub use timed_call::TimedCall;
pub use timeseries::{MAX_POINTS, timeseries};
pub use totals::tokens;
pub(crate) use waterfall::waterfall_row;
pub use waterfall::{phases, waterfall};
