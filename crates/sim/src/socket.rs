//! The simulator's side of a connection. It records when each chunk has been written.

use super::truth::{Call, ChunkTokens};
use crate::clock;
use parking_lot::{Mutex, MutexGuard};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// State that the HTTP layer and the socket of a connection share.
#[derive(Default)]
pub struct ConnectionState {
    state: Mutex<SocketState>,
}

#[derive(Default)]
struct SocketState {
    marks: Vec<Mark>,
    last_read: Option<Instant>,
    reset: bool,
    sessions: JoinSet<()>,
}

struct Mark {
    call: Arc<Call>,
    carried: ChunkTokens,
    bytes: u64,
    handed_over: Instant,
}

impl ConnectionState {
    /// Records that hyper gets this chunk now. The socket records when it is written.
    pub fn mark(&self, call: &Arc<Call>, carried: ChunkTokens, bytes: &[u8]) {
        call.handed_over(bytes);
        let mark = Mark {
            call: Arc::clone(call),
            carried,
            bytes: bytes.len() as u64,
            handed_over: clock::now(),
        };
        self.lock().marks.push(mark);
    }

    pub fn last_read(&self) -> Instant {
        self.lock().last_read.unwrap_or_else(clock::now)
    }

    /// Makes the connection end with a reset instead of a close.
    pub fn reset(&self) {
        self.lock().reset = true;
    }

    pub fn spawn_session(&self, session: impl Future<Output = ()> + Send + 'static) {
        self.lock().sessions.spawn(session);
    }

    pub fn take_sessions(&self) -> JoinSet<()> {
        std::mem::take(&mut self.lock().sessions)
    }

    /// Records that all chunks before `at` have been written at `at`.
    fn settle(&self, at: Instant) {
        let mut state = self.lock();
        if state.marks.is_empty() {
            return;
        }
        let written: Vec<Mark> = state
            .marks
            .extract_if(.., |mark| mark.handed_over <= at)
            .collect();
        drop(state);
        for mark in written {
            mark.call.wrote(at, &mark.carried, mark.bytes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, SocketState> {
        self.state.lock()
    }
}

/// A socket that updates a [`ConnectionState`].
pub struct Socket {
    stream: TcpStream,
    connection: Arc<ConnectionState>,
    last_write: Option<Instant>,
}

impl Socket {
    pub fn new(stream: TcpStream, connection: Arc<ConnectionState>) -> Socket {
        Socket {
            stream,
            connection,
            last_write: None,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            this.connection.lock().last_read = Some(clock::now());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.last_write = Some(clock::now());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        this.last_write = Some(clock::now());
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Hyper flushes when its buffer is empty, so everything it got has been written.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        if let Some(at) = this.last_write {
            this.connection.settle(at);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.connection.lock().reset {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.connection.lock().reset {
            // A linger time of zero makes the kernel send RST instead of FIN.
            let linger = Some(Duration::ZERO);
            let _ = socket2::SockRef::from(&self.stream).set_linger(linger);
        }
    }
}
