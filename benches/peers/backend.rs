//! A bare, fast backend: HTTP/1.1 with keep-alive, a chunk and a write per event.

use crate::process::end_with_parent;
use crate::wire::{Ask, push_end, push_event};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// As much of a request's body is looked at.
const BEGINNING: usize = 4096;
/// As much is read of it at once.
const READ: usize = 64 * 1024;

/// Serves until its parent ends. Prints its address.
pub fn serve() -> anyhow::Result<()> {
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let listener: TcpListener = socket.listen(4096)?;
        println!("{}", listener.local_addr()?);
        loop {
            let (socket, _) = listener.accept().await?;
            tokio::spawn(connection(socket));
        }
    })
}

/// Answers requests until the peer leaves; that is no error.
async fn connection(socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::with_capacity(READ, socket);
    while let Some(ask) = request(&mut socket).await? {
        answer(ask, socket.get_mut()).await?;
    }
    Ok(())
}

/// Reads one request; none when the connection was closed between two.
async fn request(socket: &mut BufReader<TcpStream>) -> std::io::Result<Option<Ask>> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if socket.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length.min(BEGINNING)];
    socket.read_exact(&mut body).await?;
    let mut left = length - body.len();
    while left > 0 {
        let read = socket.fill_buf().await?.len().min(left);
        if read == 0 {
            return Ok(None);
        }
        socket.consume(read);
        left -= read;
    }
    Ok(Some(Ask::of_body(&body).unwrap_or_default()))
}

async fn answer(ask: Ask, socket: &mut TcpStream) -> std::io::Result<()> {
    let (mut scratch, mut out) = (String::new(), Vec::new());
    socket
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    if ask.per_write > 1 {
        for index in 0..ask.per_write {
            push_event(index, 0, &mut scratch, &mut out);
        }
        // The same events again and again: making them must not be what limits.
        for _ in 0..ask.events / ask.per_write {
            socket.write_all(&out).await?;
        }
    } else {
        pace(ask, socket, &mut scratch, &mut out).await?;
    }
    out.clear();
    push_end(ask, &mut out);
    socket.write_all(&out).await
}

async fn pace(
    ask: Ask,
    socket: &mut TcpStream,
    scratch: &mut String,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let start = Instant::now() + Duration::from_micros(ask.phase_us);
    for index in 0..ask.events {
        // A timer rounds up to its tick, even one that is due.
        if ask.interval_us > 0 {
            sleep_until(start + Duration::from_micros(ask.interval_us * u64::from(index))).await;
        }
        out.clear();
        push_event(index, ask.per_chunk, scratch, out);
        socket.write_all(out).await?;
    }
    Ok(())
}
