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
const BUFFER_BYTES: usize = 32 * 1024;
/// What an HTTP/2 upstream may send ahead of a slow agent.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Streams of one HTTP/2 connection; more open another one. Together they fit its
/// window, so that slow agents never hold up the others.
const MAX_STREAMS: usize = 100;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;
/// How long a silent HTTP/2 connection with streams is believed to be alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);

/// A socket to an endpoint.
#[derive(Debug)]
pub(super) enum Io {
    Tcp(CountedTcp),
    Tls(Box<TlsStream<CountedTcp>>),
}

/// An HTTP/1 connection. Nobody drives it but who holds it: it is polled inside the
/// exchange it serves, so that no chunk passes from task to task.
pub(super) struct Http1 {
    pub sender: http1::SendRequest<Upload>,
    connection: Option<http1::Connection<TokioIo<HeadReader<Io>>, Upload>>,
    control: Arc<HeadsControl>,
    ended: bool,
}

impl Http1 {
    /// Makes a new socket speak HTTP/1.
    pub fn new(io: Io, head_bytes: usize) -> hyper::Result<Http1> {
        Http1::with_reader(HeadReader::new(io, head_bytes), head_bytes)
    }

    /// Makes a socket serve one more request.
    pub fn reused(io: Io, head_bytes: usize) -> hyper::Result<Http1> {
        Http1::with_reader(HeadReader::reused(io, head_bytes), head_bytes)
    }

    fn with_reader(reader: HeadReader<Io>, head_bytes: usize) -> hyper::Result<Http1> {
        let control = reader.control();
        let mut builder = http1::Builder::new();
        builder
            .preserve_header_case(true)
            .max_header_size(head_bytes)
            .max_buf_size(BUFFER_BYTES.max(head_bytes));
        let (sender, connection) = poll_handshake(builder.handshake(TokioIo::new(reader)))?;
        Ok(Http1 {
            sender,
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
        let (io, read_ahead) = parts.io.into_inner().into_inner();
        // The client is shown heads alone.
        parts.read_buf.is_empty().then_some((io, read_ahead))
    }
}

/// The handshake of HTTP/1 has nothing to wait for.
fn poll_handshake<T>(handshake: impl Future<Output = hyper::Result<T>>) -> hyper::Result<T> {
    let mut noop = Context::from_waker(Waker::noop());
    match pin!(handshake).poll(&mut noop) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("hyper makes an HTTP/1 connection without waiting"),
    }
}

/// An HTTP/2 connection, shared, driven by a task of its own.
#[derive(Clone)]
pub(super) struct Http2 {
    sender: http2::SendRequest<Upload>,
    max_streams: Arc<AtomicUsize>,
    pub streams: InFlightCount,
}

impl Http2 {
    /// `streams` counts what is under way on it.
    pub async fn open(io: Io, streams: InFlightCount) -> hyper::Result<Http2> {
        let (sender, mut connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(BUFFER_BYTES)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .handshake(TokioIo::new(io))
            .await?;
        let max_streams = Arc::new(AtomicUsize::new(MAX_STREAMS));
        let current_max = Arc::clone(&max_streams);
        tokio::spawn(std::future::poll_fn(move |cx| {
            let over = Pin::new(&mut connection).poll(cx).map(drop);
            current_max.store(
                connection.current_max_send_streams().min(MAX_STREAMS),
                Ordering::Relaxed,
            );
            over
        }));
        Ok(Http2 {
            sender,
            max_streams,
            streams,
        })
    }

    pub fn sender(&self) -> http2::SendRequest<Upload> {
        self.sender.clone()
    }

    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether one more stream would not have to wait for another to end.
    pub fn has_stream_capacity(&self) -> bool {
        !self.is_closed() && self.streams.count() < self.max_streams.load(Ordering::Relaxed).max(1)
    }
}

impl Io {
    /// Whether an open connection has nothing to be read: the system is asked at this moment,
    /// since what the runtime knows of the socket is as old as its last look.
    pub fn is_open_and_idle(&mut self) -> bool {
        let tcp = match self {
            Io::Tcp(tcp) => &**tcp,
            Io::Tls(tls) => {
                // Text that is decrypted already, and records that hold none.
                let mut noop = Context::from_waker(Waker::noop());
                let (mut byte, tls) = ([0], &mut **tls);
                if Pin::new(&mut *tls)
                    .poll_read(&mut noop, &mut ReadBuf::new(&mut byte))
                    .is_ready()
                {
                    return false;
                }
                if tls.get_ref().0.is_inside_tls_record() {
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
