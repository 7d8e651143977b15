#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)] // printing panics if the output is closed
#![cfg_attr(test, allow(clippy::print_stdout, clippy::print_stderr))]

pub mod clickhouse;
pub mod clickhouse_schema;
mod delivery;
mod http_service;
mod s3;
mod s3_credentials;
mod s3_error;
mod settings;
mod sink;
mod source;
mod status;
mod table;
mod threads;
mod warehouse_url;

pub use delivery::{Replayed, replay};
pub use settings::{ClickHouseSettings, Location, S3Settings, Secret, SinkKind, SinkSettings};
pub use sink::{SendError, SendErrorKind, Sink};
pub use status::{SinkMetrics, SinkStatus};
pub use table::{Origin, SCHEMA_VERSION};
pub use threads::{AnySink, SinkQueues, Sinks};
pub use tokengauge_store::warehouse::INSERTION_LIMIT;
pub use warehouse_url::{WarehouseUnusable, WarehouseUrl};
