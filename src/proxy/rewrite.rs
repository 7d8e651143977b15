//! Requests that are changed on the agent's behalf: only where a route says so.

use super::upload::{Read, Source};
use super::watch::Watch;
use crate::memory::Buffer;
use crate::observer::{Admission, Failure};
use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, request, response};
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::timeout;

/// Bigger bodies are left alone, and those for which there is no memory.
const LIMIT: usize = 1 << 20;

/// What becomes of a request body.
pub(super) enum Rewritten {
    /// It goes as it is.
    Kept(Source),
    /// It was replaced, and the response is to be filtered.
    Replaced(Source),
    /// It may not leave.
    Refused(Failure),
    /// The agent did not send the whole of it.
    Broken,
    /// The agent stopped sending.
    Stalled,
}

/// What the body is read for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    /// Whether it decides if the request may leave.
    pub(super) admission: bool,
    /// Whether another may go in its place.
    pub(super) replacement: bool,
}

/// Whether the body is one that can be read.
pub(super) fn readable(request: &request::Parts, body: &Incoming) -> bool {
    request.method == Method::POST
        && is(&request.headers, "application/json")
        && !request.headers.contains_key(CONTENT_ENCODING)
        && body.size_hint().lower() <= LIMIT as u64
}

/// Reads the body, as far as the bound goes, and asks the observer for another.
pub(super) async fn rewrite(
    request: &mut request::Parts,
    body: Incoming,
    watch: &Watch,
    idle: Duration,
    wish: Wish,
) -> Rewritten {
    let Some(held) = watch.ask(|call| call.buffer(LIMIT)) else {
        return Rewritten::Kept(Source::Agent(body));
    };
    let read = match read(body, held, idle).await {
        Ok(Ok(read)) => read,
        Ok(Err(_)) => return Rewritten::Broken,
        Err(_) => return Rewritten::Stalled,
    };
    if read.rest.is_some() || read.trailers.is_some() {
        return Rewritten::Kept(Source::Resumed(read));
    }
    let whole = read.frames.front().cloned().unwrap_or_default();
    if wish.admission
        && let Some(Admission::Refused(failure)) = watch.ask(|call| call.admit(Some(&whole)))
    {
        return Rewritten::Refused(failure);
    }
    if !wish.replacement {
        return Rewritten::Kept(Source::Resumed(read));
    }
    let replacement = watch.ask(|call| {
        let replacement = call.rewrite_request(&whole)?;
        let mut held = call.buffer(replacement.len());
        held.extend(&replacement).ok()?;
        Some(Bytes::from_owner(held))
    });
    let Some(replacement) = replacement.flatten() else {
        return Rewritten::Kept(Source::Resumed(read));
    };
    request
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(replacement.len()));
    // What the filter takes out it has to be able to read.
    request
        .headers
        .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    Rewritten::Replaced(Source::Replaced(replacement))
}

/// Whether the response is one that the filter can read. Its length will be another.
pub(super) fn filters(response: &mut response::Parts) -> bool {
    let readable = is(&response.headers, "text/event-stream")
        && !response.headers.contains_key(CONTENT_ENCODING);
    if readable {
        response.headers.remove(CONTENT_LENGTH);
    }
    readable
}

/// Reads a body into `held` as far as it fits. A piece of any size costs no more than its
/// bytes.
async fn read(
    mut body: Incoming,
    mut held: Buffer,
    idle: Duration,
) -> Result<Result<Read, hyper::Error>, tokio::time::error::Elapsed> {
    let sized = body.size_hint().exact().is_some();
    let mut read = Read {
        frames: VecDeque::new(),
        trailers: None,
        rest: None,
        sized,
    };
    let mut unfit = None;
    while let Some(frame) = timeout(idle, body.frame()).await? {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(bytes)) if held.extend(&bytes).is_err() => {
                unfit = Some(bytes);
                read.rest = Some(body);
                break;
            }
            Ok(Ok(_)) => {}
            Ok(Err(frame)) => read.trailers = frame.into_trailers().ok(),
            Err(error) => return Ok(Err(error)),
        }
    }
    let held = (!held.is_empty()).then(|| Bytes::from_owner(held));
    read.frames.extend(held.into_iter().chain(unfit));
    Ok(Ok(read))
}

fn is(headers: &HeaderMap, media_type: &str) -> bool {
    let sent = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = sent.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_read_without_its_parameters() {
        let mut headers = HeaderMap::new();
        assert!(!is(&headers, "application/json"));
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("Application/JSON; charset=utf-8"),
        );
        assert!(is(&headers, "application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
        assert!(!is(&headers, "application/json"));
    }
}
