//! Whatever an upstream answers: an agent behind the proxy is told what it would be told without,
//! or that the upstream failed; never more, and nothing hangs.

use super::proxy::{Between, PATIENCE};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
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
    let [cut, answer @ ..] = input else { return };
    // What becomes another protocol is for tunnels, which go on until somebody ends them.
    if answer.windows(4).any(|four| four == b" 101") {
        return;
    }
    BETWEEN.with(|between| {
        let length = usize::from(*cut).max(1).max(answer.len() / 16);
        let told = |agent: SocketAddr| {
            between.runtime.block_on(async {
                let upstream = upstream(&between.upstream, answer, length);
                let both = async { tokio::join!(upstream, ask(agent)).1 };
                timeout(PATIENCE, both).await.expect("nothing hangs")
            })
        };
        let direct = told(between.upstream_address);
        let through = told(between.proxy);
        compare(&direct, &through);
    });
}

/// What an agent was told.
#[derive(Debug)]
enum Told {
    /// No head of a response.
    Nothing,
    /// A head, the body as far as it came, its trailers, and whether it was whole.
    Answer {
        status: StatusCode,
        headers: HeaderMap,
        body: Vec<u8>,
        trailers: Option<HeaderMap>,
        whole: bool,
    },
}

impl Told {
    fn may_break(&self) -> bool {
        match self {
            Told::Nothing => false,
            Told::Answer { headers, whole, .. } => {
                !whole || headers.contains_key("transfer-encoding")
            }
        }
    }
}

fn compare(direct: &Told, through: &Told) {
    let Told::Answer {
        status,
        headers,
        body,
        trailers,
        whole,
    } = through
    else {
        // Where the break comes at once with the head, the head may be lost; and the proxy
        // reads chunks more strictly.
        assert!(direct.may_break(), "the proxy said nothing of {direct:?}");
        return;
    };
    if headers.get("x-tokengauge-error").is_some() {
        return;
    }
    let Told::Answer {
        status: said,
        headers: sent,
        body: meant,
        trailers: ended,
        whole: complete,
    } = direct
    else {
        panic!("the proxy made up {through:?}");
    };
    assert_eq!(status, said);
    for (name, value) in headers {
        let kept = sent.get_all(name).iter().any(|sent| sent == value);
        assert!(kept || framing(name), "{name}: {value:?} of {sent:?}");
    }
    if *whole {
        assert!(
            *complete,
            "a body that broke off became whole: {direct:?} {through:?}"
        );
        assert_eq!(body, meant);
        if let Some(trailers) = trailers {
            assert_eq!(Some(trailers), ended.as_ref());
        }
    } else {
        let shorter = body.len().min(meant.len());
        assert_eq!(body[..shorter], meant[..shorter]);
    }
}

/// Each connection has its own way of saying where a message ends.
fn framing(name: &HeaderName) -> bool {
    let own = [
        "connection",
        "transfer-encoding",
        "content-length",
        "date",
        "keep-alive",
    ];
    own.contains(&name.as_str())
}

/// Takes one request and answers it.
async fn upstream(listener: &TcpListener, answer: &[u8], length: usize) {
    let (mut socket, _) = listener.accept().await.expect("a connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    for piece in answer.chunks(length) {
        if socket.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    let _ = socket.shutdown().await;
    while socket.read_buf(&mut head).await.unwrap_or(0) > 0 {}
}

async fn ask(address: SocketAddr) -> Told {
    let socket = TcpStream::connect(address).await.expect("connected");
    let (mut send, connection) = http1::handshake(TokioIo::new(socket)).await.expect("made");
    let driver = tokio::spawn(connection);
    let request = Request::get("/open/v1/chat/completions").header("host", "agent.example");
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let told = match send.send_request(request).await {
        Err(_) => Told::Nothing,
        Ok(response) => {
            let (head, mut rest) = response.into_parts();
            let (mut body, mut trailers, mut whole) = (Vec::new(), None, true);
            while let Some(frame) = rest.frame().await {
                match frame.map(|frame| frame.into_data()) {
                    Ok(Ok(data)) => body.extend_from_slice(&data),
                    Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
                    Err(_) => whole = false,
                }
            }
            Told::Answer {
                status: head.status,
                headers: head.headers,
                body,
                trailers,
                whole,
            }
        }
    };
    drop(send);
    driver.abort();
    told
}
