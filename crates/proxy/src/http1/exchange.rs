use super::FieldNames;
use super::body::BodyReader;
use super::head::{HeadError, ResponseHead, parse_response};
use super::head_reader::HeadBuffer;
use super::interim;
use super::write_request::{RequestWriter, SendError};
use crate::agent_connection::AgentConnection;
use crate::connection::Io;
use crate::read_buffer::with_buffer;
use crate::upload::{ContinueGate, Upload};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

pub(crate) struct Http1Exchange<'a> {
    io: Io,
    request: RequestState,
    /// The body of a fully sent request, kept because the request may have to be sent again.
    sent: Option<Box<Upload>>,
    method: Method,
    head: HeadBuffer,
    responding: bool,
    max_head_bytes: usize,
    agent: Option<&'a AgentConnection>,
    gate: Option<&'a ContinueGate>,
}

enum RequestState {
    Sending(Box<RequestWriter>),
    Sent,
    /// The upstream accepts no more data. It may have responded before.
    Lost(io::Error, Box<RequestWriter>),
}

pub(crate) struct Http1Response {
    pub head: ResponseHead,
    pub body: Box<BodyReader<Io>>,
    pub unsent: Option<Box<RequestWriter>>,
}

pub(crate) enum UnansweredBody {
    Whole(Box<Upload>),
    Rest(Box<Upload>),
    Sent,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("{0}")]
    Head(#[from] HeadError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("connection closed before message completed")]
    Closed,
    #[error("the agent did not send the whole request body")]
    RequestBody,
}

impl<'a> Http1Exchange<'a> {
    /// Sends nothing before the first poll.
    pub fn new(
        io: Io,
        request: Request<Upload>,
        names: &FieldNames,
        max_head_bytes: usize,
        agent: Option<&'a AgentConnection>,
        gate: Option<&'a ContinueGate>,
    ) -> Http1Exchange<'a> {
        Http1Exchange {
            io,
            method: request.method().clone(),
            request: RequestState::Sending(Box::new(RequestWriter::new(request, names))),
            sent: None,
            head: HeadBuffer::default(),
            responding: false,
            max_head_bytes,
            agent,
            gate,
        }
    }

    /// Sends and reads as much as possible until the response head has arrived.
    ///
    /// # Errors
    ///
    /// Returns an error if no response head can arrive anymore.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, ExchangeError>> {
        if let Some(agent) = self.agent {
            // Interim responses may be unsent. The connection's task handles write errors.
            let _ = agent.poll_flush(cx);
        }
        self.send(cx)?;
        let mut arrived = Bytes::new();
        loop {
            let parsed = if arrived.is_empty() {
                ready!(self.poll_read(cx))?
            } else {
                self.parse(&arrived)?
            };
            arrived = Bytes::new();
            match parsed {
                None => {}
                Some((head, None)) => return Poll::Ready(Ok(head)),
                Some((head, Some(interim))) => {
                    self.responding = true;
                    self.interim(&head, &interim, cx);
                    arrived = self.head.take();
                    // The interim response may have opened the gate.
                    self.send(cx)?;
                }
            }
        }
    }

    /// Returns the response for the head that [`Http1Exchange::poll`] returned.
    pub fn into_response(mut self, head: ResponseHead) -> Http1Response {
        let mut body = Box::new(BodyReader::new(self.io, self.head.take(), head.body));
        let unsent = match self.request {
            RequestState::Sent => None,
            RequestState::Sending(mut writer) => {
                body.forbid_reuse();
                writer.release();
                Some(writer)
            }
            RequestState::Lost(..) => {
                body.forbid_reuse();
                None
            }
        };
        Http1Response { head, body, unsent }
    }

    /// Returns the available part of the request body if no response head arrived. The whole body is returned only if
    /// the connection was `lost` before a response started.
    pub fn into_unanswered(self, lost: bool) -> UnansweredBody {
        let unanswered = lost && self.head.is_empty() && !self.responding;
        let (unsent, body) = match self.request {
            RequestState::Sending(writer) | RequestState::Lost(_, writer) => {
                (true, Some(Box::new(writer.into_body())))
            }
            RequestState::Sent => (false, self.sent),
        };
        match body {
            Some(body) if unanswered && body.is_retained() => {
                body.rewound().map_or(UnansweredBody::Sent, |whole| {
                    UnansweredBody::Whole(Box::new(whole))
                })
            }
            Some(body) if unsent => UnansweredBody::Rest(body),
            _ => UnansweredBody::Sent,
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), ExchangeError> {
        let RequestState::Sending(writer) = &mut self.request else {
            return Ok(());
        };
        match writer.poll_send(&mut self.io, cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.end_sending(),
            Poll::Ready(Err(SendError::Io(error))) => self.lose(error),
            Poll::Ready(Err(SendError::Body)) => return Err(ExchangeError::RequestBody),
        }
        Ok(())
    }

    fn lose(&mut self, error: io::Error) {
        self.request = match std::mem::replace(&mut self.request, RequestState::Sent) {
            RequestState::Sending(writer) => RequestState::Lost(error, writer),
            state => state,
        };
    }

    fn end_sending(&mut self) {
        if let RequestState::Sending(writer) =
            std::mem::replace(&mut self.request, RequestState::Sent)
        {
            let body = writer.into_body();
            self.sent = body.is_retained().then(|| Box::new(body));
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Parsed>, ExchangeError>> {
        with_buffer(|buffer| {
            let mut read = ReadBuf::new(buffer);
            let polled = ready!(Pin::new(&mut self.io).poll_read(cx, &mut read));
            if polled.is_err() || read.filled().is_empty() {
                return Poll::Ready(Err(self.closed(polled.err())));
            }
            Poll::Ready(self.parse(read.filled()))
        })
    }

    fn closed(&self, error: Option<io::Error>) -> ExchangeError {
        // A write error is more specific than the read error that it causes.
        let lost = match &self.request {
            RequestState::Lost(error, _) => Some(copy(error)),
            RequestState::Sending(_) | RequestState::Sent => None,
        };
        lost.or(error)
            .map_or(ExchangeError::Closed, ExchangeError::Io)
    }

    fn parse(&mut self, arrived: &[u8]) -> Result<Option<Parsed>, ExchangeError> {
        let (method, max_bytes) = (&self.method, self.max_head_bytes);
        let parse = |bytes: &[u8]| {
            let parsed = parse_response(bytes, method, max_bytes)?;
            Ok(parsed.map(|(head, length)| {
                let status = head.parts.status;
                let interim =
                    status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS;
                let text = interim.then(|| Bytes::copy_from_slice(&bytes[..length]));
                ((head, text), length)
            }))
        };
        Ok(self.head.read(arrived, max_bytes, parse)?)
    }

    fn interim(&self, head: &ResponseHead, text: &[u8], cx: &mut Context<'_>) {
        if head.parts.status == StatusCode::CONTINUE {
            if let Some(gate) = self.gate {
                gate.open();
            }
            return;
        }
        if let (Some(agent), Some(text)) = (self.agent, interim::rewritten(text)) {
            agent.send_interim(cx, &text);
        }
    }
}

fn copy(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// A head, with its text if it is an interim response.
type Parsed = (ResponseHead, Option<Bytes>);
