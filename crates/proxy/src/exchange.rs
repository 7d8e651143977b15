//! Sends one request over one connection and waits for its response head.

use super::agent_socket::PassthroughWriter;
use super::call_handle::CallHandle;
use super::clock::now;
use super::connection::Http1;
use super::refusal::failure;
use super::timer::Timer;
use super::upload::Upload;
use super::upstream::LeasedConnection;
use crate::settings::Timeouts;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;
use tokengauge_core::observer::{Failure, FailureKind};

/// A response head, its connection, and when both were ready.
pub(super) struct UpstreamResponse {
    pub response: Response<Incoming>,
    pub connection: LeasedConnection,
    /// When the request head was written, or as much of it as the socket accepted.
    pub written_at: Instant,
    /// When the response head arrived.
    pub received_at: Instant,
}

/// Why there is no response head.
pub(super) enum ResponseError {
    /// Nothing was sent: the request can go over another connection.
    NotSent(Box<Request<Upload>>, Failure),
    /// Part of it was sent: it must not be sent again.
    Failed(Failure),
}

/// Sends a request and waits for the response head.
pub(super) async fn exchange(
    connection: LeasedConnection,
    request: Request<Upload>,
    handle: &CallHandle,
    timeouts: &Timeouts,
    interim_writer: Option<PassthroughWriter>,
) -> Result<UpstreamResponse, ResponseError> {
    let body_is_empty = request.body().is_end_stream();
    let mut wait = ResponseWait {
        handle,
        timeouts,
        timer: Timer::default(),
        written_at: None,
        body_is_empty,
        interim_writer,
    };
    let (response, connection) = match connection {
        LeasedConnection::Http1(mut http1) => (
            wait.send_http1(&mut http1, request).await,
            LeasedConnection::Http1(http1),
        ),
        LeasedConnection::Http2 { connection, stream } => {
            let mut response = pin!(connection.sender().try_send_request(request));
            let response = poll_fn(|cx| wait.poll(cx, |cx| response.as_mut().poll(cx))).await;
            (response, LeasedConnection::Http2 { connection, stream })
        }
    };
    let received_at = now();
    let response = response?;
    Ok(UpstreamResponse {
        response,
        connection,
        written_at: wait.written_at.unwrap_or(received_at),
        received_at,
    })
}

struct ResponseWait<'a> {
    handle: &'a CallHandle,
    timeouts: &'a Timeouts,
    timer: Timer,
    written_at: Option<Instant>,
    /// The request has no body, so that no frame marks its end.
    body_is_empty: bool,
    /// Writes interim responses to the agent.
    interim_writer: Option<PassthroughWriter>,
}

type SendResult = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

impl ResponseWait<'_> {
    async fn send_http1(
        &mut self,
        http1: &mut Http1,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, ResponseError> {
        let mut writer = self.interim_writer.take();
        let mut pending = pin!(http1.sender.try_send_request(request));
        let mut response = None;
        let mut poll_response = |cx: &mut Context<'_>| {
            if response.is_none() {
                let ended = http1.poll(cx).is_ready();
                let mut polled = pending.as_mut().poll(cx);
                if polled.is_pending() && ended {
                    // Dropping the connection makes hyper return a request that it has not sent.
                    http1.close();
                    polled = pending.as_mut().poll(cx);
                }
                if !matches!(polled, Poll::Ready(Err(_))) {
                    forward_interim(http1, writer.as_mut(), cx);
                }
                response = Some(ready!(polled));
            }
            // The final head must not be written in the middle of an interim response.
            let unsent = writer.as_mut().map(|writer| writer.poll_flush(cx));
            if unsent.is_some_and(|unsent| unsent.is_pending()) {
                return Poll::Pending;
            }
            Poll::Ready(response.take().expect("polled until it is ready"))
        };
        poll_fn(|cx| self.poll(cx, &mut poll_response)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut poll_response: impl FnMut(&mut Context<'_>) -> Poll<SendResult>,
    ) -> Poll<Result<Response<Incoming>, ResponseError>> {
        let polled = poll_response(cx);
        let written = *self.written_at.get_or_insert_with(now);
        if self.body_is_empty
            && self.handle.request_sent_at().is_none()
            && !matches!(polled, Poll::Ready(Err(_)))
        {
            self.handle.request_sent(written);
        }
        if let Poll::Ready(response) = polled {
            return Poll::Ready(response.map_err(response_error));
        }
        let (handle, timeouts) = (self.handle, self.timeouts);
        let deadline = || match handle.request_sent_at() {
            Some(sent) => sent + timeouts.head,
            None if handle.is_awaiting_upload() => handle.last_activity() + timeouts.idle,
            None => handle.last_activity() + timeouts.send,
        };
        self.timer
            .poll(cx, deadline)
            .map(|()| Err(ResponseError::Failed(self.timeout_failure())))
    }

    fn timeout_failure(&self) -> Failure {
        match self.handle.request_sent_at() {
            Some(_) => {
                let limit = self.timeouts.head;
                failure(
                    FailureKind::HeadTimeout,
                    format!("did not begin to respond within {limit:?}"),
                )
            }
            None if !self.handle.is_awaiting_upload() => {
                let limit = self.timeouts.send;
                failure(
                    FailureKind::SendTimeout,
                    format!("took nothing of the request for {limit:?}"),
                )
            }
            None => {
                let limit = self.timeouts.idle;
                failure(
                    FailureKind::IdleTimeout,
                    format!("got nothing of the request body for {limit:?}"),
                )
            }
        }
    }
}

/// Forwards interim responses, if the server has nothing to write.
fn forward_interim(http1: &Http1, writer: Option<&mut PassthroughWriter>, cx: &mut Context<'_>) {
    let interim = http1.control().take_interim();
    let Some(writer) = writer else { return };
    // The server notices an agent that cannot be written to.
    let _ = writer.poll_flush(cx);
    for head in interim {
        if writer.agent().is_flushed() {
            let _ = writer.send(cx, &head);
        }
    }
}

fn response_error(mut error: TrySendError<Request<Upload>>) -> ResponseError {
    let request = error.take_message();
    let failure = no_response(&error.into_error());
    match request {
        Some(request) => ResponseError::NotSent(Box::new(request), failure),
        None => ResponseError::Failed(failure),
    }
}

/// Describes why a connection gave no response head.
fn no_response(error: &hyper::Error) -> Failure {
    let why = error
        .source()
        .map(|cause| format!("{error}: {cause}"))
        .unwrap_or_else(|| error.to_string());
    if error.is_parse() || error.is_parse_status() || error.is_parse_too_large() {
        return failure(
            FailureKind::Protocol,
            format!("sent what is not an HTTP response ({why})"),
        );
    }
    failure(
        FailureKind::Reset,
        format!("closed the connection before it responded ({why})"),
    )
}
