use super::super::scalar::Span;
use super::super::schema_types::{EnumNames, Label};
use super::super::spanned::Spanned;
use super::ClientTls;
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_sink::{INSERTION_LIMIT, SinkKind};

pub(crate) const DEFAULT_DATABASE: &str = "default";
pub(crate) const DEFAULT_QUEUE: usize = 10_000;
pub(crate) const DEFAULT_TABLE: &str = "tokengauge_calls";
pub(crate) const SINK_TIMEOUT: Duration = Duration::from_secs(30);
/// A batch is in memory, with about 3 KB per call.
const MAX_BATCH: usize = 100_000;
const MAX_QUEUE: usize = 1_000_000;

/// A warehouse that receives every finished call ([sinks](sinks.md)): a table in ClickHouse, or Parquet files in an S3
/// bucket. Calls are read from the ledger, so they survive days without the warehouse. Without a ledger, calls wait in
/// memory.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sink {
    /// The type of the warehouse.
    #[schemars(with = "EnumNames<SinkKind>")]
    pub(crate) kind: Spanned<SinkKind>,
    /// The name of the sink in metrics and in the ledger. Two sinks of the same kind need different names. The default
    /// is `kind`.
    #[schemars(with = "Option<Label>")]
    pub(crate) name: Option<Spanned<String>>,
    /// The URL of ClickHouse's HTTP interface, such as `http://clickhouse:8123`, or of the S3 endpoint. The default for
    /// S3 is AWS.
    pub(crate) url: Option<Spanned<String>>,
    /// The name of the ClickHouse database, which must exist.
    #[schemars(extend("default" = DEFAULT_DATABASE))]
    pub(crate) database: Option<Spanned<String>>,
    /// The name of the ClickHouse table. `tokengauge export sink ddl` prints the statements that create the table.
    #[schemars(extend("default" = DEFAULT_TABLE))]
    pub(crate) table: Option<Spanned<String>>,
    /// The ClickHouse user. The default is the environment variable `CLICKHOUSE_USER`.
    pub(crate) user: Option<Spanned<String>>,
    /// The path of a file with the ClickHouse password. The default is the environment variable `CLICKHOUSE_PASSWORD`.
    pub(crate) password_file: Option<Spanned<PathBuf>>,
    /// The name of the S3 bucket. Required for `kind = "s3"`.
    pub(crate) bucket: Option<Spanned<String>>,
    /// The prefix of object names in the S3 bucket, such as `calls`. There is no prefix by default.
    pub(crate) prefix: Option<Spanned<String>>,
    /// The region of the S3 bucket, such as `eu-central-1`. The default is the environment variable `AWS_REGION`.
    pub(crate) region: Option<Spanned<String>>,
    /// The path of a file with the S3 access key id. The default is AWS's variables, a web identity, EKS Pod Identity
    /// or the role of the machine.
    pub(crate) access_key_id_file: Option<Spanned<PathBuf>>,
    /// The path of a file with the secret of the S3 access key. Required with `access_key_id_file`.
    pub(crate) secret_access_key_file: Option<Spanned<PathBuf>>,
    /// TLS for connections to the warehouse.
    #[serde(default)]
    pub(crate) tls: ClientTls,
    /// The largest number of calls in a batch. A full batch is sent at once. The default is 5000 for ClickHouse and
    /// 20000 for S3.
    #[schemars(extend("minimum" = 1, "maximum" = MAX_BATCH, "x-reason" = ", since a batch is in memory"))]
    pub(crate) batch_rows: Option<usize>,
    /// How long the first call of an incomplete batch waits for more calls. The default is `5s` for ClickHouse and `1m`
    /// for S3.
    #[schemars(extend("x-exclusiveMinimum" = Span(Duration::ZERO)))]
    pub(crate) batch_wait: Option<Span>,
    /// How long one request to the warehouse may take.
    #[schemars(extend(
        "default" = Span(SINK_TIMEOUT),
        "x-exclusiveMinimum" = Span(Duration::ZERO),
        "x-maximum" = Span(INSERTION_LIMIT),
    ))]
    pub(crate) timeout: Option<Span>,
    /// The largest number of calls that wait in memory, with about 2 KB each. Calls wait in memory if there is no
    /// ledger, or if the ledger cannot be written.
    #[schemars(extend("default" = DEFAULT_QUEUE, "minimum" = 1, "maximum" = MAX_QUEUE))]
    pub(crate) queue: Option<usize>,
}
