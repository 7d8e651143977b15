//! One connection to an endpoint: opened, checked, spoken over.

use super::http1::{HeadReader, HeadsControl};
use super::upload::Upload;
use super::upstream::{CountedTcp, InFlightCount};
use bytes::BytesMut;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

/// What one HTTP/1 connection may buffer in each direction.
const BUFFER: usize = 32 * 1024;
/// What an HTTP/2 upstream may send ahead of a slow agent.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Streams of one HTTP/2 connection; more open another one. Together they fit its
/// window, so that slow agents never hold up the others.
const STREAMS: usize = 100;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS as u32;
/// How long a silent HTTP/2 connection with streams is believed to be alive.
const PING_AFTER: Duration = Duration::from_secs(30);

/// A socket to an endpoint.
#[derive(Debug)]
pub(super) enum Io {
    Tcp(CountedTcp),
    Tls(Box<TlsStream<CountedTcp>>),
}

/// An HTTP/1 connection. Nobody drives it but who holds it: it is polled inside the
/// exchange it serves, so that no chunk passes from task to task.
pub(super) struct Http1 {
    pub send: http1::SendRequest<Upload>,
    connection: Option<http1::Connection<TokioIo<HeadReader<Io>>, Upload>>,
    control: Arc<HeadsControl>,
    ended: bool,
}

impl Http1 {
    /// Makes a new socket speak HTTP/1.
    pub fn new(io: Io, head_bytes: usize) -> hyper::Result<Http1> {
        Http1::over(HeadReader::new(io, head_bytes), head_bytes)
    }

    /// Makes a socket serve one more request.
    pub fn reused(io: Io, head_bytes: usize) -> hyper::Result<Http1> {
        Http1::over(HeadReader::reused(io, head_bytes), head_bytes)
    }

    fn over(heads: HeadReader<Io>, head_bytes: usize) -> hyper::Result<Http1> {
        let control = heads.control();
        let mut builder = http1::Builder::new();
        builder
            .preserve_header_case(true)
            .max_header_size(head_bytes)
            .max_buf_size(BUFFER.max(head_bytes));
        let (send, connection) = at_once(builder.handshake(TokioIo::new(heads)))?;
        Ok(Http1 {
            send,
            connection: Some(connection),
            control,
            ended: false,
        })
    }

    /// Moves what can be moved. Ready when the connection has ended, or has become
    /// something else.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.connection {
            Some(connection) if !self.ended => {
                let polled = Pin::new(connection).poll(cx).map(drop);
                self.ended = polled.is_ready();
                polled
            }
            _ => Poll::Ready(()),
        }
    }

    /// Releases an ended connection, which says what it still knows as it goes.
    pub fn close(&mut self) {
        self.connection = None;
    }

    /// What the socket has shown.
    pub fn control(&self) -> &HeadsControl {
        &self.control
    }

    /// The socket of a connection that has become something else, or whose client has
    /// nothing to do but to read a body; and what was read of that.
    pub fn into_io(mut self) -> Option<(Io, BytesMut)> {
        let parts = self.connection.take()?.into_parts();
        let (io, ahead) = parts.io.into_inner().into_inner();
        // The client is shown heads alone.
        parts.read_buf.is_empty().then_some((io, ahead))
    }
}

/// The handshake of HTTP/1 has nothing to wait for.
fn at_once<T>(handshake: impl Future<Output = hyper::Result<T>>) -> hyper::Result<T> {
    let mut unobserved = Context::from_waker(Waker::noop());
    match pin!(handshake).poll(&mut unobserved) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("hyper makes an HTTP/1 connection without waiting"),
    }
}

/// An HTTP/2 connection, shared, driven by a task of its own.
#[derive(Clone)]
pub(super) struct Http2 {
    send: http2::SendRequest<Upload>,
    allowed: Arc<AtomicUsize>,
    pub streams: InFlightCount,
}

impl Http2 {
    /// `streams` counts what is under way on it.
    pub async fn open(io: Io, streams: InFlightCount) -> hyper::Result<Http2> {
        let (send, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(BUFFER)
            .keep_alive_interval(PING_AFTER)
            .handshake(TokioIo::new(io))
            .await?;
        let allowed = Arc::new(AtomicUsize::new(STREAMS));
        let allowed_streams = Arc::clone(&allowed);
        tokio::spawn(std::future::poll_fn(move |cx| {
            let over = Pin::new(&mut connection).poll(cx).map(drop);
            allowed_streams.store(
                connection.current_max_send_streams().min(STREAMS),
                Ordering::Relaxed,
            );
            over
        }));
        Ok(Http2 {
            send,
            allowed,
            streams,
        })
    }

    pub fn sender(&self) -> http2::SendRequest<Upload> {
        self.send.clone()
    }

    pub fn is_closed(&self) -> bool {
        self.send.is_closed()
    }

    /// Whether one more stream would not have to wait for another to end.
    pub fn has_room(&self) -> bool {
        !self.is_closed() && self.streams.taken() < self.allowed.load(Ordering::Relaxed).max(1)
    }
}

impl Io {
    /// Whether an open connection has nothing to be read: the system is asked at this moment,
    /// since what the runtime knows of the socket is as old as its last look.
    pub fn is_quiet(&mut self) -> bool {
        let tcp = match self {
            Io::Tcp(tcp) => &**tcp,
            Io::Tls(tls) => {
                // Text that is decrypted already, and records that hold none.
                let mut unobserved = Context::from_waker(Waker::noop());
                let (mut byte, tls) = ([0], &mut **tls);
                if Pin::new(&mut *tls)
                    .poll_read(&mut unobserved, &mut ReadBuf::new(&mut byte))
                    .is_ready()
                {
                    return false;
                }
                if tls.get_ref().0.is_amid_record() {
                    return false;
                }
                &**tls.get_ref().0
            }
        };
        let peeked = SockRef::from(tcp).peek(&mut [MaybeUninit::uninit()]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Io::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Io::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Io::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Io::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Io::Tcp(tcp) => tcp.is_write_vectored(),
            Io::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Io::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Io::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Io::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
