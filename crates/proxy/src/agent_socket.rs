//! An agent's socket with two writers: the HTTP server, and a response body whose chunks bypass the
//! server unchanged.

use parking_lot::{Mutex, MutexGuard};
use socket2::SockRef;
use std::any::Any;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Bytes that are buffered while the server is not reading, as many as hyper would buffer.
const READ_AHEAD: usize = 8 * 1024;

/// The HTTP server's handle on a socket.
#[derive(Debug)]
pub(super) struct ServerIo<I>(Arc<Mutex<Socket<I>>>);

/// A second handle on the same socket, for a response body and for the connection's task. The lock
/// is held only for the length of a system call.
#[derive(Clone)]
pub(super) struct SharedSocket(Arc<dyn SocketWriter>);

#[derive(Debug)]
struct Socket<I> {
    io: I,
    /// How many times the server has written.
    writes: u64,
    /// Whether everything that the server wrote has been flushed.
    flushed: bool,
    /// Whether the server's last read returned `Pending`.
    read_pending: bool,
    /// Whether the server has made a large read since `poll_disconnected` was last called.
    bulk_reading: bool,
    /// Bytes that arrived while the server was not reading.
    read_ahead: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> ServerIo<I> {
    /// Wraps a socket, and returns both handles on it.
    pub fn new(io: I) -> (ServerIo<I>, SharedSocket) {
        let socket = Arc::new(Mutex::new(Socket {
            io,
            writes: 0,
            flushed: true,
            read_pending: false,
            bulk_reading: false,
            read_ahead: Vec::new(),
        }));
        (ServerIo(Arc::clone(&socket)), SharedSocket(socket))
    }
}

impl SharedSocket {
    /// How many times the server has written so far.
    pub(super) fn writes(&self) -> u64 {
        self.0.write_state().0
    }

    /// Whether everything that the server wrote has been flushed.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.write_state().1
    }

    /// Whether the server has written since it had written `writes` times, and everything has been
    /// flushed.
    pub(super) fn is_flushed_since(&self, writes: u64) -> bool {
        let (now, flushed) = self.0.write_state();
        now > writes && flushed
    }

    /// Makes closing the connection send a reset.
    pub(super) fn reset_on_close(&self) {
        self.0.reset_on_close();
    }

    /// Resets the connection now, discarding what has not been delivered.
    pub(super) fn abort(&self) {
        self.0.abort();
    }

    /// Ready when the agent has closed the connection while the server, polled just before, is not
    /// reading. To notice that itself, the server would hold a read buffer for as long as it writes
    /// a response. What the agent sends early is kept for the server, as unread bytes would turn
    /// the close into a reset; once any is buffered, a close is not detected. While the server is
    /// reading a long body this does not read: the server reads more at a time.
    pub(super) fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_disconnected(cx)
    }

    /// Returns how many bytes were accepted, and whether they have been flushed.
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<(usize, bool)>> {
        match self.0.poll_write(cx, bytes) {
            Poll::Ready(Ok((0, _))) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            polled => polled,
        }
    }
}

impl std::fmt::Debug for SharedSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedSocket").finish_non_exhaustive()
    }
}

/// Writes to the socket directly, bypassing the server while it has nothing to write.
#[derive(Debug)]
pub(super) struct PassthroughWriter {
    agent: SharedSocket,
    /// What the socket has not accepted yet.
    unsent: Vec<u8>,
    sent: usize,
    /// Whether TLS holds bytes that have not been flushed; nothing else would flush them.
    unflushed: bool,
}

impl PassthroughWriter {
    pub fn new(agent: SharedSocket) -> PassthroughWriter {
        PassthroughWriter {
            agent,
            unsent: Vec::new(),
            sent: 0,
            unflushed: false,
        }
    }

    pub fn agent(&self) -> &SharedSocket {
        &self.agent
    }

    /// Writes what the socket accepts and buffers the rest.
    pub fn send(&mut self, cx: &mut Context<'_>, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.agent.poll_write(cx, bytes) {
                Poll::Ready(written) => {
                    let (written, flushed) = written?;
                    self.unflushed = !flushed;
                    bytes = &bytes[written..];
                }
                Poll::Pending => {
                    self.unsent.extend_from_slice(bytes);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Bytes that the socket has not accepted yet.
    pub fn pending_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Writes what is buffered.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() {
            let written = self.agent.poll_write(cx, &self.unsent[self.sent..]);
            let (written, flushed) = ready!(written)?;
            self.sent += written;
            self.unflushed = !flushed;
        }
        if self.sent > 0 {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
        if self.unflushed {
            ready!(self.agent.0.poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// Direct access to a socket, whether it is TLS or plain TCP.
trait SocketWriter: Send + Sync {
    fn write_state(&self) -> (u64, bool);
    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<(usize, bool)>>;
    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    fn reset_on_close(&self);
    fn abort(&self);
    fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()>;
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> SocketWriter for Mutex<Socket<I>> {
    fn write_state(&self) -> (u64, bool) {
        let socket = locked(self);
        (socket.writes, socket.flushed)
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<(usize, bool)>> {
        let io = &mut locked(self).io;
        let written = ready!(Pin::new(&mut *io).poll_write(cx, bytes))?;
        // TLS writes only when it is flushed.
        let flushed = Pin::new(io).poll_flush(cx)?.is_ready();
        Poll::Ready(Ok((written, flushed)))
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut locked(self).io).poll_flush(cx)
    }

    fn reset_on_close(&self) {
        // If it cannot be set, the connection is already closed.
        if let Some(tcp) = tcp(&locked(self).io) {
            let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }

    fn abort(&self) {
        self.reset_on_close();
        if let Some(tcp) = tcp(&locked(self).io) {
            let _ = SockRef::from(tcp).shutdown(std::net::Shutdown::Both);
        }
    }

    fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut socket = locked(self);
        let Socket {
            io,
            read_pending,
            bulk_reading,
            read_ahead,
            ..
        } = &mut *socket;
        if std::mem::take(read_pending) || !read_ahead.is_empty() {
            return Poll::Pending;
        }
        if std::mem::take(bulk_reading) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut buffer = [const { MaybeUninit::uninit() }; READ_AHEAD];
        let mut read = ReadBuf::uninit(&mut buffer);
        let polled = ready!(Pin::new(io).poll_read(cx, &mut read));
        if polled.is_err() || read.filled().is_empty() {
            return Poll::Ready(());
        }
        read_ahead.extend_from_slice(read.filled());
        Poll::Pending
    }
}

/// The TCP socket of an agent's connection.
fn tcp(io: &dyn Any) -> Option<&TcpStream> {
    let tls = || Some(io.downcast_ref::<Box<TlsStream<TcpStream>>>()?.get_ref().0);
    io.downcast_ref().or_else(tls)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl<I: AsyncRead + Unpin> AsyncRead for ServerIo<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut socket = locked(&self.0);
        let before = buf.filled().len();
        let polled = if socket.read_ahead.is_empty() {
            Pin::new(&mut socket.io).poll_read(cx, buf)
        } else {
            let length = buf.remaining().min(socket.read_ahead.len());
            buf.put_slice(&socket.read_ahead[..length]);
            socket.read_ahead.drain(..length);
            Poll::Ready(Ok(()))
        };
        socket.read_pending = polled.is_pending();
        socket.bulk_reading |= buf.filled().len() - before >= READ_AHEAD;
        polled
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ServerIo<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut socket = locked(&self.0);
        socket.writes += 1;
        socket.flushed = false;
        Pin::new(&mut socket.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut socket = locked(&self.0);
        socket.writes += 1;
        socket.flushed = false;
        Pin::new(&mut socket.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        locked(&self.0).io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = locked(&self.0);
        ready!(Pin::new(&mut socket.io).poll_flush(cx))?;
        socket.flushed = true;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut locked(&self.0).io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};
    use tokio::io::{join, repeat, sink};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Accepts every write, as TLS does, and passes it on once it is unblocked.
    struct Buffering {
        blocked: Arc<AtomicUsize>,
        left: Arc<AtomicUsize>,
        held: usize,
    }

    impl AsyncRead for Buffering {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Pending
        }
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
            if self.blocked.load(Ordering::Relaxed) > 0 {
                return Poll::Pending;
            }
            let held = std::mem::take(&mut self.held);
            self.left.fetch_add(held, Ordering::Relaxed);
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn bytes_buffered_by_tls_are_flushed_without_another_chunk() {
        let (blocked, left) = (Arc::new(AtomicUsize::new(1)), Arc::<AtomicUsize>::default());
        let (_server_io, agent_socket) = ServerIo::new(Buffering {
            blocked: Arc::clone(&blocked),
            left: Arc::clone(&left),
            held: 0,
        });
        let mut cx = Context::from_waker(Waker::noop());
        let mut writer = PassthroughWriter::new(agent_socket);
        writer.send(&mut cx, b"chunk").expect("taken");
        assert!(writer.poll_flush(&mut cx).is_pending(), "it has not left");
        blocked.store(0, Ordering::Relaxed);
        assert!(writer.poll_flush(&mut cx).is_ready());
        assert_eq!(left.load(Ordering::Relaxed), 5);
    }

    #[test]
    fn a_long_body_is_read_by_the_server_and_not_ahead_of_it() {
        // There is always something to read.
        let (mut server_io, agent_socket) = ServerIo::new(join(repeat(b'x'), sink()));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        let mut read = |size| {
            let mut bytes = vec![0; size];
            let mut buf = ReadBuf::new(&mut bytes);
            assert!(
                Pin::new(&mut server_io)
                    .poll_read(&mut Context::from_waker(Waker::noop()), &mut buf)
                    .is_ready()
            );
            buf.filled().len()
        };
        let large = 8 * READ_AHEAD;
        for _ in 0..3 {
            assert_eq!(read(large), large);
            assert!(agent_socket.poll_disconnected(&mut cx).is_pending());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 3, "it looks again");
        // The server has stopped reading: what arrives is buffered for it.
        assert!(agent_socket.poll_disconnected(&mut cx).is_pending());
        assert_eq!(read(large), READ_AHEAD);
    }
}
