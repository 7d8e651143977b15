//! Rewrites a request head for the endpoint and HTTP version that it is sent to.

use super::refusal::failure;
use super::upstream::Endpoint;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Request, Version};
use http_body::Body;
use tokengauge_core::observer::{Failure, FailureKind};

pub(super) fn http1<B: Body>(
    request: &mut Request<B>,
    endpoint: &Endpoint,
    target: PathAndQuery,
) -> Result<(), Failure> {
    let host = HeaderValue::from_str(endpoint.settings.authority.as_str())
        .map_err(|_| failure(FailureKind::Protocol, "has an invalid host name"))?;
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = Uri::from(target);
    join_cookies(request.headers_mut());
    request.headers_mut().insert(HOST, host);
    say_chunked(request);
    Ok(())
}

/// Declares chunked framing for a body of unknown length, whatever the method.
fn say_chunked<B: Body>(request: &mut Request<B>) {
    let body = request.body();
    let sized = body.is_end_stream() || body.size_hint().exact().is_some();
    if !sized && !request.headers().contains_key(CONTENT_LENGTH) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(TRANSFER_ENCODING, chunked);
    }
}

pub(super) fn http2<B>(
    request: &mut Request<B>,
    endpoint: &Endpoint,
    target: PathAndQuery,
) -> Result<(), Failure> {
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = absolute(endpoint, target)?;
    for field in [HOST, TRANSFER_ENCODING] {
        super::headers::remove_in_order(request.headers_mut(), &field);
    }
    Ok(())
}

fn absolute(endpoint: &Endpoint, target: PathAndQuery) -> Result<Uri, Failure> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(endpoint.settings.scheme.clone());
    parts.authority = Some(endpoint.settings.authority.clone());
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).map_err(|_| {
        failure(
            FailureKind::BadRequest,
            "the request target is invalid for HTTP/2",
        )
    })
}

/// HTTP/2 may split `cookie`, HTTP/1 may not (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<_> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if cookies.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}
