#![doc = include_str!("../README.md")]

mod analysis;
mod cache;
mod critical_path;
mod live;
mod session;
mod text;
mod trace;

pub use analysis::Analysis;
pub use cache::{BreakCause, CacheBreak};
pub use critical_path::{CriticalPath, PathPart, PathStep, critical_path};
pub use live::{
    BreakSum, CachePrice, Runaway, RunawayFigure, RunawayLimits, RunawayReason, SessionWatch,
    TimesUsual, WatchCounts,
};
pub use session::{Session, last_calls};
pub use text::text;
pub use trace::{otlp, perfetto};
