//! An HTTP connection that is read and written byte by byte.

use crate::{find, soon};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A socket, or TLS over a socket, with the bytes that were read ahead.
pub struct RawConnection<I = TcpStream> {
    pub io: I,
    buffer: Vec<u8>,
}

impl RawConnection {
    pub async fn connect(address: SocketAddr) -> RawConnection {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        RawConnection::new(tcp)
    }

    #[expect(deprecated, reason = "a linger of 0 does not block")]
    pub fn reset(self) {
        self.io.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> RawConnection<I> {
    pub fn new(io: I) -> RawConnection<I> {
        RawConnection {
            io,
            buffer: Vec::new(),
        }
    }

    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        soon("writing", self.try_write(bytes)).await.unwrap();
    }

    /// Writes to a peer that may have closed the connection.
    pub async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.io.write_all(bytes.as_ref()).await?;
        self.io.flush().await
    }

    pub async fn get(&mut self, path: &str) {
        self.write(format!(
            "GET {path} HTTP/1.1\r\nHost: agent.example\r\n\r\n"
        ))
        .await;
    }

    /// Reads up to and including `end`.
    pub async fn read_until(&mut self, end: impl AsRef<[u8]>) -> Vec<u8> {
        let end = end.as_ref();
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

    /// Reads up to and including `end`, as text.
    pub async fn text_until(&mut self, end: &str) -> String {
        String::from_utf8(self.read_until(end).await).unwrap()
    }

    /// Reads a head, including the blank line.
    pub async fn read_head(&mut self) -> String {
        self.text_until("\r\n\r\n").await
    }

    /// The head of the next request; `None` if the peer closes the connection instead. The peer may
    /// be idle for any time.
    pub async fn next_head(&mut self) -> Option<String> {
        while find(&self.buffer, b"\r\n\r\n").is_none() {
            if self.io.read_buf(&mut self.buffer).await.unwrap_or(0) == 0 {
                return None;
            }
        }
        Some(self.read_head().await)
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

    /// Reads until the peer closes or resets the connection.
    pub async fn read_to_end(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads until the peer closes the connection, as text.
    pub async fn text_to_end(&mut self) -> String {
        String::from_utf8(self.read_to_end().await).unwrap()
    }

    /// Waits until the peer closes the connection. Panics if another byte arrives.
    pub async fn closed(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.read_to_end().await), "");
    }

    /// Reads HTTP/2 frames up to one whose type `wanted` accepts. Returns `false` if a HEADERS frame
    /// or the end comes first.
    pub async fn http2_frame(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        const HEADERS: u8 = 1;
        loop {
            while self.buffer.len() >= 9 {
                let length = usize::from(self.buffer[1]) << 8 | usize::from(self.buffer[2]);
                let kind = self.buffer[3];
                if wanted(kind) || kind == HEADERS {
                    return wanted(kind);
                }
                if self.buffer.len() < 9 + length {
                    break;
                }
                self.buffer.drain(..9 + length);
            }
            if !self.more().await {
                return false;
            }
        }
    }

    async fn more(&mut self) -> bool {
        let read = soon("reading", self.io.read_buf(&mut self.buffer)).await;
        read.is_ok_and(|read| read > 0)
    }
}
