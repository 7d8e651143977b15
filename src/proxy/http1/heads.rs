//! A socket that shows an HTTP client response heads, one at a time, and keeps the bodies
//! behind them for somebody else.

use bytes::{Buf, Bytes, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Interim responses that wait to be passed on; more are dropped.
const INTERIM: usize = 16;
/// What is read at once.
const READ: usize = 4 * 1024;

/// The socket under an HTTP client.
#[derive(Debug)]
pub(in crate::proxy) struct Heads<I> {
    io: I,
    /// What came and was not shown.
    ahead: BytesMut,
    /// So much of it is a head that is being shown.
    shown: usize,
    head_bytes: usize,
    control: Arc<HeadsControl>,
}

/// What its owner can see and say while the client has the socket.
#[derive(Debug, Default)]
pub(in crate::proxy) struct HeadsControl {
    stage: AtomicU8,
    flushed: AtomicBool,
    interim: Mutex<Vec<Bytes>>,
}

/// Heads are shown, one by one.
const HEADS: u8 = 0;
/// The final head has been shown; what follows is kept back.
const FINAL: u8 = 1;
/// Everything is shown.
const OPEN: u8 = 2;

impl HeadsControl {
    /// Whether all that the client wrote has left.
    pub fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Shows everything from now on.
    pub fn open(&self) {
        self.stage.store(OPEN, Ordering::Relaxed);
    }

    /// Expects the head of another response.
    pub fn next(&self) {
        self.stage.store(HEADS, Ordering::Relaxed);
    }

    /// Interim responses that came since the last time, as they came; not `100 Continue`.
    pub fn interim(&self) -> Vec<Bytes> {
        std::mem::take(&mut *self.locked())
    }

    fn came(&self, head: &[u8]) {
        let mut interim = self.locked();
        if interim.len() < INTERIM {
            interim.push(Bytes::copy_from_slice(head));
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Bytes>> {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }
}

impl<I> Heads<I> {
    pub fn new(io: I, head_bytes: usize) -> Heads<I> {
        Heads {
            io,
            ahead: BytesMut::new(),
            shown: 0,
            head_bytes,
            control: Arc::default(),
        }
    }

    pub fn control(&self) -> Arc<HeadsControl> {
        Arc::clone(&self.control)
    }

    /// The socket, and what was read of it and not shown.
    pub fn into_inner(self) -> (I, BytesMut) {
        (self.io, self.ahead)
    }

    /// Looks for a head in what has come; tells whether there is something to show.
    fn look(&mut self) -> bool {
        if self.control.stage() == OPEN {
            self.shown = self.ahead.len();
            return self.shown > 0;
        }
        let Some(end) = end_of_head(&self.ahead) else {
            return false;
        };
        let head = &self.ahead[..end];
        match status(head) {
            Some([b'1', b'0', b'0']) => {}
            Some([b'1', tens, ones]) if [*tens, *ones] != *b"01" => self.control.came(head),
            _ => self.control.stage.store(FINAL, Ordering::Relaxed),
        }
        self.shown = end;
        true
    }
}

/// Where a head ends: behind the first empty line that follows a line with something in it.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let start = bytes
        .iter()
        .position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    memchr::memchr_iter(b'\n', &bytes[start..])
        .map(|end| start + end + 1)
        .find_map(|next| match bytes.get(next..) {
            Some([b'\n', ..]) => Some(next + 1),
            Some([b'\r', b'\n', ..]) => Some(next + 2),
            _ => None,
        })
}

/// The three digits of a head's status.
fn status(head: &[u8]) -> Option<&[u8; 3]> {
    let line = head.trim_ascii_start();
    let space = memchr::memchr(b' ', line)?;
    line.get(space + 1..)?.first_chunk()
}

impl<I: AsyncRead + Unpin> AsyncRead for Heads<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.shown > 0 {
                let length = this.shown.min(buf.remaining());
                buf.put_slice(&this.ahead[..length]);
                this.ahead.advance(length);
                this.shown -= length;
                return Poll::Ready(Ok(()));
            }
            if this.control.stage() == FINAL {
                return Poll::Pending;
            }
            if !this.ahead.is_empty() && this.look() {
                continue;
            }
            if this.control.stage() == OPEN {
                return Pin::new(&mut this.io).poll_read(cx, buf);
            }
            if this.ahead.len() > this.head_bytes {
                // The client says what is wrong with it.
                this.control.open();
                continue;
            }
            if ready!(read_more(&mut this.io, &mut this.ahead, cx))? == 0 {
                if this.ahead.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                this.control.open();
            }
        }
    }
}

fn read_more<I: AsyncRead + Unpin>(
    io: &mut I,
    into: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let before = into.len();
    into.resize(before + READ, 0);
    let mut buf = ReadBuf::new(&mut into[before..]);
    let polled = Pin::new(io).poll_read(cx, &mut buf);
    let length = buf.filled().len();
    into.truncate(before + length);
    if into.is_empty() {
        // A connection that waits keeps no buffer.
        *into = BytesMut::new();
    }
    polled.map_ok(|()| length)
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Heads<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.control.flushed.store(false, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.control.flushed.store(false, Ordering::Relaxed);
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(cx))?;
        self.control.flushed.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
