//! Service level objectives: what is promised, and what is left of it. Time is an
//! argument everywhere.
//!
//! [`Objective`] is one promise as the configuration gives it; [`tiers`] are the pairs
//! of windows that its alerts look at. Both are data: the proxy counts by them, and the
//! rules for Prometheus are made of them.

mod objective;
mod pattern;
mod preset;
mod windows;

pub use objective::{Judgement, MAX_OBJECTIVES, Names, Objective, Selector, Sli, Slice, Weight};
pub use pattern::Pattern;
pub use preset::{PRESETS, Preset};
pub use windows::{Severity, Tier, label, tiers};
