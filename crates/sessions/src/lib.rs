#![doc = include_str!("../README.md")]

mod cache;
mod critical_path;
mod session;
mod text;
mod trace;

pub use cache::{BreakCause, CacheBreak, Turn, cache_break};
pub use critical_path::{CriticalPath, PathPart, PathStep, critical_path};
pub use session::{Analysis, MAX_CALLS, Session};
pub use text::text;
pub use trace::{otlp, perfetto};
