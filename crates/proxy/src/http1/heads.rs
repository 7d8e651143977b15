//! The socket under an HTTP client. It alone reads from the connection until the final
//! response head has come, and shows the client one head at a time: what follows the final
//! head is for the reader of the body.

use super::interim;
use bytes::{Buf, Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Interim responses that wait to be passed on; more are dropped.
const MAX_INTERIM: usize = 16;
/// What is read at once.
const READ_BYTES: usize = 4 * 1024;

/// The socket under an HTTP client.
#[derive(Debug)]
pub(crate) struct HeadReader<I> {
    io: I,
    /// What came and was not shown.
    read_ahead: BytesMut,
    /// So much of it is a head that is being shown.
    visible: usize,
    head_bytes: usize,
    control: Arc<HeadsControl>,
}

/// What its owner can see and say while the client has the socket.
#[derive(Debug)]
pub(crate) struct HeadsControl {
    stage: AtomicU8,
    flushed: AtomicBool,
    interim: Mutex<Vec<Bytes>>,
}

/// No request was written yet: a byte that comes answers none, and ends the connection.
const BEFORE_REQUEST: u8 = 0;
/// Heads are shown, one by one.
const SHOW_HEADS: u8 = 1;
/// The final head has been shown; what follows is kept back.
const AFTER_FINAL_HEAD: u8 = 2;
/// Everything is shown.
const SHOW_ALL: u8 = 3;

impl HeadsControl {
    /// Whether all that the client wrote has left.
    pub fn is_flushed(&self) -> bool {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Shows everything from now on: the client reads the body, too.
    pub fn show_all(&self) {
        self.stage.store(SHOW_ALL, Ordering::Relaxed);
    }

    /// Interim responses since the last call of this, with heads rewritten; not `100 Continue`.
    pub fn take_interim(&self) -> Vec<Bytes> {
        std::mem::take(&mut *self.locked())
    }

    fn record_interim(&self, head: &[u8]) {
        let mut interim = self.locked();
        if interim.len() < MAX_INTERIM {
            // A malformed one is left to the HTTP client, which reports it.
            interim.extend(interim::rewritten(head));
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Bytes>> {
        self.interim.lock()
    }

    fn stage(&self) -> u8 {
        self.stage.load(Ordering::Relaxed)
    }

    /// A request is being written: what comes now may answer it.
    fn request_started(&self) {
        if self.stage() == BEFORE_REQUEST {
            self.stage.store(SHOW_HEADS, Ordering::Relaxed);
        }
        self.flushed.store(false, Ordering::Relaxed);
    }
}

impl<I> HeadReader<I> {
    /// A new connection. The HTTP client refuses a response that comes before the request.
    pub fn new(io: I, head_bytes: usize) -> HeadReader<I> {
        HeadReader::with_stage(SHOW_HEADS, io, head_bytes)
    }

    /// A connection that has served a request before: what comes before the next one is
    /// written would be taken for the answer to it, and ends the connection.
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

    /// The socket, and what was read of it and not shown.
    pub fn into_inner(self) -> (I, BytesMut) {
        (self.io, self.read_ahead)
    }

    /// Looks for a head in what has come; tells whether there is something to show.
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
    /// Before a request: ready when the endpoint closes, or sends bytes that answer no request.
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

/// Where a head ends: after the first empty line that follows a line with something in it.
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
                // The client says what is wrong with it.
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
        // A connection that waits keeps no buffer.
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
