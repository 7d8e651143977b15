//! Rewrites interim responses (RFC 9110 §15.2). Framing of the upstream, and syntax that parsers read differently, must
//! not reach the agent.

use crate::headers;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Maximum number of fields, equal to the limit in other heads.
const FIELDS: usize = 100;

/// Returns the head for an HTTP/1.1 agent, or `None` if it is not a response head. Field names keep their case and
/// order.
pub(super) fn rewritten(head: &[u8]) -> Option<Bytes> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    response.parse(head).ok()?.is_complete().then_some(())?;
    let (status, reason) = (response.code?, response.reason.unwrap_or_default());
    let mut map = HeaderMap::with_capacity(response.headers.len());
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        map.append(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    headers::remove_hop_by_hop(&mut map, false, false);
    map.remove(CONTENT_LENGTH);
    let mut text = format!("HTTP/1.1 {status} {reason}\r\n").into_bytes();
    for field in response.headers.iter() {
        if map.contains_key(field.name) {
            text.extend_from_slice(field.name.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(field.value);
            text.extend_from_slice(b"\r\n");
        }
    }
    text.extend_from_slice(b"\r\n");
    Some(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(head: &str) -> Option<String> {
        rewritten(head.as_bytes()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn a_head_is_normalized_and_loses_hop_by_hop_fields() {
        let head = "HTTP/1.0 103 Early Hints\nLink: </a>; rel=preload\nTransfer-Encoding: chunked\n\
                    Content-Length: 5\nConnection: close, X-Hop\nX-Hop: 1\nlink: </b>\n\n";
        let expected = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\nlink: </b>\r\n\r\n";
        assert_eq!(text(head).as_deref(), Some(expected));
    }

    #[test]
    fn a_malformed_head_is_not_forwarded() {
        for head in [
            "HTTP/1.1 1O3 x\r\n\r\n",
            "HTTP/1.1 103 x\r\n y: z\r\n\r\n",
            "HTTP/1.1 103",
        ] {
            assert_eq!(text(head), None, "{head:?}");
        }
    }
}
