//! Service level objectives: what is promised, and what is left of it. Time is an
//! argument everywhere.
//!
//! [`Objective`] is one promise as the configuration gives it; [`tiers`] are the pairs
//! of windows that its alerts look at. Both are data: the proxy counts by them, and
//! [`rules`] for Prometheus are made of them. [`Slos`] counts: it takes finished calls
//! from the meter, and once a second it looks at those under way, so that a missed
//! deadline and a slow stream show when they happen and not when they end.

mod audit;
mod budget;
mod calendar;
mod engine;
mod minutes;
mod months;
mod notify;
mod objective;
pub mod openslo;
mod pattern;
mod preset;
mod reason;
mod replay;
mod ring;
pub mod rules;
mod state;
mod status;
mod tracker;
mod verdict;
mod windows;
mod written;

pub use audit::{Circumstances, changes};
pub use budget::{burn_rate, exhausted_in, ratio, remaining};
pub(crate) use calendar::since_1970;
pub use engine::Slos;
pub use months::Attainment;
pub use notify::{About, Kind, Message, Notice, Outbox, Place, Receiver, Told, Watch, messages};
pub(crate) use objective::MONTH;
pub use objective::{Judgement, MAX_OBJECTIVES, Names, Objective, Selector, Sli, Slice, Weight};
pub use pattern::Pattern;
pub use preset::{PRESETS, Preset};
pub use reason::{Reason, Verdict};
pub use replay::{Outcome, ended_at, replay, suggest};
pub use ring::Sum;
pub use state::{Kept, Store};
pub use status::{Burn, Status};
pub use tracker::{Alert, Spent};
pub use verdict::{Events, Finished, judge, possible};
pub use windows::{Severity, Tier, label, tiers};
pub use written::as_toml;
