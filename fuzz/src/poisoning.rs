//! Arbitrary bytes of an upstream during and after its answer to one agent: the next agent gets its own answer, or an
//! error that names the upstream, without any part of the earlier answer.

use super::proxy::{Between, TIMEOUT};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// After this time without data, the answer of the first agent has ended or never will.
const QUIET: Duration = Duration::from_millis(2);
/// The victim's answer, whose bytes no input has by chance.
const OWN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nQ7-my-own-Q7";

thread_local! {
    static BETWEEN: Between = Between::start(8);
}

/// The first byte sets the size of the pieces and the method. The rest is sent in pieces.
pub fn run(input: &[u8]) {
    let [how, sent @ ..] = input else { return };
    // An upgraded connection becomes a tunnel, which lasts until one side closes it.
    if sent.windows(4).any(|four| four == b" 101") {
        return;
    }
    let method = if how & 1 == 0 { "GET" } else { "HEAD" };
    let length = usize::from(how >> 1).max(1).max(sent.len() / 16);
    BETWEEN.with(|between| {
        between.forget_upstream();
        between.runtime.block_on(async {
            let (written, is_written) = watch::channel(false);
            let upstream = upstream(&between.upstream, sent, length, written);
            let agents = async {
                attacked(between, method, is_written).await;
                victim(between).await
            };
            let both = async {
                tokio::select! {
                    response = agents => response,
                    () = upstream => unreachable!("it listens for ever"),
                }
            };
            let response = timeout(TIMEOUT, both).await.expect("nothing hangs");
            judge(&response);
        });
    });
}

fn judge(response: &[u8]) {
    let text = String::from_utf8_lossy(response);
    let (head, body) = text.split_once("\r\n\r\n").expect("an answer");
    if head.contains("x-tokengauge-error: upstream_") {
        return;
    }
    let mut lines: Vec<_> = head.lines().collect();
    lines.retain(|line| !line.eq_ignore_ascii_case("connection: close"));
    assert_eq!(lines, ["HTTP/1.1 200 OK", "Content-Length: 12"], "{text}");
    assert_eq!(body, "Q7-my-own-Q7");
}

/// Each connection answers requests for `/attack` with the input, and others correctly.
async fn upstream(
    listener: &TcpListener,
    sent: &[u8],
    length: usize,
    written: watch::Sender<bool>,
) {
    let mut connections = JoinSet::new();
    let pieces: Vec<Vec<u8>> = sent.chunks(length).map(<[u8]>::to_vec).collect();
    loop {
        let (socket, _) = listener.accept().await.expect("a connection");
        let _ = socket.set_nodelay(true);
        connections.spawn(converse(socket, pieces.clone(), written.clone()));
    }
}

async fn converse(mut socket: TcpStream, pieces: Vec<Vec<u8>>, written: watch::Sender<bool>) {
    let mut received = Vec::new();
    loop {
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
            match socket.read_buf(&mut received).await {
                Ok(length) if length > 0 => continue,
                _ => return,
            }
        };
        let head: Vec<u8> = received.drain(..end + 4).collect();
        let attacked = head.windows(7).any(|seven| seven == b"/attack");
        let own = vec![OWN.to_vec()];
        for piece in if attacked { &pieces } else { &own } {
            if socket.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        if attacked {
            written.send_replace(true);
        }
    }
}

/// Reads until nothing more arrives, and disconnects.
async fn attacked(between: &Between, method: &str, mut written: watch::Receiver<bool>) {
    let mut agent = TcpStream::connect(between.proxy).await.expect("connected");
    let request = format!("{method} /open/attack HTTP/1.1\r\nHost: h\r\n\r\n");
    agent.write_all(request.as_bytes()).await.expect("written");
    let _ = written.wait_for(|written| *written).await;
    let mut received = Vec::new();
    while let Ok(Ok(length)) = timeout(QUIET, agent.read_buf(&mut received)).await
        && length > 0
    {}
    drop(agent);
    sleep(Duration::from_millis(1)).await;
}

async fn victim(between: &Between) -> Vec<u8> {
    let mut agent = TcpStream::connect(between.proxy).await.expect("connected");
    let request = "GET /open/own HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    agent.write_all(request.as_bytes()).await.expect("written");
    let mut received = Vec::new();
    agent.read_to_end(&mut received).await.expect("read");
    received
}
