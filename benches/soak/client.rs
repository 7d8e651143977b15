//! The agents' side: connections, and one call over one of them.

use crate::verify::{CallEnd, ReceivedHead};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout_at};

/// Time limit of a response.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// An agent's connection with the task that drives it, which is aborted on drop.
pub struct Connection {
    sender: Sender,
    used: Instant,
    _driver: JoinSet<()>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Connects. With `resets`, the connection ends with a reset.
    pub async fn open(
        proxy: SocketAddr,
        version: Version,
        resets: bool,
    ) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(proxy).await?;
        stream.set_nodelay(true)?;
        if resets {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
        }
        let stream = TokioIo::new(stream);
        let mut driver = JoinSet::new();
        let sender = if version == Version::HTTP_2 {
            let opened = http2::handshake(TokioExecutor::new(), stream).await;
            let (sender, connection) = opened.map_err(std::io::Error::other)?;
            driver.spawn(async move { drop(connection.await) });
            Sender::Http2(sender)
        } else {
            let opened = http1::handshake(stream).await;
            let (sender, connection) = opened.map_err(std::io::Error::other)?;
            driver.spawn(async move { drop(connection.await) });
            Sender::Http1(sender)
        };
        Ok(Connection {
            sender,
            used: Instant::now(),
            _driver: driver,
        })
    }

    /// Whether the connection can be reused. After one idle second it cannot, because the proxy might close it while
    /// the next request is on its way.
    pub fn usable(&self) -> bool {
        let closed = match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        };
        !closed && self.used.elapsed() < Duration::from_secs(1)
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ReadBehaviour {
    pub pause: Duration,
    /// Time from the start of the call to the disconnect.
    pub leaves: Option<Duration>,
}

pub struct ReceivedResponse {
    pub head: Option<ReceivedHead>,
    pub body: Vec<u8>,
    pub ended: CallEnd,
    pub why: String,
}

pub async fn ask(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
    reading: ReadBehaviour,
) -> ReceivedResponse {
    let limit = reading.leaves.unwrap_or(TIMEOUT);
    let end = tokio::time::Instant::now() + limit;
    let mut response = ReceivedResponse {
        head: None,
        body: Vec::new(),
        ended: CallEnd::Cancelled,
        why: String::new(),
    };
    let read = timeout_at(end, read(connection, request, reading, &mut response)).await;
    if read.is_err() && reading.leaves.is_none() {
        response.ended = CallEnd::Truncated;
        response.why = format!("nothing more within {TIMEOUT:?}");
    }
    connection.used = Instant::now();
    response
}

async fn read(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
    reading: ReadBehaviour,
    received: &mut ReceivedResponse,
) {
    let response = match connection.send(request).await {
        Ok(response) => response,
        Err(error) => {
            received.ended = CallEnd::Truncated;
            received.why = format!("{error:?}");
            return;
        }
    };
    received.head = Some(head(&response));
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => received.body.extend(frame.into_data().unwrap_or_default()),
            Err(error) => {
                received.ended = CallEnd::Truncated;
                received.why = format!("{error:?}");
                return;
            }
        }
        if !reading.pause.is_zero() {
            sleep(reading.pause).await;
        }
    }
    received.ended = CallEnd::Complete;
}

fn head(response: &Response<Incoming>) -> ReceivedHead {
    let text = |name: &str| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    ReceivedHead {
        status: response.status().as_u16(),
        content_type: text("content-type"),
        encoding: text("content-encoding"),
        from_proxy: text("x-tokengauge-error").is_some(),
    }
}
