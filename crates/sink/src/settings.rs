use http::Uri;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tokengauge_net::tls::ClientTls;

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, strum::IntoStaticStr, strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SinkKind {
    ClickHouse,
    S3,
}

impl SinkKind {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Default batch size in calls: inserts pay off from some thousand calls on, files from many
    /// more.
    pub fn batch_rows(self) -> usize {
        match self {
            SinkKind::ClickHouse => 5_000,
            SinkKind::S3 => 20_000,
        }
    }

    pub fn batch_wait(self) -> Duration {
        match self {
            SinkKind::ClickHouse => Duration::from_secs(5),
            SinkKind::S3 => Duration::from_secs(60),
        }
    }
}

/// Source of a secret. The secret is read again for every batch, so that it can be rotated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// A file; white space at both ends is removed.
    File(PathBuf),
    /// An environment variable, which may be missing.
    Variable(&'static str),
}

impl Secret {
    /// The secret; `None` if the variable is missing or empty.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read; the message names the file.
    pub fn read(&self) -> io::Result<Option<String>> {
        let text = match self {
            Secret::File(path) => std::fs::read_to_string(path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?,
            Secret::Variable(name) => std::env::var(name).unwrap_or_default(),
        };
        let text = text.trim();
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClickHouseSettings {
    /// URL of the HTTP interface.
    pub url: Uri,
    pub database: String,
    pub table: String,
    /// Defaults to `CLICKHOUSE_USER`, then `default`.
    pub user: Option<String>,
    pub password: Secret,
    pub tls: ClientTls,
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct S3Settings {
    /// Defaults to the endpoint of AWS.
    pub url: Option<Uri>,
    pub bucket: String,
    pub prefix: String,
    /// Defaults to `AWS_REGION`, then `us-east-1`.
    pub region: Option<String>,
    /// Files with access key and secret. Defaults to AWS's environment variables, a web identity,
    /// EKS Pod Identity or the instance role.
    pub keys: Option<(Secret, Secret)>,
    pub tls: ClientTls,
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Location {
    ClickHouse(ClickHouseSettings),
    S3(S3Settings),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SinkSettings {
    pub name: String,
    pub location: Location,
    /// Maximum number of calls per batch. A batch of this size is sent at once.
    pub batch_rows: usize,
    /// How long the first call of a smaller batch waits for others.
    pub batch_wait: Duration,
    /// Maximum number of calls that wait in memory if there is no ledger.
    pub queue: usize,
}

impl SinkSettings {
    pub fn kind(&self) -> SinkKind {
        match self.location {
            Location::ClickHouse(_) => SinkKind::ClickHouse,
            Location::S3(_) => SinkKind::S3,
        }
    }

    pub fn address(&self) -> String {
        match &self.location {
            Location::ClickHouse(to) => {
                let at = to
                    .url
                    .authority()
                    .map_or("", |authority| authority.as_str());
                format!("{at} {}.{}", to.database, to.table)
            }
            Location::S3(to) => format!("s3://{}/{}", to.bucket, to.prefix),
        }
    }
}
