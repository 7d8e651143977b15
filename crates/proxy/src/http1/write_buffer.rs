//! Unsent data of a socket, in order. It uses memory only while data is unsent.

use bytes::{Buf, Bytes};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Content up to this length is copied after the unsent data, because a single plain write costs less.
pub(super) const COPY: usize = 4 * 1024;

pub(super) const CHUNK_END: &[u8] = b"\r\n";
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const CHUNK_END_AND_LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    text: Vec<u8>,
    /// How many bytes of `text` were written.
    written: usize,
    /// Content after `text`, which is not copied.
    content: Bytes,
    tail: &'static [u8],
    /// TLS accepted data that may not have been sent.
    unflushed: bool,
}

impl WriteBuffer {
    pub fn is_empty(&self) -> bool {
        self.pending_bytes() == 0 && !self.unflushed
    }

    pub fn pending_bytes(&self) -> usize {
        self.text.len() - self.written + self.content.len() + self.tail.len()
    }

    /// Returns a buffer for text after all unsent data.
    pub fn text(&mut self) -> &mut Vec<u8> {
        if !self.content.is_empty() || !self.tail.is_empty() {
            self.text.extend_from_slice(&self.content);
            self.text.extend_from_slice(self.tail);
            (self.content, self.tail) = (Bytes::new(), b"");
        }
        &mut self.text
    }

    pub fn push(&mut self, content: Bytes, tail: &'static [u8]) {
        let text = self.text();
        if content.len() <= COPY {
            text.reserve(content.len() + tail.len());
            text.extend_from_slice(&content);
            text.extend_from_slice(tail);
        } else {
            (self.content, self.tail) = (content, tail);
        }
    }

    /// Adds the end of a chunked body without trailers. Unsent content is not copied for it.
    pub fn push_last_chunk(&mut self) {
        match self.tail {
            CHUNK_END => self.tail = CHUNK_END_AND_LAST_CHUNK,
            _ => self.text().extend_from_slice(LAST_CHUNK),
        }
    }

    /// Writes all data. Ready when everything was sent.
    pub fn poll_flush<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.pending_bytes() > 0 {
            let written = if self.content.is_empty() && self.tail.is_empty() {
                Pin::new(&mut *io).poll_write(cx, &self.text[self.written..])
            } else {
                let text = IoSlice::new(&self.text[self.written..]);
                let parts = [text, IoSlice::new(&self.content), IoSlice::new(self.tail)];
                let first = parts.iter().position(|part| !part.is_empty());
                Pin::new(&mut *io).poll_write_vectored(cx, &parts[first.unwrap_or_default()..])
            };
            let written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
            self.advance(written);
        }
        if self.unflushed {
            // A TLS stream writes when it is flushed.
            ready!(Pin::new(io).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes the unsent data and then `bytes`. Bytes that the socket does not accept are buffered.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn send<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        cx: &mut Context<'_>,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        if self.pending_bytes() > 0 {
            self.text().extend_from_slice(bytes);
            bytes = b"";
        }
        while !bytes.is_empty() {
            match Pin::new(&mut *io).poll_write(cx, bytes)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => {
                    self.unflushed = true;
                    bytes = &bytes[written..];
                }
                Poll::Pending => {
                    self.text.extend_from_slice(bytes);
                    return Ok(());
                }
            }
        }
        match self.poll_flush(io, cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    fn advance(&mut self, mut written: usize) {
        let text = written.min(self.text.len() - self.written);
        self.written += text;
        written -= text;
        let content = written.min(self.content.len());
        self.content.advance(content);
        self.tail = &self.tail[written - content..];
        if self.written == self.text.len() {
            (self.text, self.written) = (Vec::new(), 0);
        }
        if self.content.is_empty() {
            self.content = Bytes::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Accepts a fixed number of bytes at a time, and none at every second call.
    struct Slow {
        took: Vec<u8>,
        at_once: usize,
        blocked: bool,
    }

    impl Slow {
        fn new(at_once: usize) -> Slow {
            Slow {
                took: Vec::new(),
                at_once,
                blocked: false,
            }
        }
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.blocked = !self.blocked;
            if self.blocked {
                return Poll::Pending;
            }
            let length = buf.len().min(self.at_once);
            self.took.extend_from_slice(&buf[..length]);
            Poll::Ready(Ok(length))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn everything_leaves_in_order_however_little_the_socket_takes() {
        let mut cx = Context::from_waker(Waker::noop());
        for at_once in [1, 2, 7, 1_000, 100_000] {
            let (mut io, mut out) = (Slow::new(at_once), WriteBuffer::default());
            out.text().extend_from_slice(b"head ");
            out.push(Bytes::from(vec![b'x'; COPY + 1]), b"\r\n");
            out.push(Bytes::from_static(b"short"), b"\r\n");
            out.send(&mut io, &mut cx, b"raw").expect("taken");
            while out.poll_flush(&mut io, &mut cx).is_pending() {}
            let expected = [b"head ", &[b'x'; COPY + 1][..], b"\r\nshort\r\nraw"].concat();
            assert_eq!(io.took, expected, "{at_once}");
            assert!(out.is_empty() && out.text.capacity() == 0);
        }
    }

    #[test]
    fn content_is_not_copied_for_the_end_that_follows_it() {
        let mut cx = Context::from_waker(Waker::noop());
        for (content, copied) in [(COPY, true), (COPY + 1, false)] {
            for at_once in [1, 3, 100_000] {
                let (mut io, mut out) = (Slow::new(at_once), WriteBuffer::default());
                out.push(Bytes::from(vec![b'x'; content]), CHUNK_END);
                out.push_last_chunk();
                assert_eq!(out.content.is_empty(), copied, "{content}");
                while out.poll_flush(&mut io, &mut cx).is_pending() {}
                let expected = [&vec![b'x'; content][..], b"\r\n0\r\n\r\n"].concat();
                assert_eq!(io.took, expected, "{content}, {at_once}");
            }
        }
        // A chunk end that was partly written cannot be extended.
        let (mut io, mut out) = (Slow::new(1), WriteBuffer::default());
        out.push(Bytes::from(vec![b'x'; COPY + 1]), CHUNK_END);
        while out.tail != b"\n" {
            assert!(out.poll_flush(&mut io, &mut cx).is_pending());
        }
        out.push_last_chunk();
        while out.poll_flush(&mut io, &mut cx).is_pending() {}
        assert!(io.took.ends_with(b"x\r\n0\r\n\r\n"));
    }

    /// Accepts everything, like TLS, and writes only when it may.
    struct Buffering {
        may_write: bool,
        left: usize,
        held: usize,
    }

    impl AsyncWrite for Buffering {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.held += buf.len();
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            if !self.may_write {
                return Poll::Pending;
            }
            self.left += std::mem::take(&mut self.held);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_tls_took_and_could_not_write_leaves_without_another_chunk() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut io = Buffering {
            may_write: false,
            left: 0,
            held: 0,
        };
        let mut out = WriteBuffer::default();
        out.send(&mut io, &mut cx, b"chunk").expect("taken");
        assert!(out.poll_flush(&mut io, &mut cx).is_pending());
        assert!(!out.is_empty(), "it has not left");
        io.may_write = true;
        assert!(out.poll_flush(&mut io, &mut cx).is_ready());
        assert_eq!((io.left, out.is_empty()), (5, true));
    }
}
