//! Buffers request bodies that decide on admission, or that a route allows to be rewritten.

use super::agent_body::AgentBody;
use super::body_admission::{self, ReadResult, store_buffer};
use super::call_handle::CallHandle;
use super::upload::{BufferedBody, UploadSource};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{HeaderValue, request};
use http_body::Body;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_core::memory::{Buffer, BufferError};
use tokengauge_core::observer::{Admission, Failure, RequestBody, UnreadableBody};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Larger bodies are not rewritten, in bytes.
const MAX_REPLACED_BYTES: usize = 1 << 20;
/// Longer or encoded bodies are parsed on a blocking thread, so that they do not delay traffic.
const INLINE_BYTES: usize = 64 * 1024;
/// How many bodies are decoded and parsed at a time. Memory accounting covers their buffers, but not the parsed values.
static READERS: Semaphore = Semaphore::const_new(4);

pub(super) enum RewriteOutcome {
    Unchanged(UploadSource),
    /// The body was replaced, and the response must be filtered.
    Replaced(UploadSource),
    /// The request is refused. The body may not have been read to its end.
    Refused(Failure, UploadSource),
    Incomplete,
    Stalled,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RewriteOptions {
    pub(super) admission: bool,
    pub(super) replacement: bool,
}

pub(super) fn replaceable(request: &request::Parts, body: &AgentBody, handle: &CallHandle) -> bool {
    let (method, headers) = (&request.method, &request.headers);
    body.size_hint().lower() <= MAX_REPLACED_BYTES as u64
        && handle
            .query(|call| call.may_rewrite_request(method, headers))
            .unwrap_or_default()
}

/// Buffers the body up to its limit. Asks the observer whether to admit the request and what to replace the body with.
pub(super) async fn rewrite(
    request: &mut request::Parts,
    body: AgentBody,
    handle: &Arc<CallHandle>,
    idle: Duration,
    options: RewriteOptions,
) -> RewriteOutcome {
    let read = if options.admission {
        let Some(buffers) = handle.query(|call| call.admission_buffers()) else {
            return RewriteOutcome::Unchanged(UploadSource::Agent(body));
        };
        body_admission::read(body, buffers, idle).await
    } else {
        let Some(buffer) = handle.query(|call| call.buffer(MAX_REPLACED_BYTES)) else {
            return RewriteOutcome::Unchanged(UploadSource::Agent(body));
        };
        buffer_body(body, buffer, idle).await
    };
    let (read, error) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(_)) => return RewriteOutcome::Incomplete,
        Err(_) => return RewriteOutcome::Stalled,
    };
    let bytes = read.chunks.front().cloned().unwrap_or_default();
    if options.admission {
        let encoded = request.headers.contains_key(CONTENT_ENCODING);
        if let Admission::Refused(failure) = admission(handle, &bytes, encoded, error).await {
            return RewriteOutcome::Refused(failure, UploadSource::Buffered(read));
        }
    }
    let whole = error.is_none() && read.trailers.is_none() && bytes.len() <= MAX_REPLACED_BYTES;
    let replacement = if options.replacement && whole {
        replacement(handle, &bytes)
    } else {
        None
    };
    let Some(replacement) = replacement else {
        return RewriteOutcome::Unchanged(UploadSource::Buffered(read));
    };
    request
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(replacement.len()));
    // The filter cannot read a compressed response.
    request
        .headers
        .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    RewriteOutcome::Replaced(UploadSource::Replaced(replacement))
}

/// Asks whether the request is admitted with this body, or without it if there was an `error`.
async fn admission(
    handle: &Arc<CallHandle>,
    bytes: &Bytes,
    encoded: bool,
    error: Option<BufferError>,
) -> Admission {
    match error {
        Some(BufferError::Limit) => admit(handle, Err(UnreadableBody::TooLong)),
        Some(BufferError::Memory) => admit(handle, Err(UnreadableBody::NoMemory)),
        None if encoded || bytes.len() > INLINE_BYTES => {
            let (handle, bytes) = (Arc::clone(handle), bytes.clone());
            let reading = READERS.acquire().await;
            let admission = spawn_blocking(move || {
                let admission = admit(&handle, Ok(&bytes));
                drop(reading);
                admission
            });
            admission.await.unwrap_or_default()
        }
        None => admit(handle, Ok(bytes)),
    }
}

/// Returns the body to send instead, in a buffer that counts towards the memory of all measuring.
fn replacement(handle: &CallHandle, body: &[u8]) -> Option<Bytes> {
    let replacement = handle.query(|call| {
        let replacement = call.rewrite_request(body)?;
        let mut buffer = call.buffer(replacement.len());
        buffer.extend(&replacement).ok()?;
        Some(Bytes::from_owner(buffer))
    });
    replacement.flatten()
}

fn admit(handle: &CallHandle, body: Result<&[u8], UnreadableBody>) -> Admission {
    let body = body.map_or_else(RequestBody::Unread, RequestBody::Whole);
    handle.query(|call| call.admit(body)).unwrap_or_default()
}

/// Reads a body into `buffer` as far as it fits, whatever the size of its chunks.
async fn buffer_body(mut body: AgentBody, mut buffer: Buffer, idle: Duration) -> ReadResult {
    let mut read = BufferedBody::new(&body);
    let (mut overflow, mut error) = (None, None);
    while let Some(frame) = timeout(idle, body.frame()).await? {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(bytes)) => {
                if let Err(full) = buffer.extend(&bytes) {
                    (overflow, error) = (Some(bytes), Some(full));
                    read.remaining = Some(body);
                    break;
                }
            }
            Ok(Err(frame)) => read.trailers = frame.into_trailers().ok(),
            Err(error) => return Ok(Err(error)),
        }
    }
    store_buffer(&mut read, buffer, overflow);
    Ok(Ok((read, error)))
}
