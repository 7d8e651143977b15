#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

mod audit;
mod budget;
mod burn_down;
mod calendar;
mod cause_search;
mod causes;
mod engine;
mod in_progress;
mod minutes;
mod months;
mod notify;
mod objective;
pub mod openslo;
mod preset;
mod reason;
mod replay;
mod ring;
pub mod rules;
mod samples;
mod saved_state;
mod state;
mod status;
mod to_toml;
mod tracker;
mod verdict;
mod windows;

pub use audit::{Circumstances, changes};
pub use budget::{burn_rate, exhausted_in, ratio, remaining};
pub use burn_down::{BudgetPoint, BurnDown};
pub use engine::Slos;
pub use months::Attainment;
pub use notify::{
    DeliveryState, Destination, FiringAlerts, Message, Outbox, Receiver, ReceiverKind, alert_name,
    messages,
};
pub use objective::MONTH;
pub use objective::{Judgement, MAX_OBJECTIVES, Objective, Sli, Slice, Weight};
pub use preset::{PRESETS, Preset};
pub use reason::{CallVerdict, Reason};
pub use replay::{Outcome, ended_at, replay, suggest};
pub use ring::Sum;
pub use saved_state::SavedState;
pub use state::StateFolder;
pub use status::{Burn, Status};
pub use to_toml::as_toml;
pub use tokengauge_cause::{Cause, CauseBasis, Dimension};
pub use tokengauge_core::alert_notification::{AlertNotification, AlertSubject};
pub use tokengauge_core::pattern::Pattern;
pub use tokengauge_core::selector::{Names, Selector};
pub use tracker::{Alert, Spent};
pub use verdict::{Events, Finished, judge, possible};
pub use windows::{Severity, Tier, label, tiers};
