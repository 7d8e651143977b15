//! Questions about finished calls, answered by ClickHouse: the calls of many processes in one table.
//!
//! The ledger gives the same answers. Percentiles come from the same classes of values
//! (a DDSketch), so that they are within 1 % of the exact value.

mod cache_breaks;
mod calls;
mod capacity;
mod costs;
mod distributions;
mod figure;
mod groups;
mod prompt_tools;
mod rows;
mod sessions;
mod source;
mod sql;
mod sums;
mod timeseries;
mod units;

pub use figure::INSERTION_LIMIT;
pub use source::Table;
pub use sql::{instant, quoted, text};
pub use sums::statements as statements_of_sums;

use crate::ledger::QueryError;
use rows::Row;
use serde_json::{Map, Value as Json};
use source::Source;
use std::fmt;
use std::time::Duration;

/// How long ClickHouse may take for one statement.
pub const TIME_LIMIT: Duration = Duration::from_secs(15);

/// Runs statements of ClickHouse and returns what they print.
pub trait Run: fmt::Debug + Send + Sync {
    /// Runs one statement. This method blocks, so threads of traffic must not call it.
    ///
    /// # Errors
    /// Returns an error if ClickHouse cannot be reached or refuses the statement: what happened, to which server, and
    /// what to do.
    fn run(&self, statement: &str) -> Result<Vec<u8>, WarehouseError>;
}

/// Why a warehouse did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct WarehouseError {
    /// What happened, to which server, and what to do.
    pub message: String,
    /// Whether the statement took too long or too much memory, so that a shorter time may be answered.
    pub too_much: bool,
}

/// The finished calls of a table in ClickHouse, or of files that ClickHouse reads.
#[derive(Debug)]
pub struct Warehouse {
    run: Box<dyn Run>,
    source: Source,
}

/// The end of every statement. A part is a day and an id stays within one, so that parts are not merged with each other.
fn format(shape: &str) -> String {
    format!(
        "SETTINGS output_format_json_quote_64bit_integers = 0, output_format_json_quote_denormals = 0, \
         do_not_merge_across_partitions_select_final = 1, max_execution_time = {} FORMAT {shape}",
        TIME_LIMIT.as_secs()
    )
}

impl Warehouse {
    /// The calls of `table`.
    pub fn new(table: Table, run: Box<dyn Run>) -> Warehouse {
        Warehouse {
            run,
            source: Source::new(table),
        }
    }

    fn run(&self, statement: &str) -> Result<Vec<u8>, QueryError> {
        self.run.run(statement).map_err(QueryError::Warehouse)
    }

    /// The rows of a statement.
    fn rows(&self, statement: &str) -> Result<Vec<Row>, QueryError> {
        let body = self.run(&format!("{statement} {}", format("JSONCompactEachRow")))?;
        lines(&body)
            .map(|line| parsed::<Vec<Json>>(line).map(Row::of))
            .collect()
    }

    /// The rows of a statement, by the names of their columns.
    fn objects(&self, statement: &str) -> Result<Vec<Map<String, Json>>, QueryError> {
        let body = self.run(&format!("{statement} {}", format("JSONEachRow")))?;
        lines(&body).map(parsed).collect()
    }
}

fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = body.split(|byte| *byte == b'\n');
    lines.filter(|line| !line.is_empty())
}

fn parsed<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, QueryError> {
    serde_json::from_slice(line).map_err(|error| {
        QueryError::Warehouse(WarehouseError {
            message: format!("the response of ClickHouse cannot be read: {error}"),
            too_much: false,
        })
    })
}
