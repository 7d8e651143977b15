use super::agent_connection::AgentConnection;
use super::call_handle::CallHandle;
use super::clock::now;
use super::connection::Http1;
use super::http1::{ExchangeError, FieldNames, Http1Exchange, Http1Response, UnansweredBody};
use super::refusal::failure;
use super::timer::Timer;
use super::upload::{ContinueGate, Upload};
use super::upstream::LeasedConnection;
use super::upstream_body::UpstreamBody;
use crate::settings::Timeouts;
use bytes::Bytes;
use http::{Request, response};
use http_body::Body;
use hyper::client::conn::TrySendError;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tokengauge_core::observer::{Failure, FailureKind};

pub(super) struct UpstreamResponse {
    pub parts: response::Parts,
    /// Field names as they were written.
    pub names: FieldNames,
    /// The reason phrase, if it is not the default.
    pub reason: Option<Bytes>,
    pub body: UpstreamBody,
    /// When the request head was written, or as much of it as the socket accepted.
    pub written_at: Instant,
    pub received_at: Instant,
}

pub(super) enum ResponseError {
    /// Nothing was sent, so the request can be sent over another connection.
    NotSent(Box<Request<Upload>>, Failure),
    /// The connection was lost before any byte of a response. The whole request body is returned, to be sent again.
    Lost(Failure, Box<Upload>),
    /// Part of the request was sent, so it must not be sent again. Over HTTP/1, the rest of its body is returned.
    Failed(Failure, Option<Box<Upload>>),
}

impl ResponseError {
    pub fn failure(&self) -> &Failure {
        match self {
            ResponseError::NotSent(_, failure)
            | ResponseError::Lost(failure, _)
            | ResponseError::Failed(failure, _) => failure,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Http1Context<'a> {
    /// Field names of the request as they were written.
    pub names: &'a FieldNames,
    pub agent: Option<&'a AgentConnection>,
    pub gate: Option<&'a ContinueGate>,
}

pub(super) async fn exchange(
    connection: LeasedConnection,
    request: Request<Upload>,
    handle: &CallHandle,
    timeouts: &Timeouts,
    http1: Http1Context<'_>,
) -> Result<UpstreamResponse, ResponseError> {
    let mut wait = ResponseWait {
        handle,
        timeouts,
        timer: Timer::default(),
        written_at: None,
        body_is_empty: request.body().is_end_stream(),
    };
    let (parts, names, reason, body) = match connection {
        LeasedConnection::Http1(connection) => {
            let response = wait.send_http1(connection, request, http1).await?;
            let Http1Response { head, body, unsent } = response;
            let body = UpstreamBody::Http1 { body, unsent };
            (head.parts, head.names, head.reason, body)
        }
        LeasedConnection::Http2 { connection, stream } => {
            let mut response = pin!(connection.sender().try_send_request(request));
            let poll = |cx: &mut Context<'_>| response.as_mut().poll(cx).map_err(response_error);
            let mut poll = poll;
            let response = poll_fn(|cx| wait.poll(cx, &mut poll)).await?;
            let (parts, incoming) = response.into_parts();
            let body = UpstreamBody::Http2 {
                incoming,
                _stream: stream,
            };
            (parts, FieldNames::default(), None, body)
        }
    };
    let received_at = now();
    Ok(UpstreamResponse {
        parts,
        names,
        reason,
        body,
        written_at: wait.written_at.unwrap_or(received_at),
        received_at,
    })
}

struct ResponseWait<'a> {
    handle: &'a CallHandle,
    timeouts: &'a Timeouts,
    timer: Timer,
    written_at: Option<Instant>,
    body_is_empty: bool,
}

impl ResponseWait<'_> {
    async fn send_http1(
        &mut self,
        mut connection: Http1,
        request: Request<Upload>,
        context: Http1Context<'_>,
    ) -> Result<Http1Response, ResponseError> {
        if connection.io.is_unsolicited() {
            // An unsolicited response could be mistaken for the response to this request.
            let failure = no_response(&ExchangeError::Closed);
            return Err(ResponseError::NotSent(Box::new(request), failure));
        }
        let Http1Context { names, agent, gate } = context;
        let (io, max_bytes) = (connection.io, connection.max_head_bytes);
        let mut exchange = Http1Exchange::new(io, request, names, max_bytes, agent, gate);
        let mut lost = false;
        let mut poll = |cx: &mut Context<'_>| {
            let polled = exchange.poll(cx);
            polled.map_err(|error| {
                lost = matches!(error, ExchangeError::Closed | ExchangeError::Io(_));
                ResponseError::Failed(no_response(&error), None)
            })
        };
        let response = poll_fn(|cx| self.poll(cx, &mut poll)).await;
        match response {
            Ok(head) => Ok(exchange.into_response(head)),
            Err(ResponseError::Failed(failure, _)) => Err(match exchange.into_unanswered(lost) {
                UnansweredBody::Whole(body) => ResponseError::Lost(failure, body),
                UnansweredBody::Rest(body) => ResponseError::Failed(failure, Some(body)),
                UnansweredBody::Sent => ResponseError::Failed(failure, None),
            }),
            Err(error) => Err(error),
        }
    }

    fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll_response: impl FnMut(&mut Context<'_>) -> Poll<Result<T, ResponseError>>,
    ) -> Poll<Result<T, ResponseError>> {
        let polled = poll_response(cx);
        let written = *self.written_at.get_or_insert_with(now);
        if self.body_is_empty
            && self.handle.request_sent_at().is_none()
            && !matches!(polled, Poll::Ready(Err(_)))
        {
            self.handle.request_sent(written);
        }
        if polled.is_ready() {
            return polled;
        }
        let (handle, timeouts) = (self.handle, self.timeouts);
        let deadline = || match handle.request_sent_at() {
            Some(sent) => sent + timeouts.head,
            None if handle.is_awaiting_upload() => handle.last_activity() + timeouts.idle,
            None => handle.last_activity() + timeouts.send,
        };
        self.timer
            .poll(cx, deadline)
            .map(|()| Err(ResponseError::Failed(self.timeout_failure(), None)))
    }

    fn timeout_failure(&self) -> Failure {
        match self.handle.request_sent_at() {
            Some(_) => {
                let limit = self.timeouts.head;
                failure(
                    FailureKind::HeadTimeout,
                    format!("did not start to respond within {limit:?}"),
                )
            }
            None if !self.handle.is_awaiting_upload() => {
                let limit = self.timeouts.send;
                failure(
                    FailureKind::SendTimeout,
                    format!("accepted no data of the request for {limit:?}"),
                )
            }
            None => {
                let limit = self.timeouts.idle;
                failure(
                    FailureKind::IdleTimeout,
                    format!("received no data of the request body for {limit:?}"),
                )
            }
        }
    }
}

fn response_error(mut error: TrySendError<Request<Upload>>) -> ResponseError {
    let request = error.take_message();
    let error = error.into_error();
    let why = error
        .source()
        .map(|cause| format!("{error}: {cause}"))
        .unwrap_or_else(|| error.to_string());
    let failure = closed_early(&why);
    match request {
        Some(request) => ResponseError::NotSent(Box::new(request), failure),
        None => ResponseError::Failed(failure, None),
    }
}

fn no_response(error: &ExchangeError) -> Failure {
    match error {
        ExchangeError::Head(error) => failure(
            FailureKind::Protocol,
            format!("sent an invalid HTTP response ({error})"),
        ),
        ExchangeError::Io(_) | ExchangeError::Closed | ExchangeError::RequestBody => {
            closed_early(&error.to_string())
        }
    }
}

fn closed_early(why: &str) -> Failure {
    failure(
        FailureKind::Reset,
        format!("closed the connection before it responded ({why})"),
    )
}
