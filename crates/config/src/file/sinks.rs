//! The tables of sinks.

use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use super::ClientTls;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_sink::SinkKind;

pub(crate) const DEFAULT_DATABASE: &str = "default";
pub(crate) const DEFAULT_QUEUE: usize = 10_000;
pub(crate) const DEFAULT_TABLE: &str = "tokengauge_calls";
pub(crate) const SINK_TIMEOUT: Duration = Duration::from_secs(30);
/// The most calls of a batch, which is in memory: some 3 KB each.
const MAX_BATCH: usize = 100_000;
const MAX_QUEUE: usize = 1_000_000;

/// A store that gets every finished call ([sinks](sinks.md)): a table of ClickHouse, or Parquet files in a bucket of S3.
/// It is sent what the ledger has, and survives days without the store. Calls that are in no ledger wait in memory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sink {
    /// What it writes to.
    #[schemars(with = "EnumNames<SinkKind>")]
    pub(crate) kind: Spanned<SinkKind>,
    /// Its name in metrics and in the ledger; its kind by default.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// ClickHouse's HTTP interface; of S3 the endpoint, that of AWS by default.
    pub(crate) url: Option<Spanned<String>>,
    /// ClickHouse: the database.
    #[schemars(extend("default" = DEFAULT_DATABASE))]
    pub(crate) database: Option<Spanned<String>>,
    /// ClickHouse: the table, which `tokengauge export sink ddl` makes.
    #[schemars(extend("default" = DEFAULT_TABLE))]
    pub(crate) table: Option<Spanned<String>>,
    /// ClickHouse: the user; that of `CLICKHOUSE_USER` by default.
    pub(crate) user: Option<Spanned<String>>,
    /// ClickHouse: a file with the password; that of `CLICKHOUSE_PASSWORD` by default.
    pub(crate) password_file: Option<Spanned<PathBuf>>,
    /// S3: the bucket.
    pub(crate) bucket: Option<Spanned<String>>,
    /// S3: what names of objects begin with.
    pub(crate) prefix: Option<Spanned<String>>,
    /// S3: the region; that of `AWS_REGION` by default.
    pub(crate) region: Option<Spanned<String>>,
    /// S3: a file with the id of the access key; by default AWS's variables, a web identity, EKS Pod Identity or the machine's role.
    pub(crate) access_key_id_file: Option<Spanned<PathBuf>>,
    /// S3: a file with the secret of that key.
    pub(crate) secret_access_key_file: Option<Spanned<PathBuf>>,
    /// TLS towards the store.
    #[serde(default)]
    pub(crate) tls: ClientTls,
    /// Calls of a batch at most, which is sent as soon as there are so many: 5000 to ClickHouse, 20000 to S3 by default.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_BATCH, "x-reason" = ", since a batch is in memory"))]
    pub(crate) batch_rows: Option<usize>,
    /// How long the first call of a smaller batch waits for others: 5s for ClickHouse, 1m for S3 by default.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) batch_wait: Option<Span>,
    /// How long a request may take.
    #[schemars(extend("default" = Span(SINK_TIMEOUT), "x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) timeout: Option<Span>,
    /// Calls that wait in memory at most: there is no ledger, or it cannot be written. A call is some 2 KB.
    #[schemars(extend("default" = DEFAULT_QUEUE, "minimum" = 1, "maximum" = MAX_QUEUE))]
    pub(crate) queue: Option<usize>,
}
