//! An agent's HTTP/1 connection: the socket, the current request and unsent data. The connection's task and the request
//! body share it. The lock is held only for single system calls.

mod body;

pub(super) use body::Http1Body;

use crate::body_error::AgentBodyError;
use crate::http1::{
    BodyLength, HeadBuffer, HeadError, RequestDecoder, RequestHead, WriteBuffer, parse_request,
};
use crate::listener::TimedSocket;
use crate::read_buffer::with_buffer;
use bytes::Bytes;
use http_body::Frame;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read ahead during a response, usually the next request.
const READ_AHEAD: usize = 8 * 1024;
/// How much of an abandoned request body is read to keep the connection usable. Only bytes that have already arrived
/// count.
const MAX_DRAIN_BYTES: u64 = 64 * 1024;
const MAX_UNSENT: usize = 16 * 1024;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// An agent's HTTP/1 connection. Clones share it.
#[derive(Clone)]
pub(super) struct AgentConnection(Arc<Mutex<ConnectionState>>);

struct ConnectionState {
    /// `None` once the connection was closed or upgraded.
    io: Option<TimedSocket>,
    head: HeadBuffer,
    /// Bytes that have arrived and are not decoded yet.
    read_ahead: Bytes,
    body: BodyState,
    /// Number of the current request on this connection.
    request: u64,
    /// The agent waits for `100 Continue`, and nothing was written since its head was read.
    expects_continue: bool,
    /// `100 Continue` was written, but is not flushed.
    continue_unsent: bool,
    /// The response to the current request is incomplete.
    serving: bool,
    closing: bool,
    out: WriteBuffer,
    /// The connection's task, if it waits for the end of the request body.
    task: Option<Waker>,
    /// The reader of the request body, if it waits for more bytes.
    body_reader: Option<Waker>,
}

enum BodyState {
    /// The body was read to its end, or there is none.
    Complete,
    Reading(RequestDecoder),
    Abandoned(RequestDecoder),
    Failed,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    #[error("{0}")]
    Head(#[from] HeadError),
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The agent closed the connection within a request head.
    #[error("closed within a request head")]
    Incomplete,
}

impl AgentConnection {
    /// Creates a connection whose first bytes, `arrived`, were already read.
    pub fn new(io: TimedSocket, arrived: &[u8]) -> AgentConnection {
        AgentConnection(Arc::new(Mutex::new(ConnectionState {
            io: Some(io),
            head: HeadBuffer::default(),
            read_ahead: Bytes::copy_from_slice(arrived),
            body: BodyState::Complete,
            request: 0,
            expects_continue: false,
            continue_unsent: false,
            serving: false,
            closing: false,
            out: WriteBuffer::default(),
            task: None,
            body_reader: None,
        })))
    }

    /// Resolves to the next request head, or to `None` if the connection ends first.
    pub fn poll_head(
        &self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<RequestHead>, AgentError>> {
        let mut state = self.state();
        let head = ready!(state.poll_head(cx, max_bytes))?;
        if let Some(head) = &head {
            state.begin(head);
        }
        Poll::Ready(Ok(head))
    }

    pub fn close_gracefully(&self) {
        self.state().closing = true;
    }

    /// Whether another request may follow the current one.
    pub fn is_open(&self) -> bool {
        let state = self.state();
        !state.closing && state.io.is_some()
    }

    pub fn end_response(&self) {
        self.state().serving = false;
    }

    pub fn write<T>(&self, write: impl FnOnce(&mut WriteBuffer) -> T) -> T {
        let mut state = self.state();
        (state.expects_continue, state.continue_unsent) = (false, false);
        write(&mut state.out)
    }

    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.state().poll_flush(cx)
    }

    /// Writes `bytes` after the unsent data. Bytes that the socket does not accept are buffered.
    pub fn send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        let state = &mut *self.state();
        state.out.send(open(&mut state.io)?, cx, bytes)
    }

    /// Writes an interim response, or drops it if the agent is slow to read.
    pub fn send_interim(&self, cx: &mut Context<'_>, head: &[u8]) {
        let state = &mut *self.state();
        let _ = state.poll_flush(cx);
        if let (Some(io), true) = (&mut state.io, state.out.pending_bytes() < MAX_UNSENT) {
            // The connection's task handles write errors.
            let _ = state.out.send(io, cx, head);
        }
    }

    pub fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.state();
        ready!(state.poll_flush(cx))?;
        Pin::new(open(&mut state.io)?).poll_shutdown(cx)
    }

    /// Resolves when the agent closes the connection during a response, after its request was read. Data that the agent
    /// sends meanwhile is kept, because closing a socket with unread data would reset the connection. After
    /// [`READ_AHEAD`] bytes, a close is no longer noticed.
    pub fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state();
        let body_read = matches!(state.body, BodyState::Complete);
        if !state.serving || !body_read || state.io.is_none() {
            return Poll::Pending;
        }
        while let left @ 1.. = READ_AHEAD.saturating_sub(state.read_ahead.len()) {
            if ready!(state.poll_read_ahead(cx, left)).is_err() {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    pub fn poll_discard(&self, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.state();
        loop {
            state.read_ahead = Bytes::new();
            if ready!(state.poll_read_ahead(cx, usize::MAX)).is_err() {
                return Poll::Ready(());
            }
        }
    }

    /// Whether another request can follow the body: the body was read, can be read now, or has a reader.
    pub fn settle_body(&self) -> bool {
        self.state().settle_body()
    }

    /// Resolves when the body has no reader. Returns whether another request can follow the body.
    pub fn poll_body_settled(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if matches!(state.body, BodyState::Reading(_)) {
            state.task = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(state.settle_body())
    }

    /// Makes the close of the connection a TCP reset.
    pub fn reset_on_close(&self) {
        if let Some(io) = &self.state().io {
            io.reset_on_close();
        }
    }

    pub fn close(&self) {
        let mut state = self.state();
        state.io = None;
        if let Some(reader) = state.body_reader.take() {
            reader.wake();
        }
    }

    /// Returns the socket and the bytes that were read ahead, for another protocol.
    pub fn take_io(&self) -> Option<(TimedSocket, Bytes)> {
        let mut state = self.state();
        let io = state.io.take()?;
        Some((io, std::mem::take(&mut state.read_ahead)))
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.0.lock()
    }
}

fn open(io: &mut Option<TimedSocket>) -> io::Result<&mut TimedSocket> {
    io.as_mut()
        .ok_or_else(|| io::ErrorKind::NotConnected.into())
}

impl ConnectionState {
    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        max_bytes: usize,
    ) -> Poll<Result<Option<RequestHead>, AgentError>> {
        let parse = |bytes: &[u8]| parse_request(bytes, max_bytes);
        let arrived = std::mem::take(&mut self.read_ahead);
        if !arrived.is_empty() {
            if let Some(io) = &self.io {
                io.record_read();
            }
            if let Some(head) = self.head.read(&arrived, max_bytes, parse)? {
                return Poll::Ready(Ok(Some(head)));
            }
        }
        loop {
            if self.closing && self.head.is_empty() {
                return Poll::Ready(Ok(None));
            }
            let (io, head) = (open(&mut self.io)?, &mut self.head);
            let read = with_buffer(|buffer| {
                let mut read = ReadBuf::new(buffer);
                ready!(Pin::new(io).poll_read(cx, &mut read))?;
                let head = match read.filled() {
                    [] if head.is_empty() => None,
                    [] => return Poll::Ready(Err(AgentError::Incomplete)),
                    filled => Some(head.read(filled, max_bytes, parse)?),
                };
                Poll::Ready(Ok::<_, AgentError>(head))
            });
            match ready!(read)? {
                None => return Poll::Ready(Ok(None)),
                Some(Some(head)) => return Poll::Ready(Ok(Some(head))),
                Some(None) => {}
            }
        }
    }

    fn begin(&mut self, head: &RequestHead) {
        self.read_ahead = self.head.take();
        self.body = match head.body {
            BodyLength::Known(0) => BodyState::Complete,
            length => BodyState::Reading(RequestDecoder::new(length)),
        };
        self.request += 1;
        self.expects_continue = head.expects_continue;
        self.serving = true;
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.out.is_empty() {
            Poll::Ready(Ok(()))
        } else {
            self.out.poll_flush(open(&mut self.io)?, cx)
        }
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        if self.expects_continue {
            self.expects_continue = false;
            self.out.text().extend_from_slice(CONTINUE);
            self.continue_unsent = true;
        }
        if self.continue_unsent {
            // The connection's task handles write errors.
            self.continue_unsent = self.poll_flush(cx).is_pending();
        }
        let polled = self.poll_next_frame(cx);
        match &polled {
            Poll::Pending => self.body_reader = Some(cx.waker().clone()),
            Poll::Ready(Some(Err(_))) => self.body = BodyState::Failed,
            Poll::Ready(_) => {
                if self.decoder().is_some_and(|decoder| decoder.is_complete()) {
                    self.body = BodyState::Complete;
                }
            }
        }
        polled
    }

    fn poll_next_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AgentBodyError>>> {
        loop {
            let (BodyState::Reading(decoder) | BodyState::Abandoned(decoder)) = &mut self.body
            else {
                return Poll::Ready(None);
            };
            match decoder.next_frame(&mut self.read_ahead) {
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if decoder.is_complete() => return Poll::Ready(None),
                Ok(None) => {}
                Err(_) => return Poll::Ready(Some(Err(AgentBodyError::Malformed))),
            }
            if ready!(self.poll_read_ahead(cx, usize::MAX)).is_err() {
                return Poll::Ready(Some(Err(AgentBodyError::Lost)));
            }
        }
    }

    /// Reads up to `most` bytes and appends them to `read_ahead`.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<()>> {
        let (io, read_ahead) = (open(&mut self.io)?, &mut self.read_ahead);
        with_buffer(|buffer| {
            let most = most.min(buffer.len());
            let mut read = ReadBuf::new(&mut buffer[..most]);
            ready!(Pin::new(io).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            *read_ahead = if read_ahead.is_empty() {
                Bytes::copy_from_slice(read.filled())
            } else {
                [&read_ahead[..], read.filled()].concat().into()
            };
            Poll::Ready(Ok(()))
        })
    }

    fn decoder(&self) -> Option<&RequestDecoder> {
        match &self.body {
            BodyState::Reading(decoder) | BodyState::Abandoned(decoder) => Some(decoder),
            BodyState::Complete | BodyState::Failed => None,
        }
    }

    fn settle_body(&mut self) -> bool {
        self.expects_continue = false;
        let mut unobserved = Context::from_waker(Waker::noop());
        let mut left = MAX_DRAIN_BYTES;
        while matches!(self.body, BodyState::Abandoned(_)) {
            let Poll::Ready(frame) = self.poll_frame(&mut unobserved) else {
                break;
            };
            let length = frame
                .and_then(Result::ok)
                .and_then(|frame| frame.data_ref().map(Bytes::len));
            let Some(rest) = left.checked_sub(length.unwrap_or(0) as u64) else {
                break;
            };
            left = rest;
        }
        matches!(self.body, BodyState::Complete | BodyState::Reading(_))
    }
}

impl std::fmt::Debug for AgentConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentConnection").finish_non_exhaustive()
    }
}
