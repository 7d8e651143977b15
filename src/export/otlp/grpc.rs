//! A gRPC call with one message each way, as far as OTLP needs it: five bytes before the
//! message, a few headers, and the status in the trailers
//! (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use super::client::Answer;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::time::Duration;

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A message in its frame.
pub(super) fn frame(message: &Bytes, gzip: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(u8::from(gzip));
    // The exporters refuse messages over 64 MiB.
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

/// The headers of the call.
pub(super) fn headers(headers: &mut HeaderMap, gzip: bool, timeout: Duration) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if gzip {
        headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
    }
    // At most eight digits are allowed: more than a day of milliseconds.
    let milliseconds = timeout.as_millis().min(99_999_999);
    if let Ok(value) = HeaderValue::from_str(&format!("{milliseconds}m")) {
        headers.insert("grpc-timeout", value);
    }
}

/// The HTTP status that says the same as the call's, a sentence, and the message of the
/// answer. What may be tried again is what OTLP says may be.
pub(super) fn judge(answer: &Answer) -> (StatusCode, String, Bytes) {
    let field = answer.trailers.get("grpc-status");
    let field = field.or_else(|| answer.head.get("grpc-status"));
    let code = field.and_then(|code| code.to_str().ok()?.parse::<u8>().ok());
    let Some(code) = code else {
        let message = format!("the receiver answered {} without gRPC", answer.status);
        let refused = !answer.status.is_success();
        let status = if refused {
            answer.status
        } else {
            StatusCode::BAD_GATEWAY
        };
        return (status, message, Bytes::new());
    };
    let status = match code {
        0 => StatusCode::OK,
        8 => StatusCode::TOO_MANY_REQUESTS,
        1 | 4 | 10 | 11 | 14 | 15 => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    };
    let message = format!("the receiver answered with gRPC status {code}");
    let plain = answer.body.first() == Some(&0) && answer.body.len() >= PREFIX;
    let body = if plain {
        answer.body.slice(PREFIX..)
    } else {
        Bytes::new()
    };
    (status, message, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, trailer: Option<&'static str>, body: &'static [u8]) -> Answer {
        let mut trailers = HeaderMap::new();
        if let Some(code) = trailer {
            trailers.insert("grpc-status", HeaderValue::from_static(code));
        }
        Answer {
            status: StatusCode::from_u16(status).expect("a status"),
            head: HeaderMap::new(),
            trailers,
            body: Bytes::from_static(body),
        }
    }

    #[test]
    fn a_message_has_its_length_and_whether_it_is_compressed_before_it() {
        let message = Bytes::from_static(b"abc");
        assert_eq!(frame(&message, false), &b"\0\0\0\0\x03abc"[..]);
        assert_eq!(frame(&message, true), &b"\x01\0\0\0\x03abc"[..]);
    }

    #[test]
    fn a_status_becomes_one_of_http_that_is_tried_again_alike() {
        let status = |answer: &Answer| judge(answer).0.as_u16();
        assert_eq!(status(&answer(200, Some("0"), b"\0\0\0\0\x01x")), 200);
        assert_eq!(judge(&answer(200, Some("0"), b"\0\0\0\0\x01x")).2, "x");
        assert_eq!(status(&answer(200, Some("8"), b"")), 429);
        assert_eq!(status(&answer(200, Some("14"), b"")), 503);
        assert_eq!(status(&answer(200, Some("16"), b"")), 400);
        assert_eq!(status(&answer(404, None, b"")), 404);
        assert_eq!(status(&answer(200, None, b"")), 502);
        let mut early = answer(200, None, b"");
        let refused = HeaderValue::from_static("7");
        early.head.insert("grpc-status", refused);
        assert_eq!(status(&early), 400);
    }
}
