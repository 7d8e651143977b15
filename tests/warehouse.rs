//! A small ClickHouse and S3: accepts inserts and files, answers queries with the stored rows, and fails on request.

pub mod load;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokengauge_store::columns::COLUMNS;
use tokio::net::TcpListener;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this status and stores nothing.
    Status(u16, &'static str),
    Reset,
    /// Stores the data and closes the connection.
    StoredThenReset,
    /// Stores the data and does not answer.
    StoredThenSilent,
    /// Stores nothing and does not answer.
    Silent,
}

#[derive(Clone, Copy, Debug)]
pub struct Taken {
    pub rows: usize,
}

#[derive(Default)]
struct WarehouseFiles {
    fault: Option<(Fault, usize)>,
    refused: Option<String>,
    /// Keyed by start and id, like the sorting key of ReplacingMergeTree.
    rows: BTreeMap<(String, String), Value>,
    files: BTreeMap<String, Bytes>,
    taken: Vec<Taken>,
}

pub struct FakeWarehouse {
    pub address: SocketAddr,
    state: Arc<Mutex<WarehouseFiles>>,
}

impl FakeWarehouse {
    pub async fn start() -> FakeWarehouse {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let state: Arc<Mutex<WarehouseFiles>> = Arc::default();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| answer(request, Arc::clone(&state)));
                let connection = http1::Builder::new().serve_connection(TokioIo::new(tcp), service);
                tokio::spawn(connection);
            }
        });
        FakeWarehouse { address, state }
    }

    fn state(&self) -> MutexGuard<'_, WarehouseFiles> {
        self.state.lock().expect("no panic")
    }

    pub fn fault(&self, fault: Fault, times: usize) {
        self.state().fault = Some((fault, times));
    }

    pub fn refuse(&self, session: &str) {
        self.state().refused = Some(format!("\"session\":\"{session}\""));
    }

    pub fn ids(&self) -> BTreeSet<String> {
        let state = self.state();
        let inserted = state.rows.keys().map(|(_, id)| id.clone());
        inserted.chain(state.files.values().flat_map(ids)).collect()
    }

    /// Number of stored calls; a call that is in two files counts twice.
    pub fn rows(&self) -> usize {
        let state = self.state();
        let in_files: usize = state.files.values().map(|file| ids(file).len()).sum();
        state.rows.len() + in_files
    }

    pub fn taken(&self) -> Vec<Taken> {
        self.state().taken.clone()
    }

    pub fn names(&self) -> Vec<String> {
        self.state().files.keys().cloned().collect()
    }
}

pub fn columns_of(warehouse: &FakeWarehouse) -> Vec<String> {
    let file = warehouse
        .state()
        .files
        .values()
        .next()
        .expect("a file")
        .clone();
    let reader = SerializedFileReader::new(file).expect("Parquet");
    let schema = reader.metadata().file_metadata().schema().get_fields();
    schema.iter().map(|field| field.name().to_owned()).collect()
}

fn ids(file: &Bytes) -> Vec<String> {
    let reader = SerializedFileReader::new(file.clone()).expect("Parquet");
    let rows = reader.get_row_iter(None).expect("rows");
    rows.map(|row| {
        let row = row.expect("a row");
        let mut columns = row.get_column_iter();
        let id = columns.find(|(name, _)| *name == "id").expect("an id");
        id.1.to_string().trim_matches('"').to_owned()
    })
    .collect()
}

async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<WarehouseFiles>>,
) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let fault = next_fault(&state);
    let stores = matches!(
        fault,
        None | Some(Fault::StoredThenReset | Fault::StoredThenSilent)
    );
    let response = stores.then(|| {
        respond(
            &head.method,
            &head.uri,
            &body,
            &mut state.lock().expect("no panic"),
        )
    });
    match (fault, response) {
        (Some(Fault::Silent | Fault::StoredThenSilent), _) => std::future::pending().await,
        (Some(Fault::Reset | Fault::StoredThenReset), _) => Err(io::Error::other("closed")),
        (Some(Fault::Status(status, text)), _) => Ok(said(status, text)),
        (None, response) => Ok(response.unwrap_or_else(|| said(500, "no answer"))),
    }
}

fn next_fault(state: &Mutex<WarehouseFiles>) -> Option<Fault> {
    let mut state = state.lock().expect("no panic");
    let (fault, times) = state.fault.as_mut()?;
    *times = times.checked_sub(1)?;
    Some(*fault)
}

fn said(status: u16, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

fn respond(
    method: &Method,
    uri: &http::Uri,
    body: &Bytes,
    state: &mut WarehouseFiles,
) -> Response<Full<Bytes>> {
    if *method == Method::PUT {
        return put(uri.path(), body, state);
    }
    let query = uri.query().unwrap_or_default();
    if query.contains("INSERT+INTO") {
        return insert(body, state);
    }
    let statement = std::str::from_utf8(body).expect("UTF-8");
    if statement.starts_with("DESCRIBE") {
        let columns = COLUMNS.iter().map(|column| column.name);
        let columns = ["cluster", "namespace", "pod", "instance"]
            .into_iter()
            .chain(columns);
        return said(
            200,
            columns
                .map(|name| format!("[{name:?}]\n"))
                .collect::<String>(),
        );
    }
    if statement.starts_with("SELECT count() FROM") {
        return said(200, format!("[{}]\n", state.rows.len()));
    }
    // Sums need the real ClickHouse: here there are none.
    if !statement.contains("SELECT * FROM") {
        return said(200, "");
    }
    let rows = selected(statement, state);
    let lines = rows.iter().map(|row| format!("{row}\n"));
    said(200, lines.collect::<String>())
}

/// The rows within the time range of a statement and beyond its cursor, in its order, up to its limit.
fn selected<'a>(statement: &str, state: &'a WarehouseFiles) -> Vec<&'a Value> {
    let time = |before| between(statement, before, "'");
    let since = time("started_at >= toDateTime64('").unwrap_or_default();
    let until = time("started_at < toDateTime64('").unwrap_or("9");
    let id = between(statement, "toUUID('", "'");
    let after = time("(started_at, id) > (toDateTime64('").zip(id);
    let before = time("(started_at, id) < (toDateTime64('").zip(id);
    let limit = between(statement, "LIMIT ", " ").map(|limit| limit.parse().expect("a number"));
    let rows = state.rows.iter().filter(|((at, id), _)| {
        let key = (at.as_str(), id.as_str());
        (since..until).contains(&key.0)
            && after.is_none_or(|after| key > after)
            && before.is_none_or(|before| key < before)
    });
    let mut rows: Vec<&Value> = rows.map(|(_, row)| row).collect();
    if statement.contains("ORDER BY started_at DESC") {
        rows.reverse();
    }
    rows.truncate(limit.unwrap_or(usize::MAX));
    rows
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    text.split_once(before)?.1.split(after).next()
}

fn insert(body: &Bytes, state: &mut WarehouseFiles) -> Response<Full<Bytes>> {
    let text = std::str::from_utf8(body).expect("UTF-8");
    if state
        .refused
        .as_ref()
        .is_some_and(|refused| text.contains(refused.as_str()))
    {
        return said(400, "Code: 27. DB::Exception: Cannot parse input");
    }
    state.taken.push(Taken {
        rows: text.lines().count(),
    });
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let of = |name: &str| row[name].as_str().expect("a text").to_owned();
        state.rows.insert((of("started_at"), of("id")), row);
    }
    said(200, "")
}

fn put(path: &str, body: &Bytes, state: &mut WarehouseFiles) -> Response<Full<Bytes>> {
    let name = path.replace("%3D", "=");
    if state.files.contains_key(&name) {
        return said(412, "<Error><Code>PreconditionFailed</Code></Error>");
    }
    state.files.insert(name, body.clone());
    let mut response = said(200, "");
    response
        .headers_mut()
        .insert("etag", "\"1\"".parse().expect("a header"));
    response
}
