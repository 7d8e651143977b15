//! Parses the heads of HTTP/1 messages (RFC 9112 §2 to §6) and the framing of their bodies. Anything that two parsers
//! could read differently is refused.

use super::field_names::{FieldNames, position};
use crate::headers;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, request, response,
};
use std::mem::MaybeUninit;

/// Maximum number of fields in one head, as with hyper and Envoy.
const MAX_FIELDS: usize = 100;
/// Maximum bytes of a request target, as with hyper. `http::Uri` supports no longer target.
const MAX_TARGET: usize = 65_534;
/// Longest body that a head can announce. Hyper reserves the two larger numbers.
const MAX_LENGTH: u64 = u64::MAX - 2;

#[derive(Debug)]
pub(crate) struct RequestHead {
    pub parts: request::Parts,
    pub names: FieldNames,
    pub body: BodyLength,
    pub keep_alive: bool,
    pub expects_continue: bool,
}

#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub parts: response::Parts,
    pub names: FieldNames,
    /// The reason phrase, if it is not the default of the status.
    pub reason: Option<Bytes>,
    pub body: BodyLength,
}

/// The end of a body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    Chunked,
    UntilClose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// The head is not HTTP, or is ambiguous.
    #[error("{0}")]
    Malformed(&'static str),
    #[error("the head is too large")]
    TooLarge,
    #[error("the request target is too long")]
    TargetTooLong,
}

impl HeadError {
    pub fn status(self) -> StatusCode {
        match self {
            HeadError::Malformed(_) => StatusCode::BAD_REQUEST,
            HeadError::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            HeadError::TargetTooLong => StatusCode::URI_TOO_LONG,
        }
    }
}

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> HeadError {
        HeadError::Malformed(match error {
            httparse::Error::TooManyHeaders => return HeadError::TooLarge,
            httparse::Error::HeaderName => "invalid field name",
            httparse::Error::HeaderValue => "invalid field value",
            httparse::Error::NewLine => "invalid line end",
            httparse::Error::Status => "invalid status",
            httparse::Error::Token => "invalid character in the first line",
            httparse::Error::Version => "invalid version",
        })
    }
}

/// Parses a request head at the beginning of `bytes`. Returns the head and its length, or `None` if it is incomplete.
///
/// # Errors
/// [`HeadError`] if the head is invalid or longer than `max_bytes`.
pub(crate) fn parse_request(
    bytes: &[u8],
    max_bytes: usize,
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(bytes, &mut fields)? {
        httparse::Status::Complete(length) if length > max_bytes => {
            return Err(HeadError::TooLarge);
        }
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let target = parsed.path.unwrap_or_default();
    if target.len() > MAX_TARGET {
        return Err(HeadError::TargetTooLong);
    }
    let head = Bytes::copy_from_slice(&bytes[..length]);
    let (mut parts, ()) = http::Request::new(()).into_parts();
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
    parts.method = method.map_err(|_| HeadError::Malformed("invalid method"))?;
    parts.uri = Uri::from_maybe_shared(slice(&head, bytes, target.as_bytes()))
        .map_err(|_| HeadError::Malformed("invalid request target"))?;
    parts.version = version(parsed.version);
    parts.headers = fields_of(&head, bytes, parsed.headers)?;
    let names = FieldNames::new(&head, bytes, parsed.headers);
    let framing = RequestFraming::read(&mut parts.headers, parts.version)?;
    let expects = parts.headers.get_all(EXPECT).iter().next_back();
    let expects_continue = parts.version == Version::HTTP_11
        && framing.body != BodyLength::Known(0)
        && expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    Ok(Some((
        RequestHead {
            keep_alive: keeps_alive(&parts.headers, parts.version) && !framing.ambiguous,
            parts,
            names,
            body: framing.body,
            expects_continue,
        },
        length,
    )))
}

/// Parses a response head at the beginning of `bytes`. Returns the head and its length, or `None` if it is incomplete.
/// `method` is the method of the request. Interim responses are also heads.
///
/// # Errors
/// [`HeadError`] if the head is invalid or longer than `max_bytes`.
pub(crate) fn parse_response(
    bytes: &[u8],
    method: &Method,
    max_bytes: usize,
) -> Result<Option<(ResponseHead, usize)>, HeadError> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let status = config.parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields)?;
    let length = match status {
        httparse::Status::Complete(length) if length > max_bytes => {
            return Err(HeadError::TooLarge);
        }
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let head = Bytes::copy_from_slice(&bytes[..length]);
    let (mut parts, ()) = http::Response::new(()).into_parts();
    parts.status = StatusCode::from_u16(parsed.code.unwrap_or_default())
        .map_err(|_| HeadError::Malformed("invalid status"))?;
    parts.version = version(parsed.version);
    parts.headers = fields_of(&head, bytes, parsed.headers)?;
    let names = FieldNames::new(&head, bytes, parsed.headers);
    let reason = parsed.reason.unwrap_or_default();
    let usual = parts.status.canonical_reason() == Some(reason);
    let reason = (!usual).then(|| Bytes::copy_from_slice(reason.as_bytes()));
    let body = response_length(&parts, method)?;
    let response = ResponseHead {
        parts,
        names,
        reason,
        body,
    };
    Ok(Some((response, length)))
}

fn version(minor: Option<u8>) -> Version {
    match minor {
        Some(1) => Version::HTTP_11,
        _ => Version::HTTP_10,
    }
}

/// Returns the part of `head` at the position that `part` has in `parsed`, which has the same text.
fn slice(head: &Bytes, parsed: &[u8], part: &[u8]) -> Bytes {
    let start = position(parsed, part) as usize;
    head.slice(start..start + part.len())
}

/// The fields of a head. Their values share its memory.
fn fields_of(
    head: &Bytes,
    parsed: &[u8],
    fields: &[httparse::Header<'_>],
) -> Result<HeaderMap, HeadError> {
    let mut map = HeaderMap::with_capacity(fields.len());
    for field in fields {
        let name =
            HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::TooLarge)?;
        let value = match field.value {
            [] => HeaderValue::from_static(""),
            value => HeaderValue::from_maybe_shared(slice(head, parsed, value))
                .map_err(|_| HeadError::Malformed("invalid field value"))?,
        };
        map.append(name, value);
    }
    Ok(map)
}

struct RequestFraming {
    body: BodyLength,
    /// The head had a length and a transfer coding. The coding applies, and the connection closes after the message.
    ambiguous: bool,
}

impl RequestFraming {
    /// Determines the framing and removes the fields that do not count: a length next to a transfer coding, and a
    /// repeated equal length.
    fn read(headers: &mut HeaderMap, version: Version) -> Result<RequestFraming, HeadError> {
        let Some(coding) = headers.get_all(TRANSFER_ENCODING).iter().next_back() else {
            let body = BodyLength::Known(one_length(headers)?.unwrap_or(0));
            return Ok(RequestFraming {
                body,
                ambiguous: false,
            });
        };
        if version == Version::HTTP_10 {
            return Err(HeadError::Malformed("transfer-encoding in HTTP/1.0"));
        }
        if !ends_in_chunked(coding) {
            return Err(HeadError::Malformed(
                "transfer-encoding does not end in chunked",
            ));
        }
        let ambiguous = headers.contains_key(CONTENT_LENGTH);
        if ambiguous {
            headers::remove_in_order(headers, &CONTENT_LENGTH);
        }
        Ok(RequestFraming {
            body: BodyLength::Chunked,
            ambiguous,
        })
    }
}

/// The single length of a request body. A list is refused, even with equal lengths.
fn one_length(headers: &mut HeaderMap) -> Result<Option<u64>, HeadError> {
    let mut length = None;
    let mut repeated = false;
    for value in headers.get_all(CONTENT_LENGTH) {
        let this = digits(value.as_bytes()).ok_or(INVALID_LENGTH)?;
        repeated = length.is_some();
        if length.is_some_and(|length| length != this) {
            return Err(INVALID_LENGTH);
        }
        length = Some(this);
    }
    if repeated && let Some(first) = headers.get(CONTENT_LENGTH).cloned() {
        // Keeps the position of the first field.
        headers.insert(CONTENT_LENGTH, first);
    }
    if length.is_some_and(|length| length > MAX_LENGTH) {
        return Err(HeadError::TooLarge);
    }
    Ok(length)
}

const INVALID_LENGTH: HeadError = HeadError::Malformed("invalid content-length");

fn response_length(response: &response::Parts, method: &Method) -> Result<BodyLength, HeadError> {
    if headers::is_bodiless(response.status, method) {
        return Ok(BodyLength::Known(0));
    }
    let fields = &response.headers;
    if let Some(coding) = fields.get_all(TRANSFER_ENCODING).iter().next_back() {
        if response.version == Version::HTTP_10 {
            return Err(HeadError::Malformed("transfer-encoding in HTTP/1.0"));
        }
        return Ok(if ends_in_chunked(coding) {
            BodyLength::Chunked
        } else {
            BodyLength::UntilClose
        });
    }
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        // Proxies join lines to lists. A list of equal lengths counts as one length.
        for item in value.as_bytes().split(|byte| *byte == b',') {
            let this = digits(item.trim_ascii()).ok_or(INVALID_LENGTH)?;
            if length.is_some_and(|length| length != this) || this > MAX_LENGTH {
                return Err(INVALID_LENGTH);
            }
            length = Some(this);
        }
    }
    Ok(length.map_or(BodyLength::UntilClose, BodyLength::Known))
}

/// Parses a number that has only digits: no sign and no blank.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit();
    if text.is_empty() || !text.iter().all(digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn ends_in_chunked(codings: &HeaderValue) -> bool {
    let last = codings.to_str().unwrap_or_default().rsplit(',').next();
    last.is_some_and(|last| last.trim().eq_ignore_ascii_case("chunked"))
}

/// Whether a message leaves its connection open (RFC 9112 §9.3).
pub(crate) fn keeps_alive(headers: &HeaderMap, version: Version) -> bool {
    if headers::has_token(headers, &CONNECTION, "close") {
        return false;
    }
    version >= Version::HTTP_11 || headers::has_token(headers, &CONNECTION, "keep-alive")
}

#[cfg(test)]
mod tests;
