//! Writes to ClickHouse over HTTP: a batch is one `INSERT … FORMAT JSONEachRow`.

use crate::settings::{ClickHouseSettings, Secret};
use crate::sink::{Row, SendError, SendErrorKind, Sink, first_line};
use crate::table::{Origin, id, write_json};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use tokengauge_net::client::{Client, ClientResponse, Failure};
use tokengauge_net::endpoint::Protocol;
use tokengauge_store::columns::Value;
use tokengauge_store::warehouse::quoted;

/// Error codes of rows that ClickHouse cannot store, from `src/Common/ErrorCodes.cpp`. Most of them
/// come with status 400.
const ROW_ERRORS: [u32; 14] = [6, 26, 27, 33, 38, 41, 53, 69, 70, 72, 117, 131, 349, 376];
/// Error codes for users, passwords and permissions.
const DENIED: [u32; 6] = [164, 192, 193, 194, 497, 516];
/// The statement took longer than it may.
const TOO_LONG: u32 = 159;
/// Error codes for an unknown table and an unknown database.
const NO_TABLE: u32 = 60;
const NO_DATABASE: u32 = 81;

#[derive(Debug)]
pub struct ClickHouse {
    settings: ClickHouseSettings,
    client: Client,
    origin: Vec<Value>,
}

impl ClickHouse {
    /// A client for the table.
    ///
    /// # Errors
    /// Returns an error if the URL or a TLS file cannot be used.
    pub fn new(
        settings: ClickHouseSettings,
        origin: &Origin,
    ) -> Result<ClickHouse, tokengauge_net::client::NoClient> {
        let client = Client::new(&settings.url, &settings.tls, Protocol::Http1)?;
        Ok(ClickHouse {
            client: client.keep_alive(),
            settings,
            origin: origin.values().into(),
        })
    }

    /// Sets the limit on a response, in bytes.
    pub(crate) fn max_response(self, bytes: usize) -> ClickHouse {
        ClickHouse {
            client: self.client.max_body(bytes),
            ..self
        }
    }

    /// Runs a statement and returns the response body.
    ///
    /// # Errors
    /// Returns an error if the request fails or ClickHouse returns an error.
    pub async fn run(&self, statement: &str) -> Result<Bytes, SendError> {
        self.post(&[], Bytes::from(statement.to_owned())).await
    }

    async fn post(&self, parameters: &[(&str, &str)], body: Bytes) -> Result<Bytes, SendError> {
        let request = self.request(parameters, body)?;
        let timeout = self.settings.timeout;
        let response = match tokio::time::timeout(timeout, self.client.send(&request)).await {
            Ok(response) => response.map_err(|failure| self.unreachable(&failure))?,
            Err(_) => {
                let message = format!("{} did not answer within {timeout:?}", self.name());
                return Err(SendError::new(SendErrorKind::Timeout, message));
            }
        };
        self.judge(&response)?;
        Ok(response.body)
    }

    fn request(
        &self,
        parameters: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Request<Bytes>, SendError> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("database", &self.settings.database);
        query.extend_pairs(parameters);
        let path = self.settings.url.path().trim_end_matches('/');
        let target = format!("{path}/?{}", query.finish());
        let mut parts = self.settings.url.clone().into_parts();
        let denied = |error: &dyn std::fmt::Display| {
            SendError::new(SendErrorKind::Denied, format!("{}: {error}", self.name()))
        };
        parts.path_and_query = Some(target.parse().map_err(|error| denied(&error))?);
        let uri = http::Uri::from_parts(parts).map_err(|error| denied(&error))?;
        let user = self.settings.user.clone();
        let user = match user {
            Some(user) => Some(user),
            None => Secret::Variable("CLICKHOUSE_USER")
                .read()
                .map_err(|error| denied(&error))?,
        };
        let password = self.settings.password.read();
        let password = password.map_err(|error| denied(&error))?;
        let mut request = Request::builder().method(Method::POST).uri(uri);
        if user.is_some() || password.is_some() {
            request = request
                .header("x-clickhouse-user", user.as_deref().unwrap_or("default"))
                .header("x-clickhouse-key", password.as_deref().unwrap_or_default());
        }
        request.body(body).map_err(|_| {
            denied(
                &"user or password contains characters that are not allowed in an \
                HTTP header",
            )
        })
    }

    fn name(&self) -> String {
        format!("ClickHouse at {}", self.client.address())
    }

    fn unreachable(&self, failure: &Failure) -> SendError {
        let message = format!("{} cannot be reached: {failure}", self.name());
        SendError::new(SendErrorKind::Unreachable, message)
    }

    /// Checks a response for errors: ClickHouse can report an error with status 200.
    fn judge(&self, response: &ClientResponse) -> Result<(), SendError> {
        let code = error_code(response);
        if response.status.is_success() && code.is_none() {
            return Ok(());
        }
        let kind = kind(response.status, code);
        let says = first_line(&String::from_utf8_lossy(&response.body));
        let ClickHouseSettings {
            database, table, ..
        } = &self.settings;
        let status = response.status.as_u16();
        let todo = match code {
            Some(NO_DATABASE) => format!(
                "; create the database {database} (CREATE DATABASE), or configure another one with \
                 `database` of the sink or /DATABASE in a URL"
            ),
            Some(NO_TABLE) => format!(
                "; create the table {table} in the database {database} with `tokengauge export \
                 sink ddl`, or configure the database that has it with `database` of the sink or \
                 /DATABASE in a URL"
            ),
            _ if kind == SendErrorKind::Denied => {
                "; check user, password and permissions (INSERT for writing, SELECT for \
                 reading)"
                    .to_owned()
            }
            _ => String::new(),
        };
        let message = format!("{} answered {status}: {says}{todo}", self.name());
        Err(SendError {
            retry_after: response.retry_after(),
            ..SendError::new(kind, message)
        })
    }
}

/// ClickHouse's error code, from the header or from a body such as `Code: 60. DB::Exception: …`.
fn error_code(response: &ClientResponse) -> Option<u32> {
    let header = response.headers.get("x-clickhouse-exception-code");
    if let Some(code) = header.and_then(|code| code.to_str().ok()?.parse().ok()) {
        return Some(code);
    }
    let text = std::str::from_utf8(response.body.get(..64.min(response.body.len()))?).ok()?;
    let code = text.strip_prefix("Code: ")?;
    let digits = code.find(|character: char| !character.is_ascii_digit())?;
    code[..digits].parse().ok()
}

fn kind(status: StatusCode, code: Option<u32>) -> SendErrorKind {
    match (status.as_u16(), code) {
        (_, Some(code)) if ROW_ERRORS.contains(&code) => SendErrorKind::Refused,
        (_, Some(code)) if code == TOO_LONG => SendErrorKind::Timeout,
        (_, Some(code)) if DENIED.contains(&code) || [NO_TABLE, NO_DATABASE].contains(&code) => {
            SendErrorKind::Denied
        }
        (400 | 413 | 422, _) => SendErrorKind::Refused,
        (408, _) => SendErrorKind::Timeout,
        (429, _) => SendErrorKind::Throttled,
        (status, _) if (300..500).contains(&status) => SendErrorKind::Denied,
        _ => SendErrorKind::Unavailable,
    }
}

impl Sink for ClickHouse {
    async fn send(&self, rows: &[Row]) -> Result<(), SendError> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(());
        };
        let mut lines = Vec::with_capacity(rows.len() * 1_500);
        for row in rows {
            write_json(&self.origin, row, &mut lines);
        }
        let table = quoted(&self.settings.table);
        let insert = format!("INSERT INTO {table} FORMAT JSONEachRow");
        let token = format!("{}-{}-{}", id(first), id(last), rows.len());
        let parameters = [
            ("query", insert.as_str()),
            // The server merges small inserts of many pods, and responds once they are stored.
            ("async_insert", "1"),
            ("wait_for_async_insert", "1"),
            ("insert_deduplication_token", &token),
            // A table made by an older version lacks columns; values for these columns are dropped.
            ("input_format_skip_unknown_fields", "1"),
        ];
        self.post(&parameters, lines.into()).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &str) -> ClientResponse {
        ClientResponse {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: http::HeaderMap::new(),
            body: Bytes::from(body.to_owned()),
            trailers: http::HeaderMap::new(),
        }
    }

    #[test]
    fn what_the_store_says_decides_what_happens_next() {
        let kind_of = |status, body: &str| {
            let response = response(status, body);
            kind(response.status, error_code(&response))
        };
        for (status, body, expected) in [
            (
                400,
                "Code: 27. DB::Exception: Cannot parse input",
                SendErrorKind::Refused,
            ),
            (
                500,
                "Code: 27. DB::Exception: Cannot parse input",
                SendErrorKind::Refused,
            ),
            (413, "", SendErrorKind::Refused),
            (
                404,
                "Code: 60. DB::Exception: Unknown table",
                SendErrorKind::Denied,
            ),
            (
                403,
                "Code: 516. DB::Exception: Authentication failed",
                SendErrorKind::Denied,
            ),
            (401, "", SendErrorKind::Denied),
            (429, "", SendErrorKind::Throttled),
            (
                500,
                "Code: 241. DB::Exception: Memory limit",
                SendErrorKind::Unavailable,
            ),
            (
                200,
                "Code: 241. DB::Exception: Memory limit",
                SendErrorKind::Unavailable,
            ),
            (503, "", SendErrorKind::Unavailable),
        ] {
            assert_eq!(kind_of(status, body), expected, "{status} {body}");
        }
        assert_eq!(error_code(&response(200, "")), None);
        assert_eq!(error_code(&response(200, "Code: x")), None);
    }
}
