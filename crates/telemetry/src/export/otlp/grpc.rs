//! A unary gRPC call, as far as OTLP needs it: five bytes before the message, a few headers, and
//! the status in the trailers (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).

use super::losses::{Failure, Reason};
use super::retry::{Again, Attempt};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD as STANDARD_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue};
use prost::Message;
use std::time::Duration;
use tokengauge_net::client::ClientResponse;

/// Length of the prefix of a message: a compression flag and the length.
const PREFIX: usize = 5;
const DETAILS: &str = "grpc-status-details-bin";

pub(super) fn frame(message: &Bytes, gzip: bool) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX + message.len());
    frame.put_u8(u8::from(gzip));
    // The exporters refuse messages over 64 MiB, so the length fits.
    frame.put_u32(message.len() as u32);
    frame.put_slice(message);
    frame.freeze()
}

pub(super) fn headers(headers: &mut HeaderMap, gzip: bool, timeout: Duration) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    if gzip {
        headers.insert("grpc-encoding", HeaderValue::from_static("gzip"));
    }
    // The header allows at most eight digits: more than a day of milliseconds.
    let milliseconds = timeout.as_millis().min(99_999_999);
    if let Ok(value) = HeaderValue::from_str(&format!("{milliseconds}m")) {
        headers.insert("grpc-timeout", value);
    }
}

/// The message of a successful response. If there is no gRPC status, the HTTP status is used.
pub(super) fn judge(response: &ClientResponse) -> Result<Bytes, Attempt> {
    let field = |name| {
        response
            .trailers
            .get(name)
            .or_else(|| response.headers.get(name))
    };
    let text = |name| field(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.parse::<u8>().ok());
    let asked = text(DETAILS).and_then(retry_info);
    let passing = Again::After(asked.unwrap_or_default());
    let (reason, again) = match code {
        Some(0) => return Ok(unframed(&response.body)),
        // A quota or a disk is full. A retry is allowed only if the response says when.
        Some(8) => {
            let again = asked.map_or(Again::Never, Again::After);
            (Reason::Throttled, again)
        }
        Some(1 | 4 | 10 | 11 | 14 | 15) => (Reason::Unavailable, passing),
        Some(_) => (Reason::Refused, Again::Never),
        None => match response.status.as_u16() {
            429 => (Reason::Throttled, passing),
            502..=504 => (Reason::Unavailable, passing),
            200 | 500.. => (Reason::Unavailable, Again::Never),
            _ => (Reason::Refused, Again::Never),
        },
    };
    let message = match code {
        Some(code) => format!("the receiver answered with gRPC status {code}"),
        None => format!("the receiver answered {} without gRPC", response.status),
    };
    let failure = Failure { reason, message };
    Err(Attempt { failure, again })
}

/// The message without its prefix; empty if it is compressed, which was not requested.
fn unframed(body: &Bytes) -> Bytes {
    match body.first() {
        Some(0) if body.len() >= PREFIX => body.slice(PREFIX..),
        _ => Bytes::new(),
    }
}

/// The fields of `google.rpc.Status` that are read.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Detail>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Detail {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn retry_info(details: &str) -> Option<Duration> {
    let bytes = STANDARD_NO_PAD.decode(details.trim_end_matches('=')).ok()?;
    let status = RpcStatus::decode(Bytes::from(bytes)).ok()?;
    let mut details = status.details.into_iter();
    let info = details.find(|detail| detail.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value).ok()?.retry_delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    Some(Duration::new(
        seconds,
        u32::try_from(delay.nanos).ok()?.min(999_999_999),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    fn response(status: u16, trailer: Option<&'static str>, body: &'static [u8]) -> ClientResponse {
        let mut trailers = HeaderMap::new();
        if let Some(code) = trailer {
            trailers.insert("grpc-status", HeaderValue::from_static(code));
        }
        ClientResponse {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            trailers,
            body: Bytes::from_static(body),
        }
    }

    fn refused(response: &ClientResponse) -> (Reason, Again) {
        let attempt = judge(response).expect_err("no");
        (attempt.failure.reason, attempt.again)
    }

    #[test]
    fn a_message_has_its_length_and_whether_it_is_compressed_before_it() {
        let message = Bytes::from_static(b"abc");
        assert_eq!(frame(&message, false), &b"\0\0\0\0\x03abc"[..]);
        assert_eq!(frame(&message, true), &b"\x01\0\0\0\x03abc"[..]);
    }

    #[test]
    fn a_status_says_whether_the_message_may_be_sent_again() {
        let taken = judge(&response(200, Some("0"), b"\0\0\0\0\x01x"));
        assert_eq!(taken.expect("yes"), "x");
        let soon = Again::After(Duration::ZERO);
        for code in ["1", "4", "10", "11", "14", "15"] {
            let judged = refused(&response(200, Some(code), b""));
            assert_eq!(judged, (Reason::Unavailable, soon), "{code}");
        }
        for code in ["2", "3", "5", "7", "12", "13", "16"] {
            let judged = refused(&response(200, Some(code), b""));
            assert_eq!(judged, (Reason::Refused, Again::Never), "{code}");
        }
        let full = refused(&response(200, Some("8"), b""));
        assert_eq!(full, (Reason::Throttled, Again::Never));
        let status = |status| refused(&response(status, None, b""));
        assert_eq!(status(404), (Reason::Refused, Again::Never));
        assert_eq!(status(503), (Reason::Unavailable, soon));
        assert_eq!(status(200), (Reason::Unavailable, Again::Never));
        let mut early = response(200, None, b"");
        let code = HeaderValue::from_static("7");
        early.headers.insert("grpc-status", code);
        assert_eq!(refused(&early), (Reason::Refused, Again::Never));
    }

    #[test]
    fn a_receiver_says_in_the_details_when_it_may_be_asked_again() {
        let delay = Delay {
            seconds: 3,
            nanos: 500_000_000,
        };
        let info = RetryInfo {
            retry_delay: Some(delay),
        };
        let detail = Detail {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: Bytes::from(info.encode_to_vec()),
        };
        let status = RpcStatus {
            details: vec![detail],
        };
        let details = base64::prelude::BASE64_STANDARD.encode(status.encode_to_vec());
        let mut busy = response(200, Some("8"), b"");
        let details = HeaderValue::from_str(&details).expect("base64");
        busy.trailers.insert(DETAILS, details);
        let wait = Again::After(Duration::from_millis(3500));
        assert_eq!(refused(&busy), (Reason::Throttled, wait));
        assert_eq!(retry_info("!!"), None);
        assert_eq!(retry_info(""), None);
    }
}
