//! Limits the bytes read from the quota store. The client keeps an incomplete response in memory, and a broken or
//! malicious server could announce one of any length.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes of the responses to one batch. A script returns only a few numbers.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// How many bytes may still be read. Clones share one count.
#[derive(Clone)]
pub(crate) struct ReadAllowance(Arc<AtomicUsize>);

impl Default for ReadAllowance {
    fn default() -> Self {
        ReadAllowance(Arc::new(AtomicUsize::new(MAX_RESPONSE_BYTES)))
    }
}

impl ReadAllowance {
    /// Resets the allowance for the next batch.
    pub(crate) fn renew(&self) {
        self.0.store(MAX_RESPONSE_BYTES, Ordering::Relaxed);
    }
}

/// A stream that fails when it reads more than its allowance.
pub(crate) struct BoundedStream<S> {
    pub(crate) stream: S,
    pub(crate) allowance: ReadAllowance,
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - before;
        let left = self.allowance.0.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(read) else {
            let problem = format!("answered more than {MAX_RESPONSE_BYTES} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, problem)));
        };
        self.allowance.0.store(left, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
