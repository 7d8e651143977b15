//! A fast backend: HTTP/1.1 with keep-alive, a chunk and a write per event.

use crate::process::end_with_parent;
use crate::wire::{StreamRequest, push_end, push_event};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// Bytes of a request's body in which the [`StreamRequest`] is searched.
const BEGINNING: usize = 4096;
/// Bytes of the read buffer.
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

/// Answers requests until the peer closes the connection, which is no error.
async fn connection(socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut socket = BufReader::with_capacity(READ, socket);
    while let Some(request) = request(&mut socket).await? {
        answer(request, socket.get_mut()).await?;
    }
    Ok(())
}

/// Reads one request; `None` where the connection was closed between two.
async fn request(socket: &mut BufReader<TcpStream>) -> std::io::Result<Option<StreamRequest>> {
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
    Ok(Some(StreamRequest::of_body(&body).unwrap_or_default()))
}

async fn answer(request: StreamRequest, socket: &mut TcpStream) -> std::io::Result<()> {
    let (mut scratch, mut out) = (String::new(), Vec::new());
    socket
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        .await?;
    if request.per_write > 1 {
        for index in 0..request.per_write {
            push_event(index, 0, &mut scratch, &mut out);
        }
        // The same events are repeated, so that making them does not limit the rate.
        for _ in 0..request.events / request.per_write {
            socket.write_all(&out).await?;
        }
    } else {
        pace(request, socket, &mut scratch, &mut out).await?;
    }
    out.clear();
    push_end(request, &mut out);
    socket.write_all(&out).await
}

async fn pace(
    request: StreamRequest,
    socket: &mut TcpStream,
    scratch: &mut String,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let start = Instant::now() + Duration::from_micros(request.phase_us);
    for index in 0..request.events {
        // A timer rounds up to its tick, even one that is due.
        if request.interval_us > 0 {
            sleep_until(start + Duration::from_micros(request.interval_us * u64::from(index)))
                .await;
        }
        out.clear();
        push_event(index, request.per_chunk, scratch, out);
        socket.write_all(out).await?;
    }
    Ok(())
}
