//! A plain HTTP/1.1 GET, so that tests see what a client sees.

use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A response.
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub async fn request(address: SocketAddr, method: &str, path: &str) -> Reply {
    request_with(address, method, path, &[]).await
}

pub async fn request_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Reply {
    let stream = TcpStream::connect(address).await.expect("connect");
    exchange(stream, method, path, headers).await
}

/// The same on a connection that is there, whatever it is made of.
pub async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Reply {
    let headers = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Reply {
        status: status.expect("a status"),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

pub async fn fetch(address: SocketAddr, path: &str) -> Reply {
    request(address, "GET", path).await
}
