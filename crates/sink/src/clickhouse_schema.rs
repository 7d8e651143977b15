//! The table of ClickHouse: the statements that create it, and that bring an older table up to date.

use crate::table::fields;
use std::time::Duration;
use tokengauge_store::columns::ColumnKind;
use tokengauge_store::warehouse::{quoted, statements_of_sums, text};

/// Text columns whose values differ from call to call; the other text columns are `LowCardinality`.
const UNREPEATED: [&str; 6] = [
    "session",
    "user",
    "key_hash",
    "trace_id",
    "response_id",
    "segments",
];

/// Where calls are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The database.
    pub database: String,
    /// The table that sinks write to and that questions read.
    pub table: String,
    /// The cluster, if the table has shards or replicas. The table is then a `Distributed` one over `TABLE_local`.
    pub cluster: Option<String>,
    /// How long calls are kept; `None` is for ever.
    pub keep: Option<Duration>,
}

impl Schema {
    /// The statements, in their order. They may be run again.
    pub fn statements(&self) -> Vec<String> {
        let mut all = vec![self.create(), self.upgrade(&self.local())];
        all.extend(self.expire());
        if self.cluster.is_some() {
            all.push(self.distributed());
            all.push(self.add_columns(&self.table));
        } else {
            let keep = self.keep_days();
            all.extend(statements_of_sums(&self.database, &self.table, keep));
        }
        all
    }

    /// A query that returns `1` if the table exists without `inserted_at`, otherwise `0`.
    pub fn has_old_rows(&self) -> String {
        format!(
            "SELECT count() > 0 AND countIf(name = 'inserted_at') = 0 FROM system.columns \
             WHERE database = {} AND table = {} FORMAT TSV",
            text(&self.database),
            text(&self.local())
        )
    }

    /// The statements for a table without `inserted_at`. Its rows get the present time. Otherwise each of them would
    /// look new whenever it is read, so sums would be computed again and again.
    pub fn statements_with_old_rows(&self) -> Vec<String> {
        let mut all = self.statements();
        let table = self.name(&self.local());
        all.insert(
            2,
            format!("ALTER TABLE {table} MATERIALIZE COLUMN inserted_at"),
        );
        all
    }

    /// The table that has the rows.
    fn local(&self) -> String {
        match self.cluster {
            Some(_) => format!("{}_local", self.table),
            None => self.table.clone(),
        }
    }

    fn name(&self, table: &str) -> String {
        let cluster = self.cluster.as_deref();
        let cluster = cluster.map_or(String::new(), |cluster| {
            format!(" ON CLUSTER {}", quoted(cluster))
        });
        format!("{}.{}{cluster}", quoted(&self.database), quoted(table))
    }

    /// Rows with equal start and id are replaced by the one with the newest schema. A partition is one day.
    fn create(&self) -> String {
        let columns: Vec<String> = columns()
            .map(|(name, kind)| format!("  {name} {kind}"))
            .collect();
        let engine = match self.cluster {
            Some(_) => format!(
                "ReplicatedReplacingMergeTree({}, '{{replica}}', schema_version)",
                text(&format!(
                    "/clickhouse/tables/{{shard}}/{}/{}",
                    self.database,
                    self.local()
                ))
            ),
            None => "ReplacingMergeTree(schema_version)".to_owned(),
        };
        let settings = match self.cluster {
            Some(_) => "",
            None => "\nSETTINGS non_replicated_deduplication_window = 1000",
        };
        format!(
            "CREATE TABLE IF NOT EXISTS {} (\n{},\n  {INSERTED},\n  {INSERTED_INDEX},\n  {SESSION_INDEX}\n)\nENGINE = {engine}\n\
             PARTITION BY toDate(started_at)\nORDER BY (started_at, id){settings}",
            self.name(&self.local()),
            columns.join(",\n")
        )
    }

    /// Adds the columns and the index that an older version did not have.
    fn upgrade(&self, table: &str) -> String {
        let add = |index: &str| index.replace("INDEX", "ADD INDEX IF NOT EXISTS");
        format!(
            "{},\n  ADD COLUMN IF NOT EXISTS {INSERTED},\n  {},\n  {}",
            self.add_columns(table),
            add(INSERTED_INDEX),
            add(SESSION_INDEX)
        )
    }

    fn add_columns(&self, table: &str) -> String {
        let columns: Vec<String> = columns()
            .map(|(name, kind)| format!("  ADD COLUMN IF NOT EXISTS {name} {kind}"))
            .collect();
        format!("ALTER TABLE {}\n{}", self.name(table), columns.join(",\n"))
    }

    fn keep_days(&self) -> Option<u64> {
        Some(self.keep?.as_secs().div_ceil(86_400))
    }

    fn expire(&self) -> Option<String> {
        let days = self.keep_days()?;
        let table = self.name(&self.local());
        Some(format!(
            "ALTER TABLE {table} MODIFY TTL toDateTime(started_at) + INTERVAL {days} DAY"
        ))
    }

    /// All rows of a call are on one shard, so that a call that was delivered twice still counts once.
    fn distributed(&self) -> String {
        let cluster = self.cluster.as_deref().unwrap_or_default();
        let local = self.local();
        format!(
            "CREATE TABLE IF NOT EXISTS {} AS {}.{}\nENGINE = Distributed({}, {}, {}, cityHash64(id))",
            self.name(&self.table),
            quoted(&self.database),
            quoted(&local),
            text(cluster),
            text(&self.database),
            text(&local)
        )
    }
}

/// Finds the calls of a session without reading every call.
const SESSION_INDEX: &str = "INDEX session_index session TYPE bloom_filter GRANULARITY 4";

/// When ClickHouse inserted the row: sums are computed again for times with new rows.
const INSERTED: &str = "inserted_at DateTime('UTC') DEFAULT now()";
const INSERTED_INDEX: &str = "INDEX inserted_index inserted_at TYPE minmax GRANULARITY 4";

/// The names and types of all columns.
fn columns() -> impl Iterator<Item = (String, &'static str)> {
    let fields = fields().into_iter();
    fields.map(|(name, kind)| (quoted(name), column_type(name, kind)))
}

fn column_type(name: &str, kind: ColumnKind) -> &'static str {
    match (name, kind) {
        ("id", _) => "UUID",
        ("started_at", _) => "DateTime64(3, 'UTC')",
        ("schema_version", _) => "UInt16",
        (name, ColumnKind::Text) if UNREPEATED.contains(&name) => "Nullable(String)",
        (_, ColumnKind::Text) => "LowCardinality(Nullable(String))",
        (_, ColumnKind::Instant) => "Nullable(DateTime64(3, 'UTC'))",
        (_, ColumnKind::Flag) => "Nullable(Bool)",
        (_, ColumnKind::Count) => "Nullable(UInt64)",
        (_, ColumnKind::Number) => "Nullable(Float64)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema {
            database: "d".to_owned(),
            table: "t".to_owned(),
            ..Schema::default()
        }
    }

    #[test]
    fn a_table_on_one_server_is_created_and_upgraded() {
        let statements = schema().statements();
        assert_eq!(statements.len(), 10, "two of the table, eight of its sums");
        assert!(
            statements[0]
                .starts_with("CREATE TABLE IF NOT EXISTS `d`.`t` (\n  `schema_version` UInt16,")
        );
        assert!(statements[0].contains("ENGINE = ReplacingMergeTree(schema_version)"));
        assert!(statements[1].starts_with("ALTER TABLE `d`.`t`\n  ADD COLUMN IF NOT EXISTS"));
    }

    #[test]
    fn a_table_on_a_cluster_is_distributed_by_call() {
        let schema = Schema {
            cluster: Some("c".to_owned()),
            keep: Some(Duration::from_secs(90 * 86_400)),
            ..schema()
        };
        let statements = schema.statements();
        assert!(
            statements[0].starts_with("CREATE TABLE IF NOT EXISTS `d`.`t_local` ON CLUSTER `c`")
        );
        let replicated = "ReplicatedReplacingMergeTree('/clickhouse/tables/{shard}/d/t_local', '{replica}', schema_version)";
        assert!(statements[0].contains(replicated), "{}", statements[0]);
        assert!(statements[2].ends_with("INTERVAL 90 DAY"));
        assert!(statements[3].ends_with("Distributed('c', 'd', 't_local', cityHash64(id))"));
        assert!(statements[4].starts_with("ALTER TABLE `d`.`t` ON CLUSTER `c`"));
    }
}
