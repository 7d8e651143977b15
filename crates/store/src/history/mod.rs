//! What finished calls come to: sessions, models, workloads, points in time. Worked out
//! of call records that are at hand, those kept in memory and those of a call log, in
//! the shapes in which the ledger answers the same questions.

mod groups;
mod knee;
mod matching;
mod quantile;
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

pub use groups::{Group, Groups, groups};
pub use knee::{capacity_of, knee};
pub use matching::{matches, matches_session, model_of};
pub use quantile::quantile;
pub use sessions::{sessions, task_seconds};
pub use tasks::tasks;
pub use throughput::ThroughputHistory;
pub use time::{duration, instant};
pub use timed_call::TimedCall;
pub use timeseries::{MAX_POINTS, timeseries};
pub use totals::tokens;
pub use waterfall::{phases, waterfall};
