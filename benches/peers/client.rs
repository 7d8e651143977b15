//! The load client for HTTP/1.1: keep-alive connections, and timestamps in their events.

use crate::chunked::Dechunk;
use crate::wire::{now, take_instants};
use anyhow::{Context, bail, ensure};
use memchr::memmem;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Debug, Default)]
pub struct StreamStats {
    pub noting: Cell<bool>,
    /// Nanoseconds from the sending of an event to its arrival, while recording.
    pub latencies: RefCell<Vec<u64>>,
    /// Nanoseconds from a request to its first event, while recording.
    pub first_tokens: RefCell<Vec<u64>>,
    pub events: Cell<u64>,
    pub bytes: Cell<u64>,
    pub calls: Cell<u64>,
    /// Streams that have received their first event and not their end.
    pub open: Cell<usize>,
}

impl StreamStats {
    /// Records a call that ended, with the nanoseconds until its first event.
    pub fn ended(&self, first_token: u64) {
        self.calls.set(self.calls.get() + 1);
        if self.noting.get() {
            self.first_tokens.borrow_mut().push(first_token);
        }
    }
}

pub struct EventReader<'a> {
    stats: &'a StreamStats,
    sent: u64,
    seen: u32,
    /// Time of the first event, after which the stream counts as open.
    first: Option<(u64, OpenStream<'a>)>,
}

impl EventReader<'_> {
    pub fn new(stats: &StreamStats) -> EventReader<'_> {
        EventReader {
            stats,
            sent: now(),
            seen: 0,
            first: None,
        }
    }

    pub fn read(&mut self, body: &mut Vec<u8>, arrived: u64) {
        let (before, stats) = (self.seen, self.stats);
        let noting = stats.noting.get();
        let mut latencies = stats.latencies.borrow_mut();
        take_instants(body, |instant| {
            self.seen += 1;
            if noting {
                latencies.push(arrived.saturating_sub(instant));
            }
        });
        let more = u64::from(self.seen - before);
        stats.events.set(stats.events.get() + more);
        if self.first.is_none() && self.seen > 0 {
            self.first = Some((arrived, OpenStream::on(stats)));
        }
    }

    /// Returns the nanoseconds until the first event of a response that must have `events` events.
    pub fn finish(self, read: anyhow::Result<()>, events: u32) -> anyhow::Result<u64> {
        let EventReader { seen, .. } = self;
        read.with_context(|| format!("after {seen} events"))?;
        ensure!(seen == events, "{seen} of {events} events arrived");
        let (arrived, _) = self.first.context("a stream without events")?;
        let first_token = arrived.saturating_sub(self.sent);
        self.stats.ended(first_token);
        Ok(first_token)
    }
}

pub struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
    body: Vec<u8>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let socket = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        socket.set_nodelay(true)?;
        Ok(Connection {
            socket,
            input: vec![0; 64 * 1024],
            body: Vec::new(),
        })
    }

    /// Sends a request and reads its response to the end. After each read, `each` gets the unprocessed part of the body
    /// and the time.
    pub async fn exchange(
        &mut self,
        request: &[u8],
        mut each: impl FnMut(&mut Vec<u8>, u64),
    ) -> anyhow::Result<()> {
        self.socket.write_all(request).await?;
        let mut head = Some(Vec::new());
        let (mut dechunk, mut over) = (Dechunk::default(), false);
        self.body.clear();
        while !over {
            let length = self.socket.read(&mut self.input).await?;
            let arrived = now();
            ensure!(length > 0, "the stream ended early");
            let input = &self.input[..length];
            match &mut head {
                None => over = dechunk.feed(input, &mut self.body)?,
                Some(so_far) => {
                    so_far.extend_from_slice(input);
                    let Some(end) = end_of_head(so_far)? else {
                        continue;
                    };
                    over = dechunk.feed(&so_far[end..], &mut self.body)?;
                    head = None;
                }
            }
            each(&mut self.body, arrived);
        }
        Ok(())
    }

    /// Makes a request without a body, returns its response, and closes the connection.
    pub async fn get(mut self, path: &str) -> anyhow::Result<String> {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        self.socket.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        self.socket.read_to_end(&mut response).await?;
        end_of_head(&response)?.context("no answer")?;
        Ok(String::from_utf8_lossy(&response).into_owned())
    }
}

/// Returns the start of the body once the head is complete. Any status other than success is an error.
fn end_of_head(head: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(end) = memmem::find(head, b"\r\n\r\n") else {
        return Ok(None);
    };
    if !head.starts_with(b"HTTP/1.1 200") {
        let response = String::from_utf8_lossy(head);
        let (first, body) = (response.lines().next(), response.lines().last());
        bail!("{} {}", first.unwrap_or_default(), body.unwrap_or_default());
    }
    Ok(Some(end + 4))
}

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
