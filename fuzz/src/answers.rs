//! Arbitrary answers of an upstream: an agent behind the proxy gets the same response as without it, or an error that
//! names the upstream. It never gets additional bytes, and nothing hangs.

use super::proxy::{Between, TIMEOUT};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

thread_local! {
    static BETWEEN: Between = Between::start(0);
}

pub fn run(input: &[u8]) {
    let [cut, response @ ..] = input else { return };
    // An upgraded connection becomes a tunnel, which lasts until one side closes it.
    if response.windows(4).any(|four| four == b" 101") {
        return;
    }
    BETWEEN.with(|between| {
        let length = usize::from(*cut).max(1).max(response.len() / 16);
        let told = |agent: SocketAddr| {
            between.runtime.block_on(async {
                let upstream = upstream(&between.upstream, response, length);
                let both = async { tokio::join!(upstream, ask(agent)).1 };
                timeout(TIMEOUT, both).await.expect("nothing hangs")
            })
        };
        let direct = told(between.upstream_address);
        let through = told(between.proxy);
        compare(direct.as_ref(), through.as_ref());
    });
}

#[derive(Debug)]
struct ReceivedResponse {
    status: StatusCode,
    headers: HeaderMap,
    /// The received part.
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    whole: bool,
}

fn compare(direct: Option<&ReceivedResponse>, through: Option<&ReceivedResponse>) {
    let Some(through) = through else {
        // If the break arrives together with the head, the head may be lost. The proxy also parses chunks more
        // strictly.
        let may_break = |direct: &ReceivedResponse| {
            !direct.whole || direct.headers.contains_key("transfer-encoding")
        };
        assert!(direct.is_some_and(may_break), "nothing but {direct:?}");
        return;
    };
    if through.headers.contains_key("x-tokengauge-error") {
        return;
    }
    let Some(direct) = direct else {
        panic!("the proxy made up {through:?}");
    };
    assert_eq!(through.status, direct.status);
    for (name, value) in &through.headers {
        let kept = direct
            .headers
            .get_all(name)
            .iter()
            .any(|sent| sent == value);
        assert!(kept || framing(name), "{name}: {value:?}, {direct:?}");
    }
    if through.whole {
        assert!(direct.whole, "it broke off: {direct:?} {through:?}");
        assert_eq!(through.body, direct.body);
        assert!(through.trailers.is_none() || through.trailers == direct.trailers);
    } else {
        let shorter = through.body.len().min(direct.body.len());
        assert_eq!(through.body[..shorter], direct.body[..shorter]);
    }
}

/// Each connection has its own framing, and several fields that announce trailers are merged into one.
fn framing(name: &HeaderName) -> bool {
    let own = [
        "connection",
        "transfer-encoding",
        "content-length",
        "date",
        "keep-alive",
        "trailer",
    ];
    own.contains(&name.as_str())
}

/// Reads one request and answers it.
async fn upstream(listener: &TcpListener, response: &[u8], length: usize) {
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    for piece in response.chunks(length) {
        if socket.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _ = socket.shutdown().await;
    while socket.read_buf(&mut head).await.unwrap_or(0) > 0 {}
}

async fn ask(address: SocketAddr) -> Option<ReceivedResponse> {
    let socket = TcpStream::connect(address).await.expect("connected");
    let (mut send, connection) = http1::handshake(TokioIo::new(socket)).await.expect("made");
    let driver = tokio::spawn(connection);
    let request = Request::get("/open/v1/chat/completions").header("host", "agent.example");
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let answered = send.send_request(request).await.ok();
    let received = match answered {
        Some(response) => Some(read(response).await),
        None => None,
    };
    drop(send);
    driver.abort();
    received
}

async fn read(response: Response<Incoming>) -> ReceivedResponse {
    let (head, mut rest) = response.into_parts();
    let mut received = ReceivedResponse {
        status: head.status,
        headers: head.headers,
        body: Vec::new(),
        trailers: None,
        whole: true,
    };
    while let Some(frame) = rest.frame().await {
        match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => received.body.extend_from_slice(&data),
            Ok(Err(frame)) => received.trailers = frame.into_trailers().ok(),
            Err(_) => received.whole = false,
        }
    }
    received
}
