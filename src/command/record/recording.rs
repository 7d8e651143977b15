//! Recordings on disk: a body, or a folder with a body and its metadata.

use super::TIMEOUT;
use crate::Error;
use crate::cli::RecordArgs;
use crate::command::error::CommandError;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::call::Dialect;
use tokengauge_core::observer::{Chunk, ObservedCall, Side};
use tokengauge_process::{Fatal, SystemError};

const MOST_DEPTH: u32 = 8;

pub(super) struct Recording {
    pub(super) name: Arc<str>,
    pub(super) upstream: Arc<str>,
    pub(super) uri: Uri,
    pub(super) dialect: Option<Dialect>,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) request: Bytes,
    pub(super) body: Bytes,
}

/// How a body is passed to the meter: the size of its chunks and the time between them.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    pub(super) frame_bytes: Option<u32>,
    pub(super) gap: Duration,
}

impl Pace {
    pub(super) fn chunks(self, body: &Bytes) -> impl Iterator<Item = Bytes> + use<> {
        let size = self
            .frame_bytes
            .map_or(body.len(), |bytes| bytes as usize)
            .max(1);
        let body = body.clone();
        (0..body.len())
            .step_by(size)
            .map(move |start| body.slice(start..body.len().min(start + size)))
    }
}

impl Recording {
    pub(super) fn show(&self, call: &dyn ObservedCall, chunk: Chunk) {
        if self.status == StatusCode::SWITCHING_PROTOCOLS {
            call.tunnel_chunk(Side::Upstream, chunk);
        } else {
            call.response_chunk(chunk);
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum RecordingError {
    #[error("{path}: no folder in it holds `response.body` and `meta.json`", path = .0.display())]
    None(PathBuf),
    #[error("`{0}` cannot be a {1}")]
    Header(String, HeaderName),
    #[error("`{0}` is not a request path: {1}")]
    RequestPath(String, #[source] InvalidUri),
    #[error("{0} is not an HTTP status code")]
    Status(u16),
    #[error("{0} took longer than {TIMEOUT:?}")]
    Slow(Arc<str>),
}

impl Fatal for RecordingError {}

/// Returns all recordings at the paths of the command line in a stable order.
pub(super) fn find(args: &RecordArgs) -> Result<Vec<Recording>, Error> {
    let mut recordings = Vec::new();
    for path in &args.paths {
        if path.is_dir() {
            let before = recordings.len();
            search(path, MOST_DEPTH, &mut recordings)?;
            if recordings.len() == before {
                return Err(RecordingError::None(path.clone()).into());
            }
        } else {
            recordings.push(alone(path, args)?);
        }
    }
    Ok(recordings)
}

fn search(folder: &Path, depth: u32, found: &mut Vec<Recording>) -> Result<(), Error> {
    if folder.join("meta.json").is_file() {
        found.push(described(folder)?);
        return Ok(());
    }
    let entries = std::fs::read_dir(folder).map_err(SystemError::read(folder))?;
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| depth > 0 && path.is_dir())
        .collect();
    folders.sort();
    folders
        .iter()
        .try_for_each(|folder| search(folder, depth - 1, found))
}

#[derive(Deserialize)]
struct Meta {
    request_path: Option<String>,
    content_type: Option<String>,
    content_encoding: Option<String>,
    framing: Option<String>,
    status: Option<u16>,
    provider: Option<String>,
}

fn described(folder: &Path) -> Result<Recording, Error> {
    let meta = folder.join("meta.json");
    let meta: Meta = serde_json::from_slice(&read(&meta)?).map_err(CommandError::file(&meta))?;
    let body = read(&folder.join("response.body"))?;
    let request = folder.join("request.json");
    let request = if request.is_file() {
        read(&request)?
    } else {
        Vec::new()
    };
    let content_type = meta
        .content_type
        .or_else(|| framing_type(meta.framing.as_deref()));
    let tunnel = meta.framing.as_deref() == Some("websocket-ndjson");
    let body = if tunnel {
        unmasked_messages(&body)
    } else {
        body.into()
    };
    let path = meta.request_path.as_deref().unwrap_or("/");
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(Recording {
        name: name.as_ref().into(),
        upstream: meta.provider.as_deref().unwrap_or("recorded").into(),
        uri: uri(path)?,
        dialect: tunnel.then_some(Dialect::OpenaiRealtime),
        status: if tunnel {
            StatusCode::SWITCHING_PROTOCOLS
        } else {
            status(meta.status.unwrap_or(200))?
        },
        headers: headers(content_type.as_deref(), meta.content_encoding.as_deref())?,
        request: request.into(),
        body,
    })
}

fn alone(path: &Path, args: &RecordArgs) -> Result<Recording, Error> {
    let body = read(path)?;
    let content_type = args.content_type.clone().or_else(|| sniffed_type(&body));
    Ok(Recording {
        name: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .as_ref()
            .into(),
        upstream: "recorded".into(),
        uri: uri(&args.request_path)?,
        dialect: args.dialect,
        status: status(args.status)?,
        headers: headers(content_type.as_deref(), args.content_encoding.as_deref())?,
        request: args
            .request
            .as_deref()
            .map(read)
            .transpose()?
            .unwrap_or_default()
            .into(),
        body: body.into(),
    })
}

/// Returns the content type of a framing, for recordings without the header.
fn framing_type(framing: Option<&str>) -> Option<String> {
    let name = match framing? {
        "sse" => "text/event-stream",
        "ndjson" => "application/x-ndjson",
        "aws-eventstream" => "application/vnd.amazon.eventstream",
        _ => "application/json",
    };
    Some(name.to_owned())
}

/// Returns the content type of a body that begins like an event stream.
fn sniffed_type(body: &[u8]) -> Option<String> {
    let starts = ["data:", "event:", "id:", "retry:", ":"];
    let sse = starts
        .iter()
        .any(|start| body.starts_with(start.as_bytes()));
    sse.then(|| "text/event-stream".to_owned())
}

/// Converts recorded messages, one per line, into unmasked WebSocket frames.
fn unmasked_messages(lines: &[u8]) -> Bytes {
    use tungstenite::protocol::frame::Frame;
    use tungstenite::protocol::frame::coding::{Data, OpCode};
    let mut wire = Vec::with_capacity(lines.len() + 1024);
    for line in lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let frame = Frame::message(line.to_vec(), OpCode::Data(Data::Text), true);
        // Writing to a vector never fails.
        let _ = frame.format(&mut wire);
    }
    wire.into()
}

fn headers(content_type: Option<&str>, content_encoding: Option<&str>) -> Result<HeaderMap, Error> {
    let pairs: [(HeaderName, Option<&str>); 2] = [
        (CONTENT_TYPE, content_type),
        (CONTENT_ENCODING, content_encoding),
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        if let Some(value) = value {
            let value = HeaderValue::from_str(value)
                .map_err(|_| RecordingError::Header(value.to_owned(), name.clone()))?;
            headers.insert(name, value);
        }
    }
    Ok(headers)
}

fn uri(path: &str) -> Result<Uri, RecordingError> {
    path.parse()
        .map_err(|error| RecordingError::RequestPath(path.to_owned(), error))
}

fn status(code: u16) -> Result<StatusCode, RecordingError> {
    StatusCode::from_u16(code).map_err(|_| RecordingError::Status(code))
}

fn read(path: &Path) -> Result<Vec<u8>, SystemError> {
    std::fs::read(path).map_err(SystemError::read(path))
}
