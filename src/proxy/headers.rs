//! What a proxy must take out of a head, and the little it may add (RFC 9110 §7.6).
//! Everything else leaves as it came: order, duplicates, values.

use super::ConnectionInfo;
use crate::config::Route;
use crate::observer::UpstreamTrace;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    COOKIE, EXPECT, FORWARDED, HOST, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, request, response};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields meant for the far end. `connection` may not name them (RFC 9110 §7.6.1), and
/// taking them out because it does would let an agent remove what others rely on.
const END_TO_END: [HeaderName; 14] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    COOKIE,
    EXPECT,
    FORWARDED,
    HOST,
    SET_COOKIE,
    TRAILER,
    VIA,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-goog-api-key"),
];

/// Makes an agent's head fit for the upstream. Call it while `host` and the URI are still
/// the agent's: `x-forwarded-host` is taken from them.
pub(super) fn upstream_request(
    parts: &mut request::Parts,
    route: &Route,
    connection: &ConnectionInfo,
) {
    let upgrade = asks_for_upgrade(parts);
    let trailers = has_token(&parts.headers, &TE, "trailers");
    remove_hop_by_hop(&mut parts.headers, upgrade, trailers);
    if route.add_via {
        add_via(&mut parts.headers, parts.version);
    }
    if route.add_forwarded {
        add_forwarded(parts, connection);
    }
}

/// Why a head is refused that another reader could understand differently, in front of this
/// proxy or behind it (RFC 9112 §3.2, §6.1).
pub fn two_readings(parts: &request::Parts) -> Option<&'static str> {
    if parts.version >= Version::HTTP_2 {
        return None;
    }
    let several = |name| parts.headers.get_all(name).iter().nth(1).is_some();
    if several(HOST) {
        return Some("the request has more than one `host`; send one");
    }
    if parts.version == Version::HTTP_11 && !parts.headers.contains_key(HOST) {
        return Some("the request has no `host`, which HTTP/1.1 asks for; send one");
    }
    several(TRANSFER_ENCODING)
        .then_some("the request has more than one `transfer-encoding`; send one")
}

/// Carries a trace on to the upstream.
pub fn carry_trace(headers: &mut HeaderMap, trace: UpstreamTrace) {
    headers.insert(TRACEPARENT, trace.traceparent);
    if !trace.keeps_state {
        retain(headers, |name| name != TRACESTATE);
    }
}

/// Makes an upstream's head fit for the agent.
pub fn agent_response(parts: &mut response::Parts, route: &Route) {
    // A 426 has to say which protocol it wants, and we tunnel whatever that is.
    let upgrade = matches!(
        parts.status,
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED
    );
    remove_hop_by_hop(&mut parts.headers, upgrade, false);
    if route.add_via {
        add_via(&mut parts.headers, parts.version);
    }
}

/// Whether the agent asks for another protocol on its connection, and may. HTTP/2 without
/// TLS is not offered this way: it would carry requests past routing and measuring.
pub fn asks_for_upgrade(parts: &request::Parts) -> bool {
    parts.version == Version::HTTP_11
        && parts.headers.contains_key(UPGRADE)
        && has_token(&parts.headers, &CONNECTION, "upgrade")
        && !has_token(&parts.headers, &UPGRADE, "h2c")
}

pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap, upgrade: bool, trailers: bool) {
    let named = named_by_connection(headers);
    let goes = |name: &HeaderName| match *name {
        CONNECTION | UPGRADE => !upgrade,
        TE => !trailers,
        TRANSFER_ENCODING => true,
        _ => [KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS].contains(name) || named.contains(name),
    };
    retain(headers, |name| !goes(name));
    // `insert` puts the value where the field already is.
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
}

/// The fields that `connection` names and may name.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    tokens(headers, &CONNECTION)
        .filter(|token| {
            !["close", "keep-alive", "upgrade", "te"]
                .iter()
                .any(|known| known.eq_ignore_ascii_case(token))
        })
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| !END_TO_END.contains(name) && !name.as_str().starts_with("x-forwarded-"))
        .collect()
}

/// Keeps what `keep` says, in order. [`HeaderMap::remove`] would move the last field to
/// where the removed one was.
fn retain(headers: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    if headers.keys().all(&keep) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.len());
    let mut current = None;
    for (name, value) in std::mem::take(headers) {
        // A name is given once, for the first of its values.
        if let Some(name) = name {
            current = keep(&name).then_some(name);
        }
        if let Some(name) = &current {
            kept.append(name, value);
        }
    }
    *headers = kept;
}

/// [`HeaderMap::remove`] would move the last field to where the removed one was.
pub(super) fn remove_in_order(headers: &mut HeaderMap, gone: &HeaderName) {
    if !headers.contains_key(gone) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| *name != gone) {
        kept.append(name.clone(), value.clone());
    }
    *headers = kept;
}

fn add_via(headers: &mut HeaderMap, received: Version) {
    let via = match received {
        Version::HTTP_10 => "1.0 tokengauge",
        Version::HTTP_2 => "2 tokengauge",
        _ => "1.1 tokengauge",
    };
    headers.append(VIA, HeaderValue::from_static(via));
}

fn add_forwarded(parts: &mut request::Parts, connection: &ConnectionInfo) {
    let host = parts.headers.get(HOST).cloned();
    let host = host.or_else(|| HeaderValue::from_str(parts.uri.authority()?.as_str()).ok());
    let peer = connection.peer.ip().to_canonical().to_string();
    let proto = if connection.tls { "https" } else { "http" };
    append_to_list(&mut parts.headers, X_FORWARDED_FOR, peer.as_bytes());
    if let Some(host) = host {
        append_to_list(&mut parts.headers, X_FORWARDED_HOST, host.as_bytes());
    }
    append_to_list(&mut parts.headers, X_FORWARDED_PROTO, proto.as_bytes());
}

/// Adds to a comma-separated field, on one line: many servers read only the first.
fn append_to_list(headers: &mut HeaderMap, name: HeaderName, item: &[u8]) {
    let present = headers
        .get_all(&name)
        .into_iter()
        .map(HeaderValue::as_bytes);
    let list = present
        .chain([item])
        .filter(|value| !value.is_empty())
        .collect::<Vec<_>>()
        .join(&b", "[..]);
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}

/// The items of a comma-separated field over all its lines, without parameters.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    lines
        .flat_map(|line| line.split(','))
        .map(|item| item.split(';').next().unwrap_or_default().trim())
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests;
