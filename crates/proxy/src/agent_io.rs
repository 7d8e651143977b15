//! The socket of an agent's connection.

use socket2::SockRef;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A socket to an agent.
#[derive(Debug)]
pub(super) enum AgentIo {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AgentIo {
    /// The close of the connection will be a TCP reset. If it cannot be set, it is closed already.
    pub fn reset_on_close(&self) {
        let _ = SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
    }

    /// Closes the connection now with a TCP reset. Unsent data is discarded.
    pub fn abort(&self) {
        self.reset_on_close();
        let _ = SockRef::from(self.tcp()).shutdown(std::net::Shutdown::Both);
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            AgentIo::Tcp(tcp) => tcp,
            AgentIo::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for AgentIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            AgentIo::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            AgentIo::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for AgentIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            AgentIo::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            AgentIo::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            AgentIo::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            AgentIo::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            AgentIo::Tcp(tcp) => tcp.is_write_vectored(),
            AgentIo::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            AgentIo::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            AgentIo::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            AgentIo::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            AgentIo::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
