//! A backend that streams chats and changes during the measurement.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

#[derive(Clone, Copy)]
pub struct Behaviour {
    pub ttft: fn(f64) -> f64,
    /// Returns whether no token is sent at this time.
    pub stands_still: fn(f64) -> bool,
    /// Returns whether the connection closes in the middle of this call.
    pub fails: fn(u64) -> bool,
}

impl Default for Behaviour {
    fn default() -> Behaviour {
        Behaviour {
            ttft: |_| 0.06,
            stands_still: |_| false,
            fails: |_| false,
        }
    }
}

const TOKENS: u64 = 50;
const GAP: Duration = Duration::from_millis(3);

pub struct Changing {
    pub address: SocketAddr,
}

struct Shared {
    behaviour: Behaviour,
    began: Instant,
    calls: AtomicU64,
}

impl Changing {
    pub async fn start(behaviour: Behaviour) -> Changing {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            behaviour,
            began: Instant::now(),
            calls: AtomicU64::new(0),
        });
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move { drop(serve(socket, &shared).await) });
            }
        });
        Changing { address }
    }
}

async fn serve(mut socket: TcpStream, shared: &Shared) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        while !whole(&received) {
            if socket.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        }
        received.clear();
        if !answer(&mut socket, shared).await? {
            return Ok(());
        }
    }
}

/// Returns whether a request is complete. The client sends the next request only after the response.
fn whole(received: &[u8]) -> bool {
    let text = String::from_utf8_lossy(received).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()) == Some(body.len())
}

async fn answer(socket: &mut TcpStream, shared: &Shared) -> std::io::Result<bool> {
    let elapsed = || shared.began.elapsed().as_secs_f64();
    let number = shared.calls.fetch_add(1, Ordering::Relaxed);
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    tokio::time::sleep(Duration::from_secs_f64((shared.behaviour.ttft)(elapsed()))).await;
    socket.write_all(head.as_bytes()).await?;
    for token in 0..TOKENS {
        while (shared.behaviour.stands_still)(elapsed()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if token == TOKENS / 2 && (shared.behaviour.fails)(number) {
            return Ok(false);
        }
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n";
        write(socket, event).await?;
        tokio::time::sleep(GAP).await;
    }
    write(socket, "data: [DONE]\n\n").await?;
    socket.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

async fn write(socket: &mut TcpStream, event: &str) -> std::io::Result<()> {
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    socket.write_all(chunk.as_bytes()).await
}
