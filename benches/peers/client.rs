//! The load: streams over keep-alive connections, and what their events tell.

use crate::wire::{Ask, Dechunk, now, take_instants};
use anyhow::{Context, ensure};
use memchr::memmem;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What all streams of one run saw.
#[derive(Debug, Default)]
pub struct Board {
    /// Whether latencies are noted just now.
    pub noting: Cell<bool>,
    /// Nanoseconds from the sending of an event to its arrival, while they are noted.
    pub latencies: RefCell<Vec<u64>>,
    /// Events that arrived.
    pub events: Cell<u64>,
    /// Streams whose first event has come and whose end has not.
    pub open: Cell<usize>,
}

/// A keep-alive connection to a peer.
pub struct Connection {
    socket: TcpStream,
    input: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let socket = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        socket.set_nodelay(true)?;
        let input = vec![0; 64 * 1024];
        Ok(Connection { socket, input })
    }

    /// Makes one request and reads its stream to the end. Gives the nanoseconds until
    /// its first event.
    pub async fn stream(&mut self, ask: Ask, board: &Board) -> anyhow::Result<u64> {
        let sent = now();
        self.socket.write_all(&ask.request()).await?;
        let mut reading = Reading::new(board);
        while !reading.over {
            let length = self.socket.read(&mut self.input).await?;
            ensure!(
                length > 0,
                "the stream broke off after {} events",
                reading.seen
            );
            reading.take(&self.input[..length])?;
        }
        ensure!(
            reading.seen == ask.events,
            "{} events came of {}",
            reading.seen,
            ask.events
        );
        Ok(reading.first.context("a stream without events")? - sent)
    }

    /// Makes a request without a body and gives the whole answer; it closes the connection.
    pub async fn get(mut self, path: &str) -> anyhow::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n");
        self.socket.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        self.socket.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// A response while it is read.
struct Reading<'a> {
    board: &'a Board,
    /// The head as far as it came, until it is whole.
    head: Option<Vec<u8>>,
    dechunk: Dechunk,
    body: Vec<u8>,
    first: Option<u64>,
    seen: u32,
    over: bool,
}

impl<'a> Reading<'a> {
    fn new(board: &'a Board) -> Reading<'a> {
        Reading {
            board,
            head: Some(Vec::new()),
            dechunk: Dechunk::default(),
            body: Vec::new(),
            first: None,
            seen: 0,
            over: false,
        }
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<()> {
        let arrived = now();
        let Some(mut head) = self.head.take() else {
            self.take_body(input, arrived);
            return Ok(());
        };
        head.extend_from_slice(input);
        let Some(end) = memmem::find(&head, b"\r\n\r\n") else {
            self.head = Some(head);
            return Ok(());
        };
        ensure!(
            head.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&head)
        );
        self.take_body(&head[end + 4..], arrived);
        Ok(())
    }

    fn take_body(&mut self, input: &[u8], arrived: u64) {
        self.over = self.dechunk.feed(input, &mut self.body);
        let before = self.seen;
        let mut latencies = self.board.latencies.borrow_mut();
        take_instants(&mut self.body, |instant| {
            self.seen += 1;
            if self.board.noting.get() {
                latencies.push(arrived.saturating_sub(instant));
            }
        });
        self.board
            .events
            .set(self.board.events.get() + u64::from(self.seen - before));
        if self.first.is_none() && self.seen > 0 {
            self.first = Some(arrived);
            self.board.open.set(self.board.open.get() + 1);
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.first.is_some() {
            self.board.open.set(self.board.open.get() - 1);
        }
    }
}
