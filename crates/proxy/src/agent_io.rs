use super::maybe_tls::MaybeTls;
use socket2::SockRef;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

pub(super) type AgentIo = MaybeTls<TcpStream, TlsStream<TcpStream>>;

impl AgentIo {
    /// Makes the close of the connection a TCP reset. An error means that the socket is already closed.
    pub fn reset_on_close(&self) {
        let _ = SockRef::from(self.tcp()).set_linger(Some(Duration::ZERO));
    }

    /// Closes the connection with a TCP reset. Unsent data is discarded.
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
