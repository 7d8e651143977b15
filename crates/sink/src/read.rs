//! Calls read back from ClickHouse.

use crate::clickhouse::{ClickHouse, quoted};
use crate::settings::{ClickHouseSettings, Secret};
use crate::sink::SendError;
use crate::table::{Origin, instant};
use http::Uri;
use http::uri::Scheme;
use serde_json::{Map, Value as Json};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime};
use tokengauge_core::time::duration_since_1970;
use tokengauge_net::tls::ClientTls;
use tokengauge_store::columns::{COLUMNS, ColumnKind, Value};

/// The table where the URL names none.
const TABLE: &str = "tokengauge_calls";
/// Calls of one request: an answer may have 32 MiB, and a call has some 2.5 KB, 8 with long names and segments.
const PAGE: usize = 4_000;
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A table of ClickHouse as a URL: `clickhouse://user@host:8123/database?table=calls`; `clickhouses` is with TLS, as
/// `https` is.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreUrl {
    settings: ClickHouseSettings,
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<StoreUrl, String> {
        let expected =
            "is no URL such as clickhouse://user@host:8123/database?table=tokengauge_calls";
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
                    "has a password; give it by CLICKHOUSE_PASSWORD or password_file".to_owned(),
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
        for (key, value) in form_urlencoded::parse(query) {
            match &*key {
                "table" => settings.table = value.into_owned(),
                "ca" => settings.tls.ca = Some(PathBuf::from(&*value)),
                "password_file" => settings.password = Secret::File(PathBuf::from(&*value)),
                other => {
                    return Err(format!(
                        "has `{other}`; table, ca and password_file are known"
                    ));
                }
            }
        }
        Ok(StoreUrl { settings })
    }
}

impl StoreUrl {
    /// The table that a sink writes to.
    pub fn of(settings: ClickHouseSettings) -> StoreUrl {
        StoreUrl { settings }
    }

    /// Where it is, for people.
    pub fn address(&self) -> String {
        let at = self.settings.url.authority().map_or("", |at| at.as_str());
        format!("{at} {}.{}", self.settings.database, self.settings.table)
    }
}

/// Why calls cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E: std::error::Error> {
    /// The URL cannot be used.
    #[error("{0}")]
    Url(String),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] SendError),
    /// What it answers is no call.
    #[error("the store's answer cannot be read: {0}")]
    Answer(String),
    /// The calls cannot be taken.
    #[error(transparent)]
    Taken(E),
}

/// Reads the calls that began within a time, in the order of their start, and gives them away some thousand at a time;
/// how many there were. A column that the table does not have is unknown, one that this version does not know is left
/// out.
///
/// # Errors
/// Where the store does not answer or the calls cannot be taken.
pub async fn read_calls<E: std::error::Error>(
    url: &StoreUrl,
    (since, until): (SystemTime, SystemTime),
    mut take: impl FnMut(&[Vec<Value>]) -> Result<(), E>,
) -> Result<u64, ReadError<E>> {
    let client = ClickHouse::new(url.settings.clone(), &Origin::default());
    let client = client.map_err(|error| ReadError::Url(error.to_string()))?;
    let ms = |at| i64::try_from(duration_since_1970(at).as_millis()).unwrap_or(i64::MAX);
    let (since, until) = (ms(since), ms(until).min(LATEST));
    let (mut after, mut found) = (None, 0);
    loop {
        let statement = select(&url.settings, since, until, after.as_ref());
        let body = client.run(&statement).await?;
        let mut rows = Vec::new();
        for line in body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let object: Map<String, Json> = serde_json::from_slice(line)
                .map_err(|error| ReadError::Answer(error.to_string()))?;
            rows.push(row(&object));
        }
        after = rows.last().map(|row| {
            (
                crate::table::started_ms(row),
                crate::table::id(row).to_owned(),
            )
        });
        take(&rows).map_err(ReadError::Taken)?;
        found += rows.len() as u64;
        if rows.len() < PAGE {
            return Ok(found);
        }
    }
}

/// 2200-01-01: DateTime64 ends before 2300.
const LATEST: i64 = 7_258_118_400_000;

fn select(
    settings: &ClickHouseSettings,
    since: i64,
    until: i64,
    after: Option<&(i64, String)>,
) -> String {
    let at = |ms| format!("toDateTime64('{}', 3, 'UTC')", instant(ms));
    let (database, table) = (quoted(&settings.database), quoted(&settings.table));
    let behind = after.map_or(String::new(), |(ms, id)| {
        let id: String = id
            .chars()
            .filter(|letter| letter.is_ascii_hexdigit() || *letter == '-')
            .collect();
        format!(" AND (started_at, id) > ({}, toUUID('{id}'))", at(*ms))
    });
    // An id stays within one part, which is a day: parts need not be merged with each other.
    format!(
        "SELECT * FROM {database}.{table} FINAL WHERE started_at >= {} AND started_at < {}{behind} \
         ORDER BY started_at, id LIMIT {PAGE} SETTINGS output_format_json_quote_64bit_integers = 0, \
         output_format_json_quote_denormals = 0, do_not_merge_across_partitions_select_final = 1 \
         FORMAT JSONEachRow",
        at(since),
        at(until)
    )
}

/// The values of a row. What is not there or of another kind is unknown.
fn row(object: &Map<String, Json>) -> Vec<Value> {
    let columns = COLUMNS.iter();
    columns
        .map(|column| {
            let value = object.get(column.name);
            value
                .and_then(|value| value_of(value, column.kind))
                .unwrap_or(Value::Null)
        })
        .collect()
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
        let url: StoreUrl = "clickhouse://me@db/llm?table=calls&password_file=/p"
            .parse()
            .expect("a URL");
        assert_eq!(url.settings.url, "http://db:8123/");
        assert_eq!(
            (url.settings.database.as_str(), url.settings.table.as_str()),
            ("llm", "calls")
        );
        assert_eq!(url.settings.user.as_deref(), Some("me"));
        assert_eq!(url.settings.password, Secret::File("/p".into()));
        let url: StoreUrl = "https://db".parse().expect("a URL");
        assert_eq!(url.address(), "db:443 default.tokengauge_calls");
        for wrong in ["db", "ftp://db", "clickhouse://a:b@db", "http://db?tabel=x"] {
            wrong.parse::<StoreUrl>().expect_err(wrong);
        }
    }

    #[test]
    fn a_row_without_a_column_leaves_it_unknown() {
        let json = "{\"id\":\"i\",\"started_at\":\"2025-11-25 19:33:40.123\",\"hop\":2,\"warm_up\":true,\
            \"cost_usd\":1,\"newer\":5,\"model\":null}";
        let row = row(&serde_json::from_str(json).expect("an object"));
        let of = |name: &str| {
            row[COLUMNS
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
    }
}
