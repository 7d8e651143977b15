//! The load client: streams over keep-alive connections, and the latencies of their events.

use crate::wire::{Dechunk, StreamRequest, now, take_instants};
use anyhow::{Context, bail, ensure};
use memchr::memmem;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Figures of all streams of one run.
#[derive(Debug, Default)]
pub struct StreamStats {
    /// Whether latencies are recorded now.
    pub recording: Cell<bool>,
    /// Nanoseconds from the sending of an event to its arrival, while they are recorded.
    pub latencies: RefCell<Vec<u64>>,
    /// Events that arrived.
    pub events: Cell<u64>,
    /// Streams whose first event has come and whose end has not.
    pub open: Cell<usize>,
}

/// A keep-alive connection to a peer.
pub struct Connection {
    socket: TcpStream,
    /// Header lines that the peer needs in addition.
    headers: String,
    input: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr, headers: &str) -> anyhow::Result<Connection> {
        let socket = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        socket.set_nodelay(true)?;
        Ok(Connection {
            socket,
            headers: headers.to_owned(),
            input: vec![0; 64 * 1024],
        })
    }

    /// Makes one request and reads its stream to the end. Returns the nanoseconds until its
    /// first event.
    pub async fn stream(
        &mut self,
        request: StreamRequest,
        stats: &StreamStats,
    ) -> anyhow::Result<u64> {
        let (mut seen, mut first) = (0, None);
        let sent = now();
        self.read(request, |body, arrived| {
            let before = seen;
            let mut latencies = stats.latencies.borrow_mut();
            take_instants(body, |instant| {
                seen += 1;
                if stats.recording.get() {
                    latencies.push(arrived.saturating_sub(instant));
                }
            });
            let more = u64::from(seen - before);
            stats.events.set(stats.events.get() + more);
            if first.is_none() && seen > 0 {
                first = Some((arrived, OpenStream::on(stats)));
            }
        })
        .await
        .with_context(|| format!("after {seen} events"))?;
        ensure!(
            seen == request.events,
            "{seen} events came of {}",
            request.events
        );
        let (arrived, _) = first.context("a stream without events")?;
        Ok(arrived - sent)
    }

    /// Makes one request and reads its answer to the end. After each read, `each` is called
    /// with the bytes of the body that it has not drained yet, and the instant of the read.
    pub async fn read(
        &mut self,
        request: StreamRequest,
        mut each: impl FnMut(&mut Vec<u8>, u64),
    ) -> anyhow::Result<()> {
        self.socket
            .write_all(&request.request(&self.headers))
            .await?;
        let mut head = Some(Vec::new());
        let (mut dechunk, mut body, mut over) = (Dechunk::default(), Vec::new(), false);
        while !over {
            let length = self.socket.read(&mut self.input).await?;
            let arrived = now();
            ensure!(length > 0, "the stream broke off");
            let input = &self.input[..length];
            match &mut head {
                None => over = dechunk.feed(input, &mut body)?,
                Some(so_far) => {
                    so_far.extend_from_slice(input);
                    let Some(end) = end_of_head(so_far)? else {
                        continue;
                    };
                    over = dechunk.feed(&so_far[end..], &mut body)?;
                    head = None;
                }
            }
            each(&mut body, arrived);
        }
        Ok(())
    }

    /// Makes a GET request, and returns the response. It closes the connection.
    pub async fn get(mut self, path: &str) -> anyhow::Result<String> {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        self.socket.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        self.socket.read_to_end(&mut answer).await?;
        end_of_head(&answer)?.context("no answer")?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Where the body begins, once the head is complete; an error where the status is not 200.
fn end_of_head(head: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(end) = memmem::find(head, b"\r\n\r\n") else {
        return Ok(None);
    };
    if !head.starts_with(b"HTTP/1.1 200") {
        let answer = String::from_utf8_lossy(head);
        let (first, body) = (answer.lines().next(), answer.lines().last());
        bail!("{} {}", first.unwrap_or_default(), body.unwrap_or_default());
    }
    Ok(Some(end + 4))
}

/// Counts as an open stream until it is dropped.
struct OpenStream<'a>(&'a StreamStats);

impl OpenStream<'_> {
    fn on(stats: &StreamStats) -> OpenStream<'_> {
        stats.open.set(stats.open.get() + 1);
        OpenStream(stats)
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}
