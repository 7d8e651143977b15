//! Agents that send HTTP/1 byte by byte, or HTTP/2 with hyper.

use crate::connection::RawConnection;
use crate::upstream::fields;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use tokio::net::TcpStream;

pub type AnyBody = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

pub fn whole(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(Into::into).boxed()
}

pub fn none() -> AnyBody {
    Empty::new().map_err(Into::into).boxed()
}

/// Opens an HTTP/2 connection by prior knowledge.
pub async fn http2(address: SocketAddr) -> http2::SendRequest<AnyBody> {
    let tcp = TcpStream::connect(address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let (send, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tcp))
        .await
        .unwrap();
    tokio::spawn(connection);
    send
}

/// Reads an error response of the proxy. Returns its head and its message.
pub async fn refusal(agent: &mut RawConnection) -> (String, String) {
    let head = agent.read_head().await;
    let length = fields(&head)
        .into_iter()
        .find_map(|field| field.strip_prefix("content-length: "))
        .unwrap();
    let body = agent.read_exact(length.parse().unwrap()).await;
    (head, String::from_utf8(body).unwrap())
}
