//! The exporters: Prometheus, OTLP and the call log. `names` is the table of metrics, `registry`
//! has their values.

pub mod cost;
mod exemplar;
pub mod labels;
pub mod lines;
pub mod log;
pub mod names;
pub mod otlp;
pub mod process;
pub mod prometheus;
pub mod protobuf;
pub mod quota;
pub mod registry;
pub mod runtime;
pub mod slo;
pub mod text;

mod cell;
mod histogram;
mod label_values;
mod metric;
mod native;
mod series;
