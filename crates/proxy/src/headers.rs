//! The header fields that a proxy must remove, and the few that it may add (RFC 9110 §7.6). All other fields are
//! forwarded unchanged: order, duplicates and values.

use super::ConnectionInfo;
use crate::settings::Route;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST, MAX_FORWARDS, PROXY_AUTHORIZATION, SET_COOKIE,
    TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA, WWW_AUTHENTICATE,
};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, request, response};
use tokengauge_core::observer::{FailureKind, UpstreamTrace};
use tokengauge_core::trace::HOP_HEADER;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// A `tracestate` with more members is invalid.
const MAX_STATE_MEMBERS: usize = 32;
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// End-to-end fields, which `connection` may not name (RFC 9110 §7.6.1). Otherwise an agent could use it to strip
/// fields that upstreams rely on.
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

/// Fields that must not appear in response trailers: framing, routing, credentials and connection fields (RFC 9110
/// §6.5.1).
const NO_TRAILERS: [HeaderName; 20] = [
    AUTHORIZATION,
    CACHE_CONTROL,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    HTTP2_SETTINGS,
    KEEP_ALIVE,
    MAX_FORWARDS,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    SET_COOKIE,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    WWW_AUTHENTICATE,
];

/// Request trailers that are forwarded: checksums and timings. An upstream might treat any other trailer like a header
/// field, and use it to decide who the caller is and what is allowed.
const REQUEST_TRAILERS: [&str; 7] = [
    "content-digest",
    "content-md5",
    "digest",
    "repr-digest",
    "server-timing",
    "x-amz-trailer-signature",
    "x-content-sha256",
];
const REQUEST_TRAILER_PREFIXES: [&str; 2] = ["x-amz-checksum-", "grpc-"];

pub(super) fn is_response_trailer(name: &HeaderName) -> bool {
    !NO_TRAILERS.contains(name)
}

fn is_request_trailer(name: &HeaderName) -> bool {
    let name = name.as_str();
    let mut prefixes = REQUEST_TRAILER_PREFIXES.iter();
    REQUEST_TRAILERS.contains(&name) || prefixes.any(|prefix| name.starts_with(prefix))
}

pub(super) fn retain_response_trailers(trailers: &mut HeaderMap) {
    retain(trailers, is_response_trailer);
}

pub(super) fn retain_request_trailers(trailers: &mut HeaderMap) {
    retain(trailers, is_request_trailer);
}

/// Whether a response has no body, whatever follows its head (RFC 9110 §6.4.1).
pub(super) fn is_bodiless(status: StatusCode, method: &Method) -> bool {
    status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        || *method == Method::HEAD
}

/// Prepares an agent's request head for the upstream. Call it while `host` and the URI are still the agent's, because
/// `x-forwarded-host` is derived from them. `upgrade` is the result of [`asks_for_upgrade`].
pub(super) fn upstream_request(
    parts: &mut request::Parts,
    route: &Route,
    connection: &ConnectionInfo,
    upgrade: bool,
) {
    let trailers = has_token(&parts.headers, &TE, "trailers");
    remove_hop_by_hop(&mut parts.headers, upgrade, trailers);
    merge_content_lengths(&mut parts.headers);
    if route.add_via {
        add_via(&mut parts.headers, parts.version);
    }
    if route.add_forwarded {
        add_forwarded(parts, connection);
    }
}

/// Why a request head is ambiguous: another server or proxy could read it differently (RFC 9112 §3.2, §6.1).
pub fn ambiguous_head(parts: &request::Parts) -> Option<(FailureKind, &'static str)> {
    let bad = |problem| Some((FailureKind::BadRequest, problem));
    let hosts = parts.headers.get_all(HOST);
    let authority = parts.uri.authority().map(|named| named.as_str().as_bytes());
    if !hosts.iter().map(HeaderValue::as_bytes).all(is_host) || !authority.is_none_or(is_host) {
        return bad("`host` is not a host name or address with an optional port");
    }
    if parts.version >= Version::HTTP_2 {
        return None;
    }
    if !has_valid_target(parts) {
        return bad("the request target is neither a path that begins with `/` nor an http URL");
    }
    match hosts.iter().count() {
        0 if parts.version == Version::HTTP_11 => {
            return bad("the request has no `host`, which HTTP/1.1 requires; send one");
        }
        0 | 1 => {}
        _ => return bad("the request has more than one `host`; send one"),
    }
    let mut codings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    if codings.next().is_some() {
        return bad("the request has more than one `transfer-encoding`; send one");
    }
    coding.is_some_and(|coding| !is_chunked(coding)).then_some((
        FailureKind::UnsupportedCoding,
        "only the `transfer-encoding` `chunked` is supported; compress with `content-encoding`",
    ))
}

/// `uri-host [":" port]` (RFC 9110 §7.2). Empty if the target has no authority.
fn is_host(value: &[u8]) -> bool {
    value.is_empty() || is_plain_host(value) || is_host_of_authority(value)
}

fn is_host_of_authority(value: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(value) else {
        return false;
    };
    let port = &authority.as_str()[authority.host().len().min(authority.as_str().len())..];
    let port = port.strip_prefix(':').unwrap_or(port);
    !authority.as_str().contains('@') && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// A fast path for most hosts: letters, digits, dots and dashes, with or without a port. It copies nothing.
fn is_plain_host(value: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let name = value.iter().take_while(|byte| plain(byte)).count();
    let digits = |port: &[u8]| !port.is_empty() && port.iter().all(u8::is_ascii_digit);
    match value.split_at(name) {
        ([], _) => false,
        (_, []) => true,
        (_, [b':', port @ ..]) => digits(port),
        _ => false,
    }
}

/// Origin form, absolute form, or the asterisk of OPTIONS (RFC 9112 §3.2).
fn has_valid_target(parts: &request::Parts) -> bool {
    match (parts.uri.scheme(), parts.uri.authority()) {
        (Some(scheme), _) => *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS,
        (None, Some(_)) => parts.method == Method::CONNECT,
        (None, None) => parts.uri.path() != "*" || parts.method == Method::OPTIONS,
    }
}

pub(super) fn is_chunked(coding: &HeaderValue) -> bool {
    let coding = coding.as_bytes().trim_ascii();
    coding.eq_ignore_ascii_case(b"chunked")
}

pub fn carry_trace(headers: &mut HeaderMap, trace: UpstreamTrace) {
    headers.insert(TRACEPARENT, trace.traceparent);
    headers.insert(HeaderName::from_static(HOP_HEADER), trace.hop);
    let lines = headers.get_all(TRACESTATE).iter();
    let sent: Option<Vec<_>> = lines.map(|line| line.to_str().ok()).collect();
    let sent = sent.filter(|_| trace.keeps_state).unwrap_or_default();
    let key = |member: &str| {
        member
            .split('=')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let own = trace.member.to_str().unwrap_or_default();
    let others = sent.iter().flat_map(|line| line.split(','));
    let others = others.map(str::trim).filter(|other| !other.is_empty());
    let others = others.filter(|other| key(other) != key(own));
    let all: Vec<_> = std::iter::once(own)
        .chain(others)
        .take(MAX_STATE_MEMBERS)
        .collect();
    let all = HeaderValue::from_str(&all.join(","));
    headers.insert(TRACESTATE, all.unwrap_or(trace.member));
}

pub fn agent_response(parts: &mut response::Parts, route: &Route) {
    // A 426 names the protocol to upgrade to.
    let upgrade = matches!(
        parts.status,
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED
    );
    remove_hop_by_hop(&mut parts.headers, upgrade, false);
    if matches!(
        parts.status,
        StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT
    ) {
        // Responses with these statuses have no body and must not have a `content-length` (RFC 9110 §8.6).
        remove_in_order(&mut parts.headers, &CONTENT_LENGTH);
    }
    merge_content_lengths(&mut parts.headers);
    if route.add_via {
        add_via(&mut parts.headers, parts.version);
    }
}

/// Whether the agent asks to upgrade its connection to one protocol that its route allows in `upgrades`. Cleartext
/// HTTP/2, for example, would bypass routing and measurement.
pub fn asks_for_upgrade(parts: &request::Parts, route: &Route) -> bool {
    parts.version == Version::HTTP_11
        && has_token(&parts.headers, &CONNECTION, "upgrade")
        && names_allowed_protocol(&parts.headers, route)
}

/// Whether `upgrade` names exactly one protocol and the route allows it.
pub(super) fn names_allowed_protocol(headers: &HeaderMap, route: &Route) -> bool {
    let mut lines = headers.get_all(UPGRADE).iter();
    let (Some(named), None) = (lines.next(), lines.next()) else {
        return false;
    };
    let mut allowed = route.upgrades.iter();
    let named = named.as_bytes().trim_ascii();
    allowed.any(|allowed| allowed.as_bytes().eq_ignore_ascii_case(named))
}

/// Merges repeated content lengths into one field, because recipients handle repetitions differently. The parser of the
/// head has checked that they are equal.
fn merge_content_lengths(headers: &mut HeaderMap) {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return };
    let list = |value: &HeaderValue| value.as_bytes().contains(&b',');
    if lengths.next().is_none() && !list(first) {
        return;
    }
    let first = first.as_bytes().split(|byte| *byte == b',').next();
    let first = first.unwrap_or_default().trim_ascii();
    if let Ok(one) = HeaderValue::from_bytes(first) {
        headers.insert(CONTENT_LENGTH, one);
    }
}

pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap, upgrade: bool, trailers: bool) {
    let named = named_by_connection(headers);
    let removed = |name: &HeaderName| match *name {
        CONNECTION | UPGRADE => !upgrade,
        TE => !trailers,
        TRANSFER_ENCODING => true,
        _ => [KEEP_ALIVE, PROXY_CONNECTION, HTTP2_SETTINGS].contains(name) || named.contains(name),
    };
    retain(headers, |name| !removed(name));
    // `insert` keeps the position of an existing field.
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
}

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

/// Keeps the fields for which `keep` is true, in order. [`HeaderMap::remove`] would move the last field into the gap.
fn retain(headers: &mut HeaderMap, keep: impl Fn(&HeaderName) -> bool) {
    let Some(first) = headers.keys().position(|name| !keep(name)) else {
        return;
    };
    if first + 1 == headers.keys_len() {
        // Removing the last field leaves no gap. `transfer-encoding` is often the last.
        if let Some(last) = headers.keys().last().cloned() {
            headers.remove(last);
        }
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.len());
    let mut current = None;
    for (name, value) in std::mem::take(headers) {
        // The iterator returns a name only with the first of its values.
        if let Some(name) = name {
            current = keep(&name).then_some(name);
        }
        if let Some(name) = &current {
            kept.append(name, value);
        }
    }
    *headers = kept;
}

/// Removes a field and keeps the order of the others. [`HeaderMap::remove`] would move the last field into the gap.
pub(super) fn remove_in_order(headers: &mut HeaderMap, removed: &HeaderName) {
    if !headers.contains_key(removed) {
        return;
    }
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| *name != removed) {
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
    // The target's authority takes precedence over `host` (RFC 9112 §3.2.2, RFC 9113 §8.3.1).
    let named = parts.uri.authority();
    let named = named.and_then(|named| HeaderValue::from_str(named.as_str()).ok());
    let host = named.or_else(|| parts.headers.get(HOST).cloned());
    let peer = connection.peer.ip().to_canonical().to_string();
    let proto = if connection.tls { "https" } else { "http" };
    append_to_list(&mut parts.headers, X_FORWARDED_FOR, peer.as_bytes());
    if let Some(host) = host {
        append_to_list(&mut parts.headers, X_FORWARDED_HOST, host.as_bytes());
    }
    append_to_list(&mut parts.headers, X_FORWARDED_PROTO, proto.as_bytes());
}

/// Appends to a comma-separated field on one line, because many servers read only the first line.
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

/// The items of a comma-separated field on all its lines, without parameters.
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

pub fn expects_continue(headers: &HeaderMap) -> bool {
    headers
        .get(EXPECT)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

#[cfg(test)]
mod tests;
