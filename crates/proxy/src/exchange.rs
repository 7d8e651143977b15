//! One request over one connection, until its response head is there.

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

/// A response head, and the instants around it.
pub(super) struct UpstreamResponse {
    pub response: Response<Incoming>,
    pub wire: LeasedConnection,
    /// When the request head had been written, or as much of it as the socket took.
    pub written: Instant,
    /// When the response head was there.
    pub at: Instant,
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
    wire: LeasedConnection,
    request: Request<Upload>,
    handle: &CallHandle,
    timeouts: &Timeouts,
    interim: Option<PassthroughWriter>,
) -> Result<UpstreamResponse, ResponseError> {
    let empty = request.body().is_end_stream();
    let mut wait = ResponseWait {
        handle,
        timeouts,
        timer: Timer::default(),
        written: None,
        empty,
        interim,
    };
    let (answer, wire) = match wire {
        LeasedConnection::Http1(mut http1) => (
            wait.over_http1(&mut http1, request).await,
            LeasedConnection::Http1(http1),
        ),
        LeasedConnection::Http2 { connection, stream } => {
            let mut answer = pin!(connection.sender().try_send_request(request));
            let answer = poll_fn(|cx| wait.poll(cx, |cx| answer.as_mut().poll(cx))).await;
            (answer, LeasedConnection::Http2 { connection, stream })
        }
    };
    let at = now();
    let response = answer?;
    Ok(UpstreamResponse {
        response,
        wire,
        written: wait.written.unwrap_or(at),
        at,
    })
}

struct ResponseWait<'a> {
    handle: &'a CallHandle,
    timeouts: &'a Timeouts,
    timer: Timer,
    written: Option<Instant>,
    /// There is no body whose end could be seen to pass.
    empty: bool,
    /// Takes interim responses to the agent.
    interim: Option<PassthroughWriter>,
}

type SendResult = Result<Response<Incoming>, TrySendError<Request<Upload>>>;

impl ResponseWait<'_> {
    async fn over_http1(
        &mut self,
        http1: &mut Http1,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, ResponseError> {
        let mut interim = self.interim.take();
        let mut answer = pin!(http1.send.try_send_request(request));
        let mut answered = None;
        let mut poll_answer = |cx: &mut Context<'_>| {
            if answered.is_none() {
                let ended = http1.poll(cx).is_ready();
                let mut polled = answer.as_mut().poll(cx);
                if polled.is_pending() && ended {
                    // It gives back what it did not send when it is gone.
                    http1.close();
                    polled = answer.as_mut().poll(cx);
                }
                if !matches!(polled, Poll::Ready(Err(_))) {
                    pass_interim(http1, interim.as_mut(), cx);
                }
                answered = Some(ready!(polled));
            }
            // The final head is not to come between.
            let unsent = interim.as_mut().map(|past| past.poll_unsent(cx));
            if unsent.is_some_and(|unsent| unsent.is_pending()) {
                return Poll::Pending;
            }
            Poll::Ready(answered.take().expect("polled until it is ready"))
        };
        poll_fn(|cx| self.poll(cx, &mut poll_answer)).await
    }

    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut answer: impl FnMut(&mut Context<'_>) -> Poll<SendResult>,
    ) -> Poll<Result<Response<Incoming>, ResponseError>> {
        let polled = answer(cx);
        let written = *self.written.get_or_insert_with(now);
        if self.empty && self.handle.when_sent().is_none() && !matches!(polled, Poll::Ready(Err(_)))
        {
            self.handle.sent(written);
        }
        if let Poll::Ready(answer) = polled {
            return Poll::Ready(answer.map_err(unanswered));
        }
        let (handle, timeouts) = (self.handle, self.timeouts);
        let deadline = || match handle.when_sent() {
            Some(sent) => sent + timeouts.head,
            None if handle.awaits_upload() => handle.last_moved() + timeouts.idle,
            None => handle.last_moved() + timeouts.send,
        };
        self.timer
            .poll(cx, deadline)
            .map(|()| Err(ResponseError::Failed(self.too_late())))
    }

    fn too_late(&self) -> Failure {
        match self.handle.when_sent() {
            Some(_) => {
                let limit = self.timeouts.head;
                failure(
                    FailureKind::HeadTimeout,
                    format!("did not begin to respond within {limit:?}"),
                )
            }
            None if !self.handle.awaits_upload() => {
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

/// Passes interim responses on as they came, if the server has nothing to write.
fn pass_interim(http1: &Http1, past: Option<&mut PassthroughWriter>, cx: &mut Context<'_>) {
    let interim = http1.control().interim();
    let Some(past) = past else { return };
    // An agent that cannot be written to is found out by the server.
    let _ = past.poll_unsent(cx);
    for head in interim {
        if past.agent().is_clear() {
            let _ = past.send(cx, &head);
        }
    }
}

fn unanswered(mut error: TrySendError<Request<Upload>>) -> ResponseError {
    let request = error.take_message();
    let failure = lost(&error.into_error());
    match request {
        Some(request) => ResponseError::NotSent(Box::new(request), failure),
        None => ResponseError::Failed(failure),
    }
}

/// Says why a connection gave no response head.
fn lost(error: &hyper::Error) -> Failure {
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
