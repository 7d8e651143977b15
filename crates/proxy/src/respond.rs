//! An upstream's response on its way to the agent: the head made fit, the body tapped.

use super::body::Body;
use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::connection::Http1;
use super::exchange::UpstreamResponse;
use super::forward::{Forwarding, SentRequest};
use super::headers;
use super::http1;
use super::refusal::{blame, failure, refuse};
use super::rewrite;
use super::tap::{ResponseSource, Streaming};
use super::upgrade::Tunnel;
use super::upstream::{Endpoint, InFlightGuard, LeasedConnection};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Response, StatusCode, Version, response};
use http_body::Body as _;
use hyper::body::Incoming;
use std::sync::Arc;
use tokengauge_core::observer::{FailureKind, Phase};

impl Forwarding<'_> {
    /// Makes the response head of the upstream's the agent's, and taps the body.
    pub fn respond(&self, sent: SentRequest, call: Call) -> Response<Body> {
        let SentRequest {
            answered,
            endpoint,
            held,
            upgrade,
            rewritten,
            cost,
        } = sent;
        let UpstreamResponse {
            response, wire, at, ..
        } = answered;
        let (mut parts, incoming) = response.into_parts();
        let handle = Arc::clone(call.handle());
        handle.notify(|observer| observer.head(at, parts.status, &parts.headers));
        let switching = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let asked_for = switching && headers::names_allowed_protocol(&parts.headers, self.route);
        if let Some(problem) = unreadable(&parts.headers) {
            let failure = failure(FailureKind::Protocol, problem);
            return refuse(
                call,
                &blame(
                    failure,
                    &self.upstream.settings,
                    &endpoint.display_name(),
                    &handle,
                ),
            );
        }
        let delivery = ResponseFraming::of(&mut parts);
        headers::agent_response(&mut parts, self.route);
        parts.version = Version::HTTP_11;
        let body = match (wire, upgrade) {
            (LeasedConnection::Http1(http1), Some(agent)) if asked_for => {
                let drain = self.connection.drain.clone();
                Tunnel {
                    http1,
                    agent,
                    call,
                    held,
                    timeouts: self.upstream.settings.timeouts,
                    drain,
                }
                .start();
                Body::empty()
            }
            _ if switching => {
                let failure = failure(
                    FailureKind::Protocol,
                    "switched protocols though nobody asked for it".to_owned(),
                );
                return refuse(
                    call,
                    &blame(
                        failure,
                        &self.upstream.settings,
                        &endpoint.display_name(),
                        &handle,
                    ),
                );
            }
            (wire, _) => {
                let source = source(wire, incoming, endpoint, delivery, &handle);
                let mut streaming = self.streaming(source, call, held);
                if rewritten && rewrite::filters(&mut parts) {
                    streaming = filtered(streaming, &handle);
                }
                self.body(streaming, &parts)
            }
        };
        let cost = cost + now().saturating_duration_since(at);
        handle.notify(|observer| observer.overhead(Phase::Head, cost));
        Response::from_parts(parts, body)
    }

    fn streaming(&self, source: ResponseSource, call: Call, held: InFlightGuard) -> Streaming {
        let timeouts = &self.upstream.settings.timeouts;
        let streaming = Streaming::new(source, call, timeouts, held);
        match &self.connection.direct {
            Some(agent) if self.is_written_chunked() => streaming.past_the_server(agent.clone()),
            _ => streaming,
        }
    }

    /// Whether the agent gets a body of unknown length in chunks.
    fn is_written_chunked(&self) -> bool {
        self.agent_version == Version::HTTP_11 && self.method != Method::HEAD
    }

    fn body(&self, mut streaming: Streaming, parts: &response::Parts) -> Body {
        streaming.finish_if_empty();
        if !streaming.is_over() {
            let old = self.agent_version < Version::HTTP_11;
            return Body::streaming(streaming, self.connection.direct.clone(), old);
        }
        match parts.headers.get(CONTENT_LENGTH) {
            Some(length) if self.agent_version < Version::HTTP_2 => {
                Body::unsent(length.to_str().ok().and_then(|length| length.parse().ok()))
            }
            _ => Body::empty(),
        }
    }
}

fn filtered(streaming: Streaming, handle: &CallHandle) -> Streaming {
    match handle.ask(|observer| observer.response_filter()).flatten() {
        Some(filter) => streaming.filtered(filter),
        None => streaming,
    }
}

/// How a response comes over HTTP/1.
#[derive(Clone, Copy, Debug)]
struct ResponseFraming {
    chunked: bool,
    /// The connection ends with it.
    last: bool,
}

impl ResponseFraming {
    /// Reads it from a head before the fields of the connection go. A length beside
    /// chunks is wrong: it goes, too, and the connection with it (RFC 9112 §6.3).
    fn of(parts: &mut response::Parts) -> ResponseFraming {
        let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
        let doubtful = chunked && parts.headers.contains_key(CONTENT_LENGTH);
        if doubtful {
            headers::remove_in_order(&mut parts.headers, &CONTENT_LENGTH);
        }
        let closes = headers::has_token(&parts.headers, &CONNECTION, "close");
        let stays = headers::has_token(&parts.headers, &CONNECTION, "keep-alive");
        ResponseFraming {
            chunked,
            last: doubtful || closes || (parts.version < Version::HTTP_11 && !stays),
        }
    }
}

/// Whether the length is a number, or there is none. Where there is no body the client does
/// not read it, and a server would rather close the connection than write it.
fn has_plain_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    lengths.all(|length| {
        let digits = length.as_bytes().iter().all(u8::is_ascii_digit);
        digits
            && length
                .to_str()
                .is_ok_and(|text| text.parse::<u64>().is_ok())
    })
}

/// Why nobody can be sure where the response's body ends.
fn unreadable(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let known = codings.next().is_none_or(headers::is_chunked) && codings.next().is_none();
    if !known {
        return Some("sent a transfer-encoding other than `chunked`");
    }
    (!has_plain_length(headers)).then_some("sent a content-length that is not a number")
}

fn source(
    wire: LeasedConnection,
    incoming: Incoming,
    endpoint: Arc<Endpoint>,
    delivery: ResponseFraming,
    handle: &CallHandle,
) -> ResponseSource {
    match wire {
        LeasedConnection::Http1(http1) => http1_source(http1, incoming, endpoint, delivery, handle),
        LeasedConnection::Http2 { stream, .. } => ResponseSource::Http2 {
            incoming,
            _stream: stream,
        },
    }
}

/// Takes the connection from its client when that has nothing to do but to read.
fn http1_source(
    http1: Box<Http1>,
    incoming: Incoming,
    endpoint: Arc<Endpoint>,
    delivery: ResponseFraming,
    handle: &CallHandle,
) -> ResponseSource {
    if handle.when_sent().is_none() || !http1.control().is_flushed() {
        http1.control().open();
        return ResponseSource::Duplex { incoming, http1 };
    }
    // The client has judged the head.
    let length = if incoming.is_end_stream() {
        Some(0)
    } else {
        incoming.size_hint().exact()
    };
    drop(incoming);
    let Some((io, ahead)) = http1.into_io() else {
        return ResponseSource::Lost;
    };
    let mut response = http1::BodyReader::new(io, ahead, length, delivery.chunked);
    if delivery.last {
        response = response.not_reusable();
    }
    ResponseSource::Http1 {
        response: Box::new(response),
        endpoint,
    }
}
