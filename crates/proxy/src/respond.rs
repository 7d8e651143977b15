//! Turns an upstream's response into the agent's: prepares the head and taps the body.

use super::body::Body;
use super::call_handle::{Call, CallHandle};
use super::clock::now;
use super::connection::Io;
use super::exchange::UpstreamResponse;
use super::headers;
use super::http1;
use super::message::AgentResponse;
use super::refusal::{describe_failure, failure, refuse};
use super::send::{Forwarding, SentRequest};
use super::tap::{MeasuredBody, StreamingBody};
use super::upgrade::Tunnel;
use super::upstream::Endpoint;
use super::upstream_body::UpstreamBody;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode, Version, response};
use std::sync::Arc;
use tokengauge_core::observer::{FailureKind, Phase};

impl Forwarding<'_> {
    pub fn respond(&self, sent: SentRequest, call: Call) -> AgentResponse {
        let SentRequest {
            response,
            endpoint,
            in_flight,
            upgrade,
            rewritten,
            overhead,
        } = sent;
        let UpstreamResponse {
            mut parts,
            names,
            reason,
            body,
            received_at,
            ..
        } = response;
        let handle = Arc::clone(call.handle());
        handle.notify(|observer| observer.head(received_at, parts.status, &parts.headers));
        let switching = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        let requested = switching && headers::names_allowed_protocol(&parts.headers, self.route);
        if let Some(problem) = framing_problem(&parts.headers) {
            return self.refuse_response(call, problem, &endpoint);
        }
        let closes = closes_connection(&mut parts);
        headers::agent_response(&mut parts, self.route);
        if self.route.ratelimit_headers {
            let fields = handle.query(|observer| observer.limit_headers());
            parts.headers.extend(fields.unwrap_or_default());
        }
        parts.version = Version::HTTP_11;
        let ends_upload = body.has_unsent();
        let (body, tunnel) = if switching {
            match tunnel(body, upgrade && requested) {
                Ok((io, read_ahead)) => {
                    let tunnel = Tunnel {
                        upstream: io,
                        read_ahead,
                        call,
                        in_flight,
                        timeouts: self.upstream.settings.timeouts,
                        drain: self.connection.drain.clone(),
                    };
                    (Body::empty(), Some(Box::new(tunnel)))
                }
                Err(problem) => return self.refuse_response(call, problem, &endpoint),
            }
        } else {
            let bodiless = headers::is_bodiless(parts.status, &self.method);
            let timeouts = &self.upstream.settings.timeouts;
            let measured = MeasuredBody::new(call, endpoint, in_flight, timeouts);
            let mut streaming = StreamingBody::new(framed(body, closes, bodiless), measured);
            if rewritten {
                streaming = filtered(streaming, &mut parts, &handle);
            }
            (self.body(streaming), None)
        };
        let overhead = overhead + now().saturating_duration_since(received_at);
        handle.notify(|observer| observer.overhead(Phase::Head, overhead));
        AgentResponse {
            parts,
            names,
            reason,
            body,
            ends_upload,
            tunnel,
        }
    }

    fn refuse_response(
        &self,
        call: Call,
        problem: &'static str,
        endpoint: &Endpoint,
    ) -> AgentResponse {
        let failure = describe_failure(
            failure(FailureKind::Protocol, problem),
            &self.upstream.settings,
            &endpoint.display_name(),
            call.handle(),
        );
        refuse(call, &failure)
    }

    fn body(&self, mut streaming: StreamingBody) -> Body {
        streaming.finish_if_empty();
        if streaming.is_over() {
            return Body::empty();
        }
        let http2 = self.agent_version >= Version::HTTP_2;
        let http2 = http2.then(|| Arc::clone(&self.connection.send_state));
        Body::streaming(streaming, http2)
    }
}

/// The upstream's side of a connection that switches protocols, or why it must not switch.
fn tunnel(body: UpstreamBody, requested: bool) -> Result<(Io, Bytes), &'static str> {
    match body {
        UpstreamBody::Http1 { body, .. } if requested => body
            .into_upgraded()
            .ok_or("switched protocols before it had received the whole request"),
        _ => Err("switched protocols although the request did not ask for it"),
    }
}

fn filtered(
    streaming: StreamingBody,
    head: &mut response::Parts,
    handle: &CallHandle,
) -> StreamingBody {
    let filter = handle.query(|observer| observer.response_filter(&head.headers));
    let Some(filter) = filter.flatten() else {
        return streaming;
    };
    // The filter changes the length.
    head.headers.remove(CONTENT_LENGTH);
    streaming.filtered(filter)
}

/// Whether the upstream's connection ends with the response. Must run before hop-by-hop fields are removed. A length
/// together with chunked coding is an error: the length is removed, and the connection is not reused (RFC 9112 §6.3).
fn closes_connection(parts: &mut response::Parts) -> bool {
    let chunked = parts.headers.contains_key(TRANSFER_ENCODING);
    let ambiguous = chunked && parts.headers.contains_key(CONTENT_LENGTH);
    if ambiguous {
        headers::remove_in_order(&mut parts.headers, &CONTENT_LENGTH);
    }
    ambiguous || !http1::keeps_alive(&parts.headers, parts.version)
}

/// Whether every content length is a number. The proxy ignores the length of a response without a body, but the agent
/// would read it.
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

fn framing_problem(headers: &HeaderMap) -> Option<&'static str> {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let known = codings.next().is_none_or(headers::is_chunked) && codings.next().is_none();
    if !known {
        return Some("sent a transfer-encoding other than `chunked`");
    }
    (!has_plain_length(headers)).then_some("sent a content-length that is not a number")
}

/// The body, or none if the response is `bodiless`. If the connection `closes`, it is not reused.
fn framed(mut body: UpstreamBody, closes: bool, bodiless: bool) -> UpstreamBody {
    match &mut body {
        // Bytes after the head of a bodiless response would be mistaken for a body.
        UpstreamBody::Http2 { .. } if bodiless => return UpstreamBody::Ended,
        UpstreamBody::Http1 { body, .. } if closes => body.forbid_reuse(),
        _ => {}
    }
    body
}
