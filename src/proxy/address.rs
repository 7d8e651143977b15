//! What a request's head becomes when it is known which endpoint it goes to, and how.

use super::refusal::failure;
use super::upstream::Endpoint;
use crate::observer::{Failure, FailureKind};
use http::header::{COOKIE, HOST};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, HeaderValue, Request, Version};

/// Points a request at an endpoint, over HTTP/1.
pub(super) fn http1<B>(
    request: &mut Request<B>,
    endpoint: &Endpoint,
    target: PathAndQuery,
) -> Result<(), Failure> {
    let host = HeaderValue::from_str(endpoint.settings.authority.as_str());
    let host = host.map_err(|_| failure(FailureKind::Protocol, "has a name that is not a host"))?;
    *request.version_mut() = Version::HTTP_11;
    *request.uri_mut() = Uri::from(target);
    join_cookies(request.headers_mut());
    request.headers_mut().insert(HOST, host);
    Ok(())
}

/// Points a request at an endpoint, over HTTP/2.
pub(super) fn http2<B>(
    request: &mut Request<B>,
    endpoint: &Endpoint,
    target: PathAndQuery,
) -> Result<(), Failure> {
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = absolute(endpoint, target)?;
    super::headers::remove_in_order(request.headers_mut(), &HOST);
    Ok(())
}

fn absolute(endpoint: &Endpoint, target: PathAndQuery) -> Result<Uri, Failure> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(endpoint.settings.scheme.clone());
    parts.authority = Some(endpoint.settings.authority.clone());
    parts.path_and_query = Some(target);
    Uri::from_parts(parts)
        .map_err(|_| failure(FailureKind::BadRequest, "the target is not one for HTTP/2"))
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
