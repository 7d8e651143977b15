//! Detects HTTP/1 or HTTP/2 from the first bytes of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The HTTP/2 connection preface (RFC 9113 §3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HttpVersion {
    Http1,
    Http2,
}

/// A socket that replays the bytes read for detection. They are returned in the same read as the following bytes,
/// because hyper doubles a buffer that needs two reads.
///
/// The socket reports vectored writes only after its first write. h2 asks at the start of a connection. Without
/// vectored writes, it combines small frames of up to 1,023 bytes into one write. With them, each frame above 255
/// bytes, like most events, would be a separate write. h2 asks again before it writes a longer frame.
#[derive(Debug)]
pub(super) struct SniffedSocket<I> {
    io: I,
    has_written: bool,
    prefix: [u8; PREFACE.len()],
    filled: usize,
    replayed: usize,
}

impl<I: AsyncRead + Unpin> SniffedSocket<I> {
    pub(super) fn new(io: I) -> Self {
        SniffedSocket {
            io,
            has_written: false,
            prefix: [0; PREFACE.len()],
            filled: 0,
            replayed: 0,
        }
    }

    pub(super) fn into_parts(self) -> (I, [u8; PREFACE.len()], usize) {
        (self.io, self.prefix, self.filled)
    }

    pub(super) fn poll_version(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<HttpVersion>> {
        loop {
            if self.prefix[..self.filled] != PREFACE[..self.filled] {
                return Poll::Ready(Ok(HttpVersion::Http1));
            }
            if self.filled == PREFACE.len() {
                return Poll::Ready(Ok(HttpVersion::Http2));
            }
            let mut read = ReadBuf::new(&mut self.prefix[self.filled..]);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            let length = read.filled().len();
            if length == 0 {
                return Poll::Ready(Ok(HttpVersion::Http1));
            }
            self.filled += length;
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for SniffedSocket<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replayed == self.filled {
            return Pin::new(&mut self.io).poll_read(cx, buf);
        }
        let length = buf.remaining().min(self.filled - self.replayed);
        buf.put_slice(&self.prefix[self.replayed..self.replayed + length]);
        self.replayed += length;
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.io).poll_read(cx, buf) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for SniffedSocket<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.has_written && self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Empty, Full};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use parking_lot::Mutex;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinSet;

    /// Sends the pieces one by one. Returns the detected version and all bytes that can be read.
    async fn sniffed(pieces: &[&[u8]]) -> (HttpVersion, Vec<u8>) {
        let (mut agent, io) = duplex(1024);
        let mut socket = SniffedSocket::new(io);
        let send = async {
            for piece in pieces {
                agent.write_all(piece).await.expect("written");
                tokio::task::yield_now().await;
            }
            drop(agent);
        };
        let version = async {
            let version = poll_fn(|cx| socket.poll_version(cx)).await.expect("read");
            let mut rest = Vec::new();
            socket.read_to_end(&mut rest).await.expect("read");
            (version, rest)
        };
        tokio::join!(send, version).1
    }

    #[tokio::test]
    async fn the_preface_is_detected_wherever_it_is_cut() {
        let sent = [&PREFACE[..], b"settings"].concat();
        for cut in 0..sent.len() {
            let (before, after) = sent.split_at(cut);
            assert_eq!(
                sniffed(&[before, after]).await,
                (HttpVersion::Http2, sent.clone())
            );
        }
    }

    #[tokio::test]
    async fn anything_else_is_http1_and_replayed_unchanged() {
        let post: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\n\r\n";
        for sent in [
            post,
            b"PRI",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX and more",
            b"",
            b"P",
        ] {
            for cut in 0..sent.len() {
                let (before, after) = sent.split_at(cut);
                assert_eq!(
                    sniffed(&[before, after]).await,
                    (HttpVersion::Http1, sent.to_vec())
                );
            }
        }
    }

    #[tokio::test]
    async fn the_first_bytes_come_in_one_read_with_those_that_follow() {
        let (mut agent, io) = duplex(1024);
        let sent = [b'x'; 300];
        agent.write_all(&sent).await.expect("written");
        let mut socket = SniffedSocket::new(io);
        poll_fn(|cx| socket.poll_version(cx)).await.expect("read");
        let mut buffer = [0; 1024];
        let length = socket.read(&mut buffer).await.expect("read");
        assert_eq!(length, sent.len());
    }

    struct Recorder {
        io: DuplexStream,
        writes: Arc<Mutex<Vec<usize>>>,
    }

    impl AsyncRead for Recorder {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Recorder {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &[u8],
        ) -> Poll<io::Result<usize>> {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, buf))?;
            self.writes.lock().push(written);
            Poll::Ready(Ok(written))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
            self.poll_write(cx, &all)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.io).poll_shutdown(cx)
        }
    }

    /// The longest write for eight responses of `length` bytes to requests that were sent together.
    async fn longest_write(length: usize) -> usize {
        let (agent, io) = duplex(1024 * 1024);
        let writes = Arc::default();
        let mut socket = SniffedSocket::new(Recorder {
            io,
            writes: Arc::clone(&writes),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            poll_fn(|cx| socket.poll_version(cx)).await.expect("read");
            let service = service_fn(move |_| async move {
                let body = Full::new(Bytes::from(vec![b'x'; length]));
                Ok::<_, Infallible>(Response::new(body))
            });
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let served = server.serve_connection(TokioIo::new(socket), service).await;
            served.expect("served");
        });
        let io = TokioIo::new(agent);
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
        let (mut client, connection) = handshake.await.expect("connected");
        tasks.spawn(async move { connection.await.expect("no error") });
        let request = || Request::new(Empty::<Bytes>::new());
        let first = client.send_request(request()).await.expect("a response");
        first.into_body().collect().await.expect("a body");
        writes.lock().clear();
        let responses: Vec<_> = (0..8).map(|_| client.send_request(request())).collect();
        for response in responses {
            let response = response.await.expect("a response");
            let body = response.into_body().collect().await.expect("a body");
            assert_eq!(body.to_bytes().len(), length);
        }
        drop(client);
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
        writes
            .lock()
            .iter()
            .copied()
            .max()
            .expect("something was written")
    }

    #[tokio::test]
    async fn small_frames_that_wait_together_are_one_write() {
        const HEADS: usize = 2 * 9 + 50;
        assert!(longest_write(400).await > 2 * (400 + HEADS));
        // A frame above the copy limit is also one write.
        assert!(longest_write(8 * 1024).await > 8 * 1024);
    }
}
