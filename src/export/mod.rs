//! What goes out: Prometheus and the call log. `names` is the one table of metrics.

pub mod log;
pub mod names;
pub mod process;
pub mod prometheus;

mod labels;
mod series;
