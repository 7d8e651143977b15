//! The URL of a warehouse, and the connection to it.

use crate::clickhouse::ClickHouse;
use crate::settings::{ClickHouseSettings, Secret};
use crate::sink::{SendError, SendErrorKind};
use crate::table::Origin;
use http::Uri;
use http::uri::Scheme;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokengauge_net::client::NoClient;
use tokengauge_net::tls::ClientTls;
use tokengauge_store::warehouse::{Run, TIME_LIMIT, Table, Warehouse, WarehouseError};
use tokio::runtime::{Builder, Runtime};

/// The table if the URL names none.
const TABLE: &str = "tokengauge_calls";
/// How long a response may take: ClickHouse stops a statement that runs longer by itself.
const TIMEOUT: Duration = TIME_LIMIT.saturating_add(Duration::from_secs(3));
/// Statements that run at the same time. Further ones wait.
const AT_ONCE: usize = 4;
/// The largest response: 4,000 calls with long names and segments.
const MAX_RESPONSE: usize = 64 << 20;

/// A table of ClickHouse as a URL: `clickhouse://user@host:8123/database?table=calls`; `clickhouses` is with TLS, as
/// `https` is.
#[derive(Clone, Debug, PartialEq)]
pub struct WarehouseUrl {
    settings: ClickHouseSettings,
    /// The files that ClickHouse reads instead of a table.
    s3: Option<String>,
}

impl FromStr for WarehouseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<WarehouseUrl, String> {
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
                    "contains a password; set it with CLICKHOUSE_PASSWORD or `password_file`"
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
        let (mut certificate, mut private_key, mut s3) = (None, None, None);
        for (key, value) in form_urlencoded::parse(query) {
            match &*key {
                "table" => settings.table = value.into_owned(),
                "s3" => s3 = Some(value.into_owned()),
                "ca" => settings.tls.ca = Some(PathBuf::from(&*value)),
                "certificate" => certificate = Some(PathBuf::from(&*value)),
                "key" => private_key = Some(PathBuf::from(&*value)),
                "password_file" => settings.password = Secret::File(PathBuf::from(&*value)),
                other => {
                    return Err(format!(
                        "has `{other}`; table, s3, ca, certificate, key and password_file are known"
                    ));
                }
            }
        }
        settings.tls.identity = match (certificate, private_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err("needs `certificate` and `key` together".to_owned()),
        };
        Ok(WarehouseUrl { settings, s3 })
    }
}

impl WarehouseUrl {
    /// The table that a sink writes to.
    pub fn of(settings: ClickHouseSettings) -> WarehouseUrl {
        WarehouseUrl { settings, s3: None }
    }

    /// The address and the table, for messages.
    pub fn address(&self) -> String {
        let at = self.settings.url.authority().map_or("", |at| at.as_str());
        format!("{at} {}", self.table().name())
    }

    fn table(&self) -> Table {
        match &self.s3 {
            Some(url) => Table::S3 { url: url.clone() },
            None => Table::Calls {
                database: self.settings.database.clone(),
                table: self.settings.table.clone(),
            },
        }
    }

    /// The calls of the table. Nothing is connected to before the first question.
    ///
    /// # Errors
    /// Returns an error if the URL or a file of TLS cannot be used, or no thread can be started.
    pub fn open(&self) -> Result<Warehouse, WarehouseUnusable> {
        let clients = (0..AT_ONCE).map(|_| {
            ClickHouse::new(self.settings.clone(), &Origin::default())
                .map(|client| client.max_response(MAX_RESPONSE))
        });
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("warehouse")
            .enable_all()
            .build()
            .map_err(WarehouseUnusable::Thread)?;
        let connection = Connection {
            clients: clients.collect::<Result<_, _>>()?,
            turn: AtomicUsize::new(0),
            runtime: Some(runtime),
        };
        Ok(Warehouse::new(self.table(), Box::new(connection)))
    }
}

/// Why a warehouse cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum WarehouseUnusable {
    /// The URL or a file of TLS cannot be used.
    #[error(transparent)]
    Url(#[from] NoClient),
    /// No thread can be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Connections to ClickHouse, each of which runs one statement at a time.
#[derive(Debug)]
struct Connection {
    clients: Vec<ClickHouse>,
    turn: AtomicUsize,
    /// `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl Run for Connection {
    fn run(&self, statement: &str) -> Result<Vec<u8>, WarehouseError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let client = &self.clients[turn % self.clients.len()];
        let Some(runtime) = &self.runtime else {
            return Ok(Vec::new());
        };
        let body = runtime.block_on(client.run(statement)).map_err(error)?;
        Ok(body.into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A runtime must not wait for its threads where it is dropped by a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn error(error: SendError) -> WarehouseError {
    WarehouseError {
        too_much: error.kind == SendErrorKind::Timeout,
        message: error.message,
    }
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
}
