//! An upstream that does exactly what its test says.

use super::{find, soon};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A listening upstream.
pub struct Upstream {
    pub listener: TcpListener,
    pub address: SocketAddr,
}

impl Upstream {
    pub async fn bind() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Upstream { listener, address }
    }

    pub async fn accept(&self) -> Raw {
        let (tcp, _) = soon("a connection to the upstream", self.listener.accept())
            .await
            .unwrap();
        tcp.set_nodelay(true).unwrap();
        Raw {
            tcp,
            buffer: Vec::new(),
        }
    }
}

/// One end of a connection, byte by byte.
pub struct Raw {
    pub tcp: TcpStream,
    buffer: Vec<u8>,
}

impl Raw {
    pub async fn connect(address: SocketAddr) -> Raw {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        Raw {
            tcp,
            buffer: Vec::new(),
        }
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        soon("writing", self.tcp.write_all(bytes.as_ref()))
            .await
            .unwrap();
    }

    /// Everything up to and including `end`.
    pub async fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = find(&self.buffer, end) {
                return self.buffer.drain(..at + end.len()).collect();
            }
            let so_far = String::from_utf8_lossy(&self.buffer).into_owned();
            assert!(
                self.more().await,
                "ended before {:?}: {so_far:?}",
                String::from_utf8_lossy(end)
            );
        }
    }

    /// A head, blank line included.
    pub async fn read_head(&mut self) -> String {
        String::from_utf8(self.read_until(b"\r\n\r\n").await).unwrap()
    }

    pub async fn read_exact(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(
                self.more().await,
                "ended after {} of {length} bytes",
                self.buffer.len()
            );
        }
        self.buffer.drain(..length).collect()
    }

    /// Everything until the other side ends; what was lost with a reset is not there.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Whether the other side closes, without another byte.
    pub async fn closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.read_to_end().await), "");
    }

    /// Ends the connection with a reset.
    #[expect(deprecated, reason = "a linger of 0 does not block")]
    pub fn reset(self) {
        self.tcp
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
    }

    async fn more(&mut self) -> bool {
        let read = soon("reading", self.tcp.read_buf(&mut self.buffer)).await;
        read.is_ok_and(|read| read > 0)
    }
}

/// The lines of a head, without the first and the blank one.
pub fn fields(head: &str) -> Vec<&str> {
    head.trim_end().lines().skip(1).collect()
}
