//! Call records as files for analysis: CSV, JSON lines, Parquet; and as traces to replay.

mod blocks;
mod mooncake;
#[cfg(test)]
mod tests;
mod weka;

use crate::columns::{COLUMNS, CallRow, Column, ColumnKind, Value};
use crate::csv;
use crate::ledger::QueryError;
use crate::ledger::row::timestamp;
use crate::parquet_table::Table;
use crate::query::{Filter, Paging};
use crate::stored_calls::StoredCalls;
use mooncake::Trace;
use std::io::{self, BufWriter, Write};
use std::time::SystemTime;
use tokengauge_core::time::rfc3339_millis;
use weka::Conversations;

/// Calls that are read in one query, so that the ledger's writer can checkpoint in between.
const CHUNK: usize = 4_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Typed columns, compressed.
    Parquet,
    /// Comma-separated values with a line of names (RFC 4180).
    Csv,
    /// One call record per line, as the call log has it.
    Jsonl,
    /// A trace to replay: start, input length, output length, blocks of the prompt or session; a
    /// call per line.
    Mooncake,
    /// The same with the session of each call and without blocks.
    Sessions,
    /// Conversations to replay, with the blocks of each prompt; a conversation per line.
    Weka,
}

#[derive(Clone, Copy, Debug)]
pub struct ExportOptions {
    /// Calls that began from here on.
    pub since: Option<SystemTime>,
    /// Calls that began before.
    pub until: Option<SystemTime>,
    pub format: FileFormat,
    /// Whether texts in CSV that a spreadsheet would take for a formula begin with `'`.
    pub spreadsheet: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("the file cannot be written: {0}")]
    File(#[from] io::Error),
}

/// Writes the calls that `options` select to `file`, in the order of their start; returns how
/// many.
///
/// # Errors
/// Returns an error if the calls cannot be read or the file cannot be written.
pub fn export(
    calls: &StoredCalls,
    options: &ExportOptions,
    file: Box<dyn Write + Send>,
) -> Result<u64, ExportError> {
    let filter = Filter {
        since: options.since,
        until: options.until,
        ..Filter::default()
    };
    let mut page = Paging {
        limit: CHUNK,
        cursor: None,
    };
    let mut output = Output::begin(options, file)?;
    let mut written = 0;
    loop {
        let found = calls.in_order(&filter, &page)?;
        written += found.rows.len() as u64;
        for row in found.rows {
            output.row(row)?;
        }
        page.cursor = found.next_cursor;
        if page.cursor.is_none() {
            break;
        }
    }
    let left_out = output.left_out();
    output.end()?;
    Ok(written - left_out)
}

enum Output {
    Parquet(Table<Box<dyn Write + Send>>),
    Csv {
        file: BufWriter<Box<dyn Write + Send>>,
        spreadsheet: bool,
    },
    Jsonl(BufWriter<Box<dyn Write + Send>>),
    Mooncake(Trace),
    Weka(Conversations),
}

impl Output {
    fn begin(options: &ExportOptions, file: Box<dyn Write + Send>) -> io::Result<Output> {
        Ok(match options.format {
            FileFormat::Parquet => Output::Parquet(Table::begin(
                file,
                COLUMNS.iter().map(Column::field).collect(),
            )?),
            FileFormat::Jsonl => Output::Jsonl(BufWriter::new(file)),
            FileFormat::Mooncake => Output::Mooncake(Trace::begin(file)),
            FileFormat::Sessions => Output::Mooncake(Trace::begin(file).without_blocks()),
            FileFormat::Weka => Output::Weka(Conversations::begin(file)),
            FileFormat::Csv => {
                let mut file = BufWriter::new(file);
                let names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
                write!(file, "{}\r\n", names.join(","))?;
                Output::Csv {
                    file,
                    spreadsheet: options.spreadsheet,
                }
            }
        })
    }

    fn row(&mut self, row: CallRow) -> io::Result<()> {
        match self {
            Output::Parquet(table) => table.row(row.values),
            Output::Csv { file, spreadsheet } => csv_line(file, &row.values, *spreadsheet),
            Output::Mooncake(trace) => trace.row(&row),
            Output::Weka(conversations) => conversations.row(&row),
            Output::Jsonl(file) => {
                let mut line = serde_json::to_vec(&row.record())?;
                line.push(b'\n');
                file.write_all(&line)
            }
        }
    }

    /// Calls that were not written, since the file has no place for them.
    fn left_out(&self) -> u64 {
        match self {
            Output::Mooncake(trace) => trace.left_out,
            Output::Weka(conversations) => conversations.left_out,
            _ => 0,
        }
    }

    fn end(self) -> io::Result<()> {
        match self {
            Output::Parquet(table) => table.end().map(|_| ()),
            Output::Mooncake(trace) => trace.end(),
            Output::Weka(conversations) => conversations.end(),
            Output::Csv { mut file, .. } | Output::Jsonl(mut file) => file.flush(),
        }
    }
}

fn csv_line(file: &mut impl Write, values: &[Value], spreadsheet: bool) -> io::Result<()> {
    let mut line = Vec::new();
    for (at, (column, value)) in COLUMNS.iter().zip(values).enumerate() {
        if at > 0 {
            line.push(b',');
        }
        match value {
            Value::Null => {}
            Value::Text(text) => line.extend(csv::text(text, spreadsheet).as_bytes()),
            Value::Whole(ms) if column.kind == ColumnKind::Instant => {
                write!(line, "{}", rfc3339_millis(timestamp(*ms).time()))?;
            }
            Value::Whole(number) => write!(line, "{number}")?,
            Value::Flag(flag) => write!(line, "{flag}")?,
            Value::Number(number) => write!(line, "{number}")?,
        }
    }
    line.extend(csv::LINE_END.as_bytes());
    file.write_all(&line)
}
