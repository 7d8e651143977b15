//! A plain HTTP/1.1 GET, so that tests see the bytes that a client sees.

use crate::TIMEOUT;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct TestResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub async fn request(address: SocketAddr, method: &str, path: &str) -> TestResponse {
    request_with(address, method, path, &[]).await
}

pub async fn request_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> TestResponse {
    let stream = TcpStream::connect(address).await.expect("connect");
    exchange(stream, method, path, headers).await
}

/// Sends a GET on an open connection of any kind.
pub async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> TestResponse {
    let (status, head, body) = exchange_bytes(stream, method, path, headers).await;
    let body = String::from_utf8(body).expect("text");
    TestResponse { status, head, body }
}

/// Sends a GET whose response body may be binary. Returns status, head and body.
pub async fn exchange_bytes(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, String, Vec<u8>) {
    let host = headers.iter().all(|(name, _)| *name != "host");
    let host = host.then_some(("host", "localhost"));
    let headers = host.iter().chain(headers);
    let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n"));
    let headers: String = headers.collect();
    let request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("write");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("read");
    let end = bytes.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = bytes.split_off(end.expect("a head") + 4);
    let head = String::from_utf8(bytes).expect("text").to_lowercase();
    let status = head.split(' ').nth(1);
    let status = status.and_then(|status| status.parse().ok());
    (status.expect("a status"), head.trim_end().to_owned(), body)
}

pub async fn fetch(address: SocketAddr, path: &str) -> TestResponse {
    request(address, "GET", path).await
}

/// The JSON of a successful response. Retries while the ledger is being created or is busy.
pub async fn fetch_json(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let response = request_with(address, "GET", path, headers).await;
        if response.status != 503 {
            assert_eq!(response.status, 200, "{path}: {}", response.body);
            return serde_json::from_str(&response.body).expect("JSON");
        }
        assert!(Instant::now() < end, "{path}: {}", response.body);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
