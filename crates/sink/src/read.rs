use crate::clickhouse::{ClickHouse, quoted};
use crate::settings::{ClickHouseSettings, Secret};
use crate::sink::SendError;
use crate::table::{Origin, instant};
use http::Uri;
use http::uri::Scheme;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::CallRecord;
use tokengauge_core::pod::PodName;
use tokengauge_core::time::duration_since_1970;
use tokengauge_net::client::NoClient;
use tokengauge_net::tls::ClientTls;
use tokengauge_store::columns::{COLUMNS, ColumnKind, Value, concurrency, record};

/// The table that is read if the URL names none.
const TABLE: &str = "tokengauge_calls";
/// Number of calls per request. A response may have 32 MiB; a call has about 2.5 KB, or 8 KB with
/// long names and segments.
const PAGE: usize = 4_000;
const TIMEOUT: Duration = Duration::from_secs(120);

/// A ClickHouse table as a URL: `clickhouse://user@host:8123/database?table=calls`. The scheme
/// `clickhouses` uses TLS.
#[derive(Clone, Debug, PartialEq)]
pub struct WarehouseUrl {
    settings: ClickHouseSettings,
}

impl FromStr for WarehouseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<WarehouseUrl, String> {
        let expected =
            "is not a URL such as clickhouse://user@host:8123/database?table=tokengauge_calls";
        let uri: Uri = text.parse().map_err(|_| expected.to_owned())?;
        let (scheme, port) = match uri.scheme_str() {
            Some("clickhouse") => (Scheme::HTTP, 8123),
            Some("clickhouses") => (Scheme::HTTPS, 8443),
            Some("http") => (Scheme::HTTP, 80),
            Some("https") => (Scheme::HTTPS, 443),
            _ => return Err(expected.to_owned()),
        };
        let authority = uri.authority().ok_or(expected)?;
        let (user, host) = match authority.as_str().rsplit_once('@') {
            Some((user, _)) if user.contains(':') => {
                return Err(
                    "contains a password; use CLICKHOUSE_PASSWORD or password_file \
                     instead"
                        .to_owned(),
                );
            }
            Some((user, host)) => (Some(user.to_owned()), host),
            None => (None, authority.as_str()),
        };
        let host = match authority.port() {
            Some(_) => host.to_owned(),
            None => format!("{host}:{port}"),
        };
        let database = match uri.path().trim_matches('/') {
            "" => "default",
            database => database,
        };
        let mut settings = ClickHouseSettings {
            url: Uri::builder()
                .scheme(scheme)
                .authority(host)
                .path_and_query("/")
                .build()
                .map_err(|error| error.to_string())?,
            database: database.to_owned(),
            table: TABLE.to_owned(),
            user,
            password: Secret::Variable("CLICKHOUSE_PASSWORD"),
            tls: ClientTls::default(),
            timeout: TIMEOUT,
        };
        let query = uri.query().unwrap_or_default().as_bytes();
        let (mut certificate, mut private_key) = (None, None);
        for (key, value) in form_urlencoded::parse(query) {
            match &*key {
                "table" => settings.table = value.into_owned(),
                "ca" => settings.tls.ca = Some(PathBuf::from(&*value)),
                "certificate" => certificate = Some(PathBuf::from(&*value)),
                "key" => private_key = Some(PathBuf::from(&*value)),
                "password_file" => settings.password = Secret::File(PathBuf::from(&*value)),
                other => {
                    return Err(format!(
                        "has the unknown parameter `{other}`; use table, ca, certificate, key or \
                         password_file"
                    ));
                }
            }
        }
        settings.tls.identity = match (certificate, private_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("needs `certificate` and `key` together".to_owned()),
        };
        Ok(WarehouseUrl { settings })
    }
}

impl WarehouseUrl {
    /// The table that a sink writes to.
    pub fn of(settings: ClickHouseSettings) -> WarehouseUrl {
        WarehouseUrl { settings }
    }

    pub fn address(&self) -> String {
        let at = self.settings.url.authority().map_or("", |at| at.as_str());
        format!("{at} {}.{}", self.settings.database, self.settings.table)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError<E: std::error::Error> {
    #[error(transparent)]
    Warehouse(#[from] SendError),
    /// A response is not a list of calls.
    #[error("the response of the store cannot be parsed: {0}")]
    Response(String),
    /// The receiver of the calls returned an error.
    #[error(transparent)]
    Taken(E),
}

#[derive(Clone, Debug, PartialEq)]
pub struct WarehouseRow {
    pub pod: Option<PodName>,
    pub values: Vec<Value>,
}

impl WarehouseRow {
    pub fn started_ms(&self) -> i64 {
        crate::table::started_ms(&self.values)
    }

    pub fn record(&self) -> (CallRecord, Option<u32>) {
        let record = CallRecord {
            pod: self.pod.clone().map(Arc::new),
            ..record(&self.values)
        };
        (record, concurrency(&self.values))
    }
}

/// A time range for the start of calls, in milliseconds since 1970; the end is excluded.
pub type Span = (i64, i64);

#[derive(Debug)]
pub struct WarehouseReader {
    settings: ClickHouseSettings,
    client: ClickHouse,
}

impl WarehouseReader {
    /// A reader of the table that the URL names.
    ///
    /// # Errors
    /// If the URL or a TLS file cannot be used.
    pub fn new(url: &WarehouseUrl) -> Result<WarehouseReader, NoClient> {
        Ok(WarehouseReader {
            client: ClickHouse::new(url.settings.clone(), &Origin::default())?,
            settings: url.settings.clone(),
        })
    }

    /// Reads the calls in the order of their start, and passes them on a few thousand at a time.
    /// Returns the number of calls. Columns that the table lacks are unknown; columns that this
    /// version does not know are ignored.
    ///
    /// # Errors
    /// If the warehouse does not respond or the receiver returns an error.
    pub async fn read<E: std::error::Error>(
        &self,
        (since, until): Span,
        mut take: impl FnMut(&[WarehouseRow]) -> Result<(), E>,
    ) -> Result<u64, ReadError<E>> {
        let until = until.min(LATEST);
        let (mut after, mut found) = (None, 0);
        loop {
            let statement = select(&self.settings, since, until, after.as_ref());
            let rows = self.rows(&statement, row).await?;
            after = rows
                .last()
                .map(|row| (row.started_ms(), crate::table::id(&row.values).to_owned()));
            take(&rows).map_err(ReadError::Taken)?;
            found += rows.len() as u64;
            if rows.len() < PAGE {
                return Ok(found);
            }
        }
    }

    /// The number of calls that began in each interval of `every` milliseconds, by the number of
    /// the interval since 1970. Intervals without calls are left out.
    ///
    /// # Errors
    /// If the warehouse does not respond.
    pub async fn counts(
        &self,
        (since, until): Span,
        every: i64,
    ) -> Result<BTreeMap<i64, u64>, ReadError<Infallible>> {
        let table = from(&self.settings, since, until.min(LATEST));
        let statement = format!(
            "SELECT intDiv(toUnixTimestamp64Milli(started_at), {every}) AS interval_number, count() AS calls {table} \
             GROUP BY interval_number {FORMAT}"
        );
        let count = |object: &Map<String, Json>| {
            let number = |name: &str| object.get(name).and_then(Json::as_i64);
            number("interval_number").zip(number("calls"))
        };
        let counts = self.rows(&statement, count).await?.into_iter().flatten();
        Ok(counts
            .map(|(interval, calls)| (interval, calls.unsigned_abs()))
            .collect())
    }

    async fn rows<T, E: std::error::Error>(
        &self,
        statement: &str,
        row: impl Fn(&Map<String, Json>) -> T,
    ) -> Result<Vec<T>, ReadError<E>> {
        let body = self.client.run(statement).await?;
        let lines = body.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let object: Map<String, Json> = serde_json::from_slice(line)
                    .map_err(|error| ReadError::Response(error.to_string()))?;
                Ok(row(&object))
            })
            .collect()
    }
}

/// 2200-01-01 in milliseconds: DateTime64 ends before 2300.
const LATEST: i64 = 7_258_118_400_000;

/// Settings for how ClickHouse formats numbers and rows.
const FORMAT: &str = "SETTINGS output_format_json_quote_64bit_integers = 0, output_format_json_quote_denormals = 0, \
    do_not_merge_across_partitions_select_final = 1 FORMAT JSONEachRow";

/// The `FROM` clause for calls that began in a time range, each call once.
fn from(settings: &ClickHouseSettings, since: i64, until: i64) -> String {
    let (database, table) = (quoted(&settings.database), quoted(&settings.table));
    // Rows with equal ids are in the same partition, which is one day, so partitions need no merge.
    format!(
        "FROM {database}.{table} FINAL WHERE started_at >= {} AND started_at < {}",
        at(since),
        at(until)
    )
}

fn at(ms: i64) -> String {
    format!("toDateTime64('{}', 3, 'UTC')", instant(ms))
}

fn select(
    settings: &ClickHouseSettings,
    since: i64,
    until: i64,
    after: Option<&(i64, String)>,
) -> String {
    let behind = after.map_or(String::new(), |(ms, id)| {
        let id: String = id
            .chars()
            .filter(|letter| letter.is_ascii_hexdigit() || *letter == '-')
            .collect();
        format!(" AND (started_at, id) > ({}, toUUID('{id}'))", at(*ms))
    });
    let table = from(settings, since, until);
    format!("SELECT * {table}{behind} ORDER BY started_at, id LIMIT {PAGE} {FORMAT}")
}

/// The values of a row. A missing value, or one of another type, is unknown.
fn row(object: &Map<String, Json>) -> WarehouseRow {
    let columns = COLUMNS.iter();
    let values = columns.map(|column| {
        let value = object.get(column.name);
        value
            .and_then(|value| value_of(value, column.kind))
            .unwrap_or(Value::Null)
    });
    let text = |name: &str| Some(object.get(name)?.as_str()?.to_owned());
    let pod = PodName {
        cluster: text("cluster"),
        namespace: text("namespace"),
        name: text("pod").or_else(|| text("instance")),
    };
    WarehouseRow {
        values: values.collect(),
        pod: pod.known(),
    }
}

fn value_of(value: &Json, kind: ColumnKind) -> Option<Value> {
    Some(match kind {
        ColumnKind::Text => Value::text(value.as_str()?),
        ColumnKind::Count => Value::Whole(value.as_i64()?),
        ColumnKind::Number => Value::Number(value.as_f64()?),
        ColumnKind::Flag => Value::Flag(value.as_bool().or(value.as_i64().map(|flag| flag != 0))?),
        ColumnKind::Instant => {
            let text = value.as_str()?;
            let at = humantime::parse_rfc3339_weak(text.trim_end_matches('Z')).ok()?;
            let ms = duration_since_1970(at).as_millis();
            Value::Whole(i64::try_from(ms).ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_table() {
        let url: WarehouseUrl = "clickhouse://me@db/llm?table=calls&password_file=/p"
            .parse()
            .expect("a URL");
        assert_eq!(url.settings.url, "http://db:8123/");
        assert_eq!(
            (url.settings.database.as_str(), url.settings.table.as_str()),
            ("llm", "calls")
        );
        assert_eq!(url.settings.user.as_deref(), Some("me"));
        assert_eq!(url.settings.password, Secret::File("/p".into()));
        let url: WarehouseUrl = "https://db".parse().expect("a URL");
        assert_eq!(url.address(), "db:443 default.tokengauge_calls");
        let url: WarehouseUrl = "https://db?ca=/ca&certificate=/c&key=/k"
            .parse()
            .expect("a URL");
        assert_eq!(url.settings.tls.identity, Some(("/c".into(), "/k".into())));
        for wrong in [
            "db",
            "ftp://db",
            "clickhouse://a:b@db",
            "http://db?tabel=x",
            "https://db?key=/k",
        ] {
            wrong.parse::<WarehouseUrl>().expect_err(wrong);
        }
    }

    #[test]
    fn a_row_without_a_column_leaves_it_unknown() {
        let json = "{\"id\":\"i\",\"started_at\":\"2025-11-25 19:33:40.123\",\"hop\":2,\"warm_up\":true,\
            \"cost_usd\":1,\"newer\":5,\"model\":null,\"namespace\":\"agents\",\"instance\":\"host-1\"}";
        let row = row(&serde_json::from_str(json).expect("an object"));
        let of = |name: &str| {
            row.values[COLUMNS
                .iter()
                .position(|column| column.name == name)
                .expect("a column")]
            .clone()
        };
        assert_eq!(of("started_at"), Value::Whole(1_764_099_220_123));
        assert_eq!(of("hop"), Value::Whole(2));
        assert_eq!(of("warm_up"), Value::Flag(true));
        assert_eq!(of("cost_usd"), Value::Number(1.0));
        assert_eq!((of("model"), of("route")), (Value::Null, Value::Null));
        let pod = row.pod.expect("a pod");
        assert_eq!(pod.namespace.as_deref(), Some("agents"));
        assert_eq!(pod.name.as_deref(), Some("host-1"), "no pod: the instance");
    }
}
