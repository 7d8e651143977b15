//! An agent's socket that two write to: the server that speaks HTTP over it, and a body
//! whose chunks leave as they came, past the server.

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

/// Bytes that are kept of what an agent sends before its turn, as many as hyper would.
const READ_AHEAD: usize = 8 * 1024;

/// A socket as the server has it.
#[derive(Debug)]
pub(super) struct ServerIo<I>(Arc<Mutex<Socket<I>>>);

/// The same socket as a body and the connection's task have it. Nobody waits for the lock but
/// for another's system call.
#[derive(Clone)]
pub(super) struct SharedSocket(Arc<dyn SocketWriter>);

#[derive(Debug)]
struct Socket<I> {
    io: I,
    /// How often the server wrote.
    writes: u64,
    /// Nothing of what the server wrote is left.
    flushed: bool,
    /// The server waits for what comes next, since it was polled last.
    read_pending: bool,
    /// The server read much, since the agent's leaving was looked for last.
    bulk_reading: bool,
    /// What came while the server read nothing.
    read_ahead: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> ServerIo<I> {
    /// One socket, two handles.
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
    /// How often the server wrote until now.
    pub(super) fn writes(&self) -> u64 {
        self.0.write_state().0
    }

    /// Whether all that the server wrote has left.
    pub(super) fn is_flushed(&self) -> bool {
        self.0.write_state().1
    }

    /// Whether the server wrote since then, and all of it has left.
    pub(super) fn is_flushed_since(&self, writes: u64) -> bool {
        let (now, flushed) = self.0.write_state();
        now > writes && flushed
    }

    /// The end of the connection will be a reset.
    pub(super) fn reset_on_close(&self) {
        self.0.reset_on_close();
    }

    /// Ends the connection now, with a reset: what was written and not read is given up.
    pub(super) fn abort(&self) {
        self.0.abort();
    }

    /// Ready when the agent has left while the server, polled just before, reads nothing.
    /// The server would hold a buffer to see it for as long as it writes an answer. What the
    /// agent sent ahead is kept for the server: unread, it would make the connection's end a
    /// reset. After that, nothing is known. A server that is amid a long body goes first: it
    /// reads more at a time.
    pub(super) fn poll_disconnected(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_disconnected(cx)
    }

    /// How much was taken, and whether that has left.
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

/// Writes past the server, where that has nothing to write.
#[derive(Debug)]
pub(super) struct PassthroughWriter {
    agent: SharedSocket,
    /// What the socket did not take yet.
    unsent: Vec<u8>,
    sent: usize,
    /// TLS took something that has not left: nobody else would flush it.
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

    /// Writes what the socket takes and keeps the rest.
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

    /// How much of what was sent the socket did not take yet.
    pub fn pending_bytes(&self) -> usize {
        self.unsent.len() - self.sent
    }

    /// Writes what was left over.
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

/// What is done to a socket past the server, whether it is TLS or not.
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
        // TLS writes when it is flushed.
        let flushed = Pin::new(io).poll_flush(cx)?.is_ready();
        Poll::Ready(Ok((written, flushed)))
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut locked(self).io).poll_flush(cx)
    }

    fn reset_on_close(&self) {
        // Where it cannot be set, the connection is gone already.
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

/// The socket under a connection of an agent.
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

    /// Takes all there is, as TLS does, and writes it when it may.
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
    fn what_tls_took_and_could_not_write_leaves_without_another_chunk() {
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
    fn a_long_body_is_read_by_the_server_and_not_piece_by_piece_ahead_of_it() {
        // Always has something to read.
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
        // The server reads no more: what comes is kept for it.
        assert!(agent_socket.poll_disconnected(&mut cx).is_pending());
        assert_eq!(read(large), READ_AHEAD);
    }
}
