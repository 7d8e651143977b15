//! Error responses for requests that fail in the proxy. They say which side is at fault.

use super::body::Body;
use super::call_handle::{Call, CallHandle, UploadError};
use super::clock::now;
use super::discard_body::UnreadBody;
use super::limit::RetryAfter;
use super::message::AgentResponse;
use crate::settings::{Route, Upstream};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response};
use tokengauge_core::observer::{End, Failure, FailureKind};

const ERROR: HeaderName = HeaderName::from_static("x-tokengauge-error");

pub(super) fn refuse(call: Call, failure: &Failure) -> AgentResponse {
    let (response, end) = (error_response(&call, failure), failure_end(&call, failure));
    call.end(now(), end);
    response
}

/// Like [`refuse`], for a request whose body may name the caller. The observer receives the rest of the body after the
/// response.
pub(super) fn refuse_unread(call: Call, failure: &Failure, body: UnreadBody) -> AgentResponse {
    let (response, end) = (error_response(&call, failure), failure_end(&call, failure));
    body.discard(call, now(), end);
    response
}

fn failure_end(call: &Call, failure: &Failure) -> End {
    match call.handle().upload_error() {
        Some(UploadError::Abandoned) => call.downstream().abandoned_end(),
        _ => End::Failed(failure.kind),
    }
}

fn error_response(call: &Call, failure: &Failure) -> AgentResponse {
    let error = call
        .handle()
        .query(|observer| observer.error_response(failure));
    let (content_type, body) = match error {
        Some(error) => (error.content_type, error.body),
        None => (
            "text/plain; charset=utf-8",
            Bytes::from(failure.message.clone()),
        ),
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = failure.kind.status();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(ERROR, HeaderValue::from_static(failure.kind.as_str()));
    if let Some(wait) = failure.retry_after {
        let seconds = RetryAfter(wait).seconds();
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    AgentResponse::from(response)
}

pub(super) fn rate_limited(route: &Route, wait: RetryAfter) -> Failure {
    let message = format!(
        "route {} has reached its limit of requests per minute; try again in {} s",
        route.name,
        wait.seconds()
    );
    Failure {
        retry_after: Some(wait.0),
        ..failure(FailureKind::RateLimited, message)
    }
}

/// Adds details to a failure: upstream, endpoint and advice. If the agent's body was malformed, blames the agent
/// instead.
pub(super) fn describe_failure(
    failure: Failure,
    upstream: &Upstream,
    endpoint: &str,
    handle: &CallHandle,
) -> Failure {
    if handle.upload_error() == Some(UploadError::Malformed) {
        return self::failure(
            FailureKind::BadRequest,
            "the request body is malformed: its framing is wrong",
        );
    }
    let Failure { kind, message, .. } = failure;
    let upstream = &upstream.name;
    let message = format!("upstream {upstream}: {endpoint} {message}{}", hint(kind));
    tracing::warn!(%upstream, %endpoint, kind = kind.as_str(), "{message}");
    self::failure(kind, message)
}

pub(super) fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
        retry_after: None,
    }
}

fn hint(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Dns => "; check the endpoint's name and the name server",
        FailureKind::Connect => "; check that the upstream runs and that its address is right",
        FailureKind::Tls => "; check the upstream's certificate, `ca` and `server_name`",
        FailureKind::ConnectTimeout => {
            "; check the network, or raise `connect` of the upstream's timeouts"
        }
        FailureKind::HeadTimeout => {
            "; the upstream may be overloaded: raise `head` of the upstream's timeouts if such a delay is normal"
        }
        FailureKind::IdleTimeout => {
            "; raise `idle` of the upstream's timeouts if such pauses are normal"
        }
        FailureKind::SendTimeout => {
            "; the upstream may be overloaded: raise `send` of the upstream's timeouts if such a delay is normal"
        }
        FailureKind::Reset => "; see the upstream's log, and try again",
        FailureKind::Protocol => "; check the address and the upstream's `protocol`",
        _ => "",
    }
}
