//! The socket given to the HTTP client of a connection. It lets the client read one response head
//! at a time: what follows the final head is left for the body reader.

use super::interim;
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Interim responses that may wait to be forwarded; more are dropped.
const MAX_INTERIM: usize = 16;
/// Bytes per read.
const READ_BYTES: usize = 4 * 1024;

/// The socket given to an HTTP client.
#[derive(Debug)]
pub(crate) struct HeadReader<I> {
    io: I,
    /// Bytes that were received but not yet read by the client.
    read_ahead: BytesMut,
    /// How many of them the client may read.
    visible: usize,
    head_bytes: usize,
    control: Arc<HeadsControl>,
}

/// Controls the reader while the HTTP client owns it.
#[derive(Debug)]
pub(crate) struct HeadsControl {
    stage: AtomicU8,
    flushed: AtomicBool,
    interim: Mutex<Vec<Bytes>>,
}

/// No request has been written: a byte that arrives answers none, and ends the connection.
const BEFORE_REQUEST: u8 = 0;
/// The client reads heads, one at a time.
const SHOW_HEADS: u8 = 1;
/// The client has been given the final head; what follows is held back.
const AFTER_FINAL_HEAD: u8 = 2;
/// The client reads everything.
const SHOW_ALL: u8 = 3;

impl HeadsControl {
    /// Whether everything that the client wrote has been flushed.
    pub fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Lets the client read everything from now on, the body too.
    pub fn show_all(&self) {
        self.stage.store(SHOW_ALL, Ordering::Relaxed);
    }

    /// Interim responses since the last call, with heads rewritten; `100 Continue` is not among
    /// them.
    pub fn take_interim(&self) -> Vec<Bytes> {
        std::mem::take(&mut *self.locked())
    }

    fn record_interim(&self, head: &[u8]) {
        let mut interim = self.locked();
        if interim.len() < MAX_INTERIM {
            // The HTTP client reports a malformed one.
            interim.extend(interim::rewritten(head));
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Bytes>> {
        self.interim.lock()
    }

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }

    /// Notes that a request is being written, so that what arrives now may answer it.
    fn request_started(&self) {
        if self.stage() == BEFORE_REQUEST {
            self.stage.store(SHOW_HEADS, Ordering::Relaxed);
        }
        self.flushed.store(false, Ordering::Relaxed);
    }
}

impl<I> HeadReader<I> {
    /// For a new connection. The HTTP client itself rejects a response that arrives before the
    /// request.
    pub fn new(io: I, head_bytes: usize) -> HeadReader<I> {
        HeadReader::with_stage(SHOW_HEADS, io, head_bytes)
    }

    /// For a connection that has served a request before. Bytes that arrive before the next request
    /// would be taken for the response to it, so they end the connection.
    pub fn reused(io: I, head_bytes: usize) -> HeadReader<I> {
        HeadReader::with_stage(BEFORE_REQUEST, io, head_bytes)
    }

    fn with_stage(stage: u8, io: I, head_bytes: usize) -> HeadReader<I> {
        let control = HeadsControl {
            stage: AtomicU8::new(stage),
            flushed: AtomicBool::new(false),
            interim: Mutex::default(),
        };
        HeadReader {
            io,
            read_ahead: BytesMut::new(),
            visible: 0,
            head_bytes,
            control: Arc::new(control),
        }
    }

    pub fn control(&self) -> Arc<HeadsControl> {
        Arc::clone(&self.control)
    }

    /// The socket, and the bytes that the client has not read.
    pub fn into_inner(self) -> (I, BytesMut) {
        (self.io, self.read_ahead)
    }

    /// Looks for a complete head; returns whether there is something for the client to read.
    fn find_head(&mut self) -> bool {
        if self.control.stage() == SHOW_ALL {
            self.visible = self.read_ahead.len();
            return self.visible > 0;
        }
        let Some(end) = end_of_head(&self.read_ahead) else {
            return false;
        };
        let head = &self.read_ahead[..end];
        match status(head) {
            Some([b'1', b'0', b'0']) => {}
            Some([b'1', tens, ones]) if [*tens, *ones] != *b"01" => {
                self.control.record_interim(head)
            }
            _ => self
                .control
                .stage
                .store(AFTER_FINAL_HEAD, Ordering::Relaxed),
        }
        self.visible = end;
        true
    }
}

impl<I: AsyncRead + Unpin> HeadReader<I> {
    /// Ready when the endpoint closes the connection before a request, or sends bytes that answer
    /// none.
    fn poll_before_request(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
        if buf.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "bytes behind the end of a response",
        )))
    }
}

/// The end of a head: after the first empty line that follows a non-empty one.
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

/// The three digits of the status code.
fn status(head: &[u8]) -> Option<&[u8; 3]> {
    let line = head.trim_ascii_start();
    let space = memchr::memchr(b' ', line)?;
    line.get(space + 1..)?.first_chunk()
}

impl<I: AsyncRead + Unpin> AsyncRead for HeadReader<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.visible > 0 {
                let length = this.visible.min(buf.remaining());
                buf.put_slice(&this.read_ahead[..length]);
                this.read_ahead.advance(length);
                this.visible -= length;
                return Poll::Ready(Ok(()));
            }
            match this.control.stage() {
                BEFORE_REQUEST => return this.poll_before_request(cx),
                AFTER_FINAL_HEAD => return Poll::Pending,
                _ => {}
            }
            if !this.read_ahead.is_empty() && this.find_head() {
                continue;
            }
            if this.control.stage() == SHOW_ALL {
                return Pin::new(&mut this.io).poll_read(cx, buf);
            }
            if this.read_ahead.len() > this.head_bytes {
                // The client reports what is wrong with it.
                this.control.show_all();
                continue;
            }
            if ready!(read_more(&mut this.io, &mut this.read_ahead, cx))? == 0 {
                if this.read_ahead.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                this.control.show_all();
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
    into.resize(before + READ_BYTES, 0);
    let mut buf = ReadBuf::new(&mut into[before..]);
    let polled = Pin::new(io).poll_read(cx, &mut buf);
    let length = buf.filled().len();
    into.truncate(before + length);
    if into.is_empty() {
        // A waiting connection keeps no buffer.
        *into = BytesMut::new();
    }
    polled.map_ok(|()| length)
}

impl<I: AsyncWrite + Unpin> AsyncWrite for HeadReader<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.control.request_started();
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.control.request_started();
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
