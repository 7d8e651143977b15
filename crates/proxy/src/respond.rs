//! Turns an upstream's response into the agent's: prepares the head and taps the body.

use super::body::Body;
use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::connection::Http1;
use super::exchange::UpstreamResponse;
use super::forward::{Forwarding, SentRequest};
use super::headers;
use super::http1;
use super::refusal::{describe_failure, failure, refuse};
use super::rewrite;
use super::tap::{ResponseSource, StreamingBody};
use super::upgrade::Tunnel;
use super::upstream::{Endpoint, InFlightGuard, LeasedConnection};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Response, StatusCode, Version, response};
use http_body::Body as _;
use hyper::body::Incoming;
use std::sync::Arc;
use tokengauge_core::observer::{FailureKind, Phase};

impl Forwarding<'_> {
    /// Prepares the upstream's response head for the agent, and taps the body.
    pub fn respond(&self, sent: SentRequest, call: Call) -> Response<Body> {
        let SentRequest {
            response,
            endpoint,
            in_flight,
            upgrade,
            rewritten,
            overhead,
        } = sent;
        let UpstreamResponse {
            response: upstream_response,
            connection,
            received_at,
            ..
        } = response;
        let (mut parts, incoming) = upstream_response.into_parts();
        let handle = Arc::clone(call.handle());
        handle.notify(|observer| observer.head(received_at, parts.status, &parts.headers));
        let switching = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let requested = switching && headers::names_allowed_protocol(&parts.headers, self.route);
        if let Some(problem) = framing_problem(&parts.headers) {
            let failure = failure(FailureKind::Protocol, problem);
            return refuse(
                call,
                &describe_failure(
                    failure,
                    &self.upstream.settings,
                    &endpoint.display_name(),
                    &handle,
                ),
            );
        }
        let framing = ResponseFraming::take_from(&mut parts);
        headers::agent_response(&mut parts, self.route);
        parts.version = Version::HTTP_11;
        let body = match (connection, upgrade) {
            (LeasedConnection::Http1(http1), Some(agent)) if requested => {
                let drain = self.connection.drain.clone();
                Tunnel {
                    http1,
                    agent,
                    call,
                    in_flight,
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
                    &describe_failure(
                        failure,
                        &self.upstream.settings,
                        &endpoint.display_name(),
                        &handle,
                    ),
                );
            }
            (connection, _) => {
                let source = source(connection, incoming, endpoint, framing, &handle);
                let mut streaming = self.streaming(source, call, in_flight);
                if rewritten && rewrite::prepare_for_filter(&mut parts) {
                    streaming = filtered(streaming, &handle);
                }
                self.body(streaming, &parts)
            }
        };
        let overhead = overhead + now().saturating_duration_since(received_at);
        handle.notify(|observer| observer.overhead(Phase::Head, overhead));
        Response::from_parts(parts, body)
    }

    fn streaming(
        &self,
        source: ResponseSource,
        call: Call,
        in_flight: InFlightGuard,
    ) -> StreamingBody {
        let timeouts = &self.upstream.settings.timeouts;
        let streaming = StreamingBody::new(source, call, timeouts, in_flight);
        match &self.connection.agent_socket {
            Some(agent) if self.is_written_chunked() => streaming.with_passthrough(agent.clone()),
            _ => streaming,
        }
    }

    /// Whether a body of unknown length is sent to the agent chunked.
    fn is_written_chunked(&self) -> bool {
        self.agent_version == Version::HTTP_11 && self.method != Method::HEAD
    }

    fn body(&self, mut streaming: StreamingBody, parts: &response::Parts) -> Body {
        streaming.finish_if_empty();
        if !streaming.is_over() {
            let http10 = self.agent_version < Version::HTTP_11;
            return Body::streaming(streaming, self.connection.agent_socket.clone(), http10);
        }
        match parts.headers.get(CONTENT_LENGTH) {
            Some(length) if self.agent_version < Version::HTTP_2 => {
                Body::omitted(length.to_str().ok().and_then(|length| length.parse().ok()))
            }
            _ => Body::empty(),
        }
    }
}

fn filtered(streaming: StreamingBody, handle: &CallHandle) -> StreamingBody {
    match handle
        .query(|observer| observer.response_filter())
        .flatten()
    {
        Some(filter) => streaming.filtered(filter),
        None => streaming,
    }
}

/// How a response is framed over HTTP/1.
#[derive(Clone, Copy, Debug)]
struct ResponseFraming {
    chunked: bool,
    /// Whether the upstream's connection ends with the response.
    closes: bool,
}

impl ResponseFraming {
    /// Reads the framing before hop-by-hop fields are removed. A length together with chunked
    /// coding is an error: the length is removed, and the connection not reused (RFC 9112 §6.3).
    fn take_from(parts: &mut response::Parts) -> ResponseFraming {
        let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
        let ambiguous = chunked && parts.headers.contains_key(CONTENT_LENGTH);
        if ambiguous {
            headers::remove_in_order(&mut parts.headers, &CONTENT_LENGTH);
        }
        let close = headers::has_token(&parts.headers, &CONNECTION, "close");
        let keep_alive = headers::has_token(&parts.headers, &CONNECTION, "keep-alive");
        ResponseFraming {
            chunked,
            closes: ambiguous || close || (parts.version < Version::HTTP_11 && !keep_alive),
        }
    }
}

/// Whether every content length is a number. The client does not check it on a response without a
/// body, and a server would rather close the connection than write it.
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

/// Why the end of the response's body is ambiguous, if it is.
fn framing_problem(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let known = codings.next().is_none_or(headers::is_chunked) && codings.next().is_none();
    if !known {
        return Some("sent a transfer-encoding other than `chunked`");
    }
    (!has_plain_length(headers)).then_some("sent a content-length that is not a number")
}

fn source(
    connection: LeasedConnection,
    incoming: Incoming,
    endpoint: Arc<Endpoint>,
    framing: ResponseFraming,
    handle: &CallHandle,
) -> ResponseSource {
    match connection {
        LeasedConnection::Http1(http1) => http1_source(http1, incoming, endpoint, framing, handle),
        LeasedConnection::Http2 { stream, .. } => ResponseSource::Http2 {
            incoming,
            _stream: stream,
        },
    }
}

/// Takes the connection from its HTTP client if that has only the body left to read.
fn http1_source(
    http1: Box<Http1>,
    incoming: Incoming,
    endpoint: Arc<Endpoint>,
    framing: ResponseFraming,
    handle: &CallHandle,
) -> ResponseSource {
    if handle.request_sent_at().is_none() || !http1.control().is_flushed() {
        http1.control().show_all();
        return ResponseSource::Duplex { incoming, http1 };
    }
    // The client has parsed the head and knows the body's length.
    let length = if incoming.is_end_stream() {
        Some(0)
    } else {
        incoming.size_hint().exact()
    };
    drop(incoming);
    let Some((io, read_ahead)) = http1.into_io() else {
        return ResponseSource::Lost;
    };
    let mut response = http1::BodyReader::new(io, read_ahead, length, framing.chunked);
    if framing.closes {
        response = response.not_reusable();
    }
    ResponseSource::Http1 {
        response: Box::new(response),
        endpoint,
    }
}
