//! The settings of a sink.

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
    /// ClickHouse, over HTTP.
    ClickHouse,
    /// Parquet files in a bucket.
    S3,
}

impl SinkKind {
    /// Its word in the configuration.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Calls of one batch, by default: an insert is worth its cost from some thousand on, a file from many more.
    pub fn batch_rows(self) -> usize {
        match self {
            SinkKind::ClickHouse => 5_000,
            SinkKind::S3 => 20_000,
        }
    }

    /// How long the first call of a batch waits for others, by default.
    pub fn batch_wait(self) -> Duration {
        match self {
            SinkKind::ClickHouse => Duration::from_secs(5),
            SinkKind::S3 => Duration::from_secs(60),
        }
    }
}

/// Where a secret is. It is read again for every batch, so that it can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// In a file, without the white space at its ends.
    File(PathBuf),
    /// In a variable of the environment, which may be missing.
    Variable(&'static str),
}

impl Secret {
    /// The secret; `None` where its variable is missing or empty.
    ///
    /// # Errors
    /// Where the file cannot be read; the text names it.
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
    /// Its HTTP interface.
    pub url: Uri,
    pub database: String,
    pub table: String,
    /// The user; that of `CLICKHOUSE_USER`, else `default`.
    pub user: Option<String>,
    pub password: Secret,
    pub tls: ClientTls,
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct S3Settings {
    /// The endpoint; that of AWS by default.
    pub url: Option<Uri>,
    pub bucket: String,
    /// What names of objects begin with; empty for none.
    pub prefix: String,
    /// The region; that of `AWS_REGION`, else `us-east-1`.
    pub region: Option<String>,
    /// Key and secret, in files. Without them AWS's variables, a web identity, EKS Pod Identity or the machine's own role.
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
    /// Its name, in metrics and in the ledger.
    pub name: String,
    pub location: Location,
    /// Calls of one batch at most; a batch of so many is due at once.
    pub batch_rows: usize,
    /// How long the first call of a smaller batch waits for others.
    pub batch_wait: Duration,
    /// Calls that wait in memory at most, where there is no ledger.
    pub queue: usize,
}

impl SinkSettings {
    pub fn kind(&self) -> SinkKind {
        match self.location {
            Location::ClickHouse(_) => SinkKind::ClickHouse,
            Location::S3(_) => SinkKind::S3,
        }
    }

    /// Where it writes to, for people: without secrets.
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
