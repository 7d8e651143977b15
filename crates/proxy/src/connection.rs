use super::maybe_tls::MaybeTls;
use super::upload::Upload;
use super::upstream::in_flight::InFlightCount;
use super::upstream::socket::CountedTcp;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::SockRef;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{self, Handle};
use tokio_rustls::client::TlsStream;

/// Bytes that one HTTP/2 connection may buffer for sending.
const BUFFER_BYTES: usize = 32 * 1024;
/// Bytes of one stream that an HTTP/2 upstream may send ahead of a slow agent.
const STREAM_WINDOW: u32 = 128 * 1024;
/// Concurrent streams of one HTTP/2 connection. Further streams open another connection. The windows of all streams fit
/// into the connection's window, so that slow agents never block other streams.
const MAX_STREAMS: usize = 100;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS as u32;
/// Silence after which an HTTP/2 connection with open streams is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);

pub(super) type Io = MaybeTls<CountedTcp, TlsStream<CountedTcp>>;

#[derive(Debug)]
pub(super) struct Http1 {
    pub io: Io,
    /// `None` for a new connection.
    pub idle_since: Option<Instant>,
    pub max_head_bytes: usize,
}

/// A shared HTTP/2 connection, driven by a separate task.
#[derive(Clone)]
pub(super) struct Http2 {
    sender: http2::SendRequest<Upload>,
    max_streams: Arc<AtomicUsize>,
    /// The runtime whose thread reads and writes the connection.
    pub runtime: runtime::Id,
    pub streams: InFlightCount,
}

impl Http2 {
    /// Performs the handshake. `streams` counts the connection's open streams.
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
            runtime: Handle::current().id(),
            streams,
        })
    }

    pub fn sender(&self) -> http2::SendRequest<Upload> {
        self.sender.clone()
    }

    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether another stream can be opened without waiting for a stream to end.
    pub fn has_stream_capacity(&self) -> bool {
        !self.is_closed() && self.streams.count() < self.max_streams.load(Ordering::Relaxed).max(1)
    }
}

impl Io {
    /// Whether the upstream sent unexpected data or closed the connection, as far as the runtime knows.
    pub fn is_unsolicited(&mut self) -> bool {
        let mut noop = Context::from_waker(Waker::noop());
        let mut byte = [0];
        let mut read = ReadBuf::new(&mut byte);
        Pin::new(self).poll_read(&mut noop, &mut read).is_ready()
    }

    pub fn tcp(&self) -> &CountedTcp {
        match self {
            Io::Tcp(tcp) => tcp,
            Io::Tls(tls) => tls.get_ref().0,
        }
    }

    pub fn tcp_mut(&mut self) -> &mut CountedTcp {
        match self {
            Io::Tcp(tcp) => tcp,
            Io::Tls(tls) => tls.get_mut().0,
        }
    }

    /// Whether the connection is open and has no bytes to read. Asks the kernel, because the runtime's view of the
    /// socket may be out of date.
    pub fn is_open_and_idle(&mut self) -> bool {
        let tcp = match self {
            Io::Tcp(tcp) => &**tcp,
            Io::Tls(tls) => {
                // TLS may hold decrypted bytes, or may have read records without content.
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
