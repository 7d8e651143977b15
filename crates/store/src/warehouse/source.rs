//! Where calls are read from, and which of the columns are there.

use super::sql::{Span, quoted, text, with_figures};
use super::{Warehouse, lines, parsed};
use crate::columns::{COLUMNS, ColumnKind};
use crate::ledger::QueryError;
use parking_lot::Mutex;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After this time the columns are looked up again: somebody may have upgraded the table.
const COLUMNS_FOR: Duration = Duration::from_secs(60);

/// What ClickHouse reads calls from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Table {
    /// A table that sinks write to.
    Calls {
        /// The database.
        database: String,
        /// The table.
        table: String,
    },
    /// Parquet files that sinks of kind `s3` wrote: an URL with wildcards, such as
    /// `https://bucket.s3.amazonaws.com/calls/**/*.parquet`.
    S3 {
        /// The URL.
        url: String,
    },
}

impl Table {
    /// The table's name in errors.
    pub fn name(&self) -> String {
        match self {
            Table::Calls { database, table } => format!("{database}.{table}"),
            Table::S3 { url } => url.clone(),
        }
    }

    pub(super) fn relation(&self) -> String {
        match self {
            Table::Calls { database, table } => format!("{}.{}", quoted(database), quoted(table)),
            Table::S3 { url } => format!("s3({}, 'Parquet')", text(url)),
        }
    }
}

type Columns = Arc<BTreeSet<String>>;

#[derive(Debug)]
pub(super) struct Source {
    pub(super) table: Table,
    columns: Mutex<Option<(Instant, Columns)>>,
    /// Whether the table has sums, and when that was looked up.
    pub(super) sums: Mutex<Option<(Instant, bool)>>,
}

impl Source {
    pub(super) fn new(table: Table) -> Source {
        Source {
            table,
            columns: Mutex::new(None),
            sums: Mutex::new(None),
        }
    }
}

/// Columns that say which process a call is from. Those of the call follow.
const ORIGIN: [&str; 4] = ["cluster", "namespace", "pod", "instance"];

impl Warehouse {
    /// The columns that the table has.
    fn columns(&self) -> Result<Columns, QueryError> {
        if let Some((read_at, columns)) = &*self.source.columns.lock()
            && read_at.elapsed() < COLUMNS_FOR
        {
            return Ok(Arc::clone(columns));
        }
        let relation = self.source.table.relation();
        let body = self.run(&format!(
            "DESCRIBE TABLE {relation} FORMAT JSONCompactEachRow"
        ))?;
        let mut columns = BTreeSet::new();
        for line in lines(&body) {
            let row: Vec<Json> = parsed(line)?;
            columns.extend(row.first().and_then(Json::as_str).map(str::to_owned));
        }
        let columns = Arc::new(columns);
        *self.source.columns.lock() = Some((Instant::now(), Arc::clone(&columns)));
        Ok(columns)
    }

    /// `SELECT fields` over the calls of a time that meet the conditions, each call once; `rest` is what follows `WHERE`. Fields
    /// and conditions may name columns of the table and [`FIGURES`](super::sql::FIGURES). Columns that an older table lacks are unknown.
    pub(super) fn select(
        &self,
        fields: &str,
        span: Span,
        conditions: &[String],
        rest: &str,
    ) -> Result<String, QueryError> {
        let there = self.columns()?;
        let missing = missing(&there);
        let with: Vec<String> = missing.chain([with_figures()]).collect();
        let from = self.from(span);
        let mut all = match self.source.table {
            Table::Calls { .. } => span.conditions(),
            Table::S3 { .. } => Vec::new(),
        };
        all.extend_from_slice(conditions);
        let condition = all_of(&all);
        let with = with.join(", ");
        Ok(format!(
            "WITH {with} SELECT {fields} FROM {from} {condition} {rest}"
        ))
    }

    /// The calls of a time, each once. A call that was delivered twice is twice in the table until ClickHouse merges its parts,
    /// and twice in files for ever.
    fn from(&self, span: Span) -> String {
        let relation = self.source.table.relation();
        match self.source.table {
            Table::Calls { .. } => format!("{relation} FINAL"),
            Table::S3 { .. } => {
                let condition = all_of(&span.conditions());
                format!("(SELECT * FROM {relation} {condition} LIMIT 1 BY started_at, id)")
            }
        }
    }

    /// When the oldest call began, in milliseconds since 1970; `None` without calls.
    pub(super) fn first_ms(&self) -> Result<Option<i64>, QueryError> {
        let relation = self.source.table.relation();
        let rows = self.rows(&format!(
            "SELECT toUnixTimestamp64Milli(min(started_at)) FROM {relation}"
        ))?;
        let first = rows.first().and_then(|row| row.whole(0));
        Ok(first.filter(|ms| *ms > 0))
    }

    /// The rows of the table. A call that was delivered twice counts twice until ClickHouse merges its parts.
    ///
    /// # Errors
    /// Returns a [`QueryError`] if the store cannot answer.
    pub fn count(&self) -> Result<u64, QueryError> {
        let relation = self.source.table.relation();
        let rows = self.rows(&format!("SELECT count() FROM {relation}"))?;
        Ok(rows.first().map_or(0, |row| row.count(0)))
    }

    /// When the newest call began, in milliseconds since 1970; `None` without calls.
    pub(super) fn last_ms(&self) -> Result<Option<i64>, QueryError> {
        let relation = self.source.table.relation();
        let rows = self.rows(&format!(
            "SELECT toUnixTimestamp64Milli(max(started_at)) FROM {relation}"
        ))?;
        let last = rows.first().and_then(|row| row.whole(0));
        Ok(last.filter(|ms| *ms > 0))
    }
}

/// `WHERE` with all conditions; nothing without any.
pub(super) fn all_of(conditions: &[String]) -> String {
    if conditions.is_empty() {
        return String::new();
    }
    format!("WHERE {}", conditions.join(" AND "))
}

/// The columns that are not there, as unknown ones.
fn missing(there: &BTreeSet<String>) -> impl Iterator<Item = String> + '_ {
    let of_call = COLUMNS.iter().map(|column| {
        let kind = match column.kind {
            ColumnKind::Text => "String",
            ColumnKind::Instant => "DateTime64(3, 'UTC')",
            ColumnKind::Flag => "Bool",
            ColumnKind::Count => "UInt64",
            ColumnKind::Number => "Float64",
        };
        (column.name, kind)
    });
    let origin = ORIGIN.iter().map(|name| (*name, "String"));
    origin
        .chain(of_call)
        .filter(|(name, _)| !there.contains(*name))
        .map(|(name, kind)| {
            format!(
                "CAST(NULL, {}) AS {name}",
                text(&format!("Nullable({kind})"))
            )
        })
}
