#![doc = include_str!("../README.md")]

mod analysis;
mod cache;
mod call_sums;
mod critical_path;
mod live;
mod session;
mod text;
mod time_use;
mod tool_use;
mod trace;
mod waste;

pub use analysis::Analysis;
pub use cache::{BreakCause, CacheBreak};
pub use call_sums::CallSums;
pub use critical_path::{CriticalPath, PathPart, PathStep, critical_path};
pub use live::{
    BreakSum, CachePrice, Runaway, RunawayFigure, RunawayLimits, RunawayReason, SessionWatch,
    TimesUsual, WatchCounts,
};
pub use session::{Session, last_calls};
pub use text::text;
pub use time_use::{AgentUse, TimeUse};
pub use tool_use::ToolUse;
pub use trace::{otlp, perfetto};
pub use waste::Waste;
