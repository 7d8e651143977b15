//! A script: the steps of one peer of a connection, as data.

use std::io::ErrorKind;
use std::time::Duration;
use tokengauge_test_support::TIMEOUT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A peer that reads nothing for this time gets no more bytes.
const STUCK: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Repeat(Vec<u8>, usize),
    /// Sends each byte in its own packet.
    Trickle(Vec<u8>),
    Wait(Duration),
    Receive(usize),
    ReceiveAll,
    /// Shuts down the writing side and continues to read.
    HalfClose,
    Close,
    Reset,
}

#[derive(Clone, Debug, Default)]
pub struct Script(pub Vec<Step>);

impl Script {
    pub fn send(self, bytes: impl AsRef<[u8]>) -> Script {
        self.then(Step::Send(bytes.as_ref().to_vec()))
    }

    pub fn repeat(self, bytes: impl AsRef<[u8]>, times: usize) -> Script {
        self.then(Step::Repeat(bytes.as_ref().to_vec(), times))
    }

    pub fn trickle(self, bytes: impl AsRef<[u8]>) -> Script {
        self.then(Step::Trickle(bytes.as_ref().to_vec()))
    }

    pub fn wait(self, millis: u64) -> Script {
        self.then(Step::Wait(Duration::from_millis(millis)))
    }

    pub fn receive(self, bytes: usize) -> Script {
        self.then(Step::Receive(bytes))
    }

    pub fn receive_all(self) -> Script {
        self.then(Step::ReceiveAll)
    }

    pub fn half_close(self) -> Script {
        self.then(Step::HalfClose)
    }

    pub fn close(self) -> Script {
        self.then(Step::Close)
    }

    pub fn reset(self) -> Script {
        self.then(Step::Reset)
    }

    fn then(mut self, step: Step) -> Script {
        self.0.push(step);
        self
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disconnect {
    Closed,
    Reset,
}

pub struct Peer {
    tcp: TcpStream,
    pub received: Vec<u8>,
    pub gone: Option<Disconnect>,
}

impl Peer {
    pub fn new(tcp: TcpStream) -> Peer {
        let _ = tcp.set_nodelay(true);
        Peer {
            tcp,
            received: Vec::new(),
            gone: None,
        }
    }

    /// Performs the steps. Returns `false` if the connection ended. A failed write is not an error, because the other
    /// side may close at any time.
    pub async fn play(&mut self, script: &Script) -> bool {
        for step in &script.0 {
            match step {
                Step::Send(bytes) => self.write(bytes).await,
                Step::Repeat(bytes, times) => self.repeat(bytes, *times).await,
                Step::Trickle(bytes) => {
                    for byte in bytes {
                        self.write(&[*byte]).await;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                Step::Wait(pause) => tokio::time::sleep(*pause).await,
                Step::Receive(bytes) => {
                    while self.received.len() < *bytes && self.receive().await {}
                }
                Step::ReceiveAll => self.receive_all().await,
                Step::HalfClose => drop(self.tcp.shutdown().await),
                Step::Close => return false,
                Step::Reset => {
                    self.reset();
                    return false;
                }
            }
        }
        true
    }

    async fn repeat(&mut self, bytes: &[u8], times: usize) {
        let at_once = (64 * 1024 / bytes.len().max(1)).clamp(1, times.max(1));
        let many = bytes.repeat(at_once);
        for _ in 0..times / at_once {
            self.write(&many).await;
        }
        self.write(&bytes.repeat(times % at_once)).await;
    }

    /// Writes and also reads, so that a peer that answers a flood is not blocked.
    async fn write(&mut self, mut bytes: &[u8]) {
        let mut piece = [0; 16 * 1024];
        while !bytes.is_empty() {
            let (mut reader, mut writer) = self.tcp.split();
            let moved = tokio::time::timeout(STUCK, async {
                tokio::select! {
                    biased;
                    written = writer.write(bytes) => written.map(|written| (written, 0)),
                    read = reader.read(&mut piece), if self.gone.is_none() => read.map(|read| (0, read)),
                }
            });
            let moved = moved.await;
            match moved.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
                Ok((0, 0)) => self.gone = Some(Disconnect::Closed),
                Ok((written, read)) => {
                    bytes = &bytes[written..];
                    self.received.extend_from_slice(&piece[..read]);
                }
                Err(error) => {
                    if error.kind() != ErrorKind::TimedOut {
                        self.read_what_came().await;
                    }
                    self.gone = Some(Disconnect::Reset);
                    return;
                }
            }
        }
    }

    /// Reads the bytes that the other side sent before the connection broke.
    async fn read_what_came(&mut self) {
        if self.gone.is_none() {
            let _ = tokio::time::timeout(STUCK, self.tcp.read_to_end(&mut self.received)).await;
        }
    }

    pub async fn receive_all(&mut self) {
        while self.receive().await {}
    }

    /// Reads once. Returns `false` if the connection has ended.
    pub async fn receive(&mut self) -> bool {
        if self.gone.is_some() {
            return false;
        }
        let mut piece = [0; 16 * 1024];
        let read = tokio::time::timeout(TIMEOUT, self.tcp.read(&mut piece)).await;
        match read.expect("something comes, or the end") {
            Ok(0) => self.gone = Some(Disconnect::Closed),
            Ok(read) => self.received.extend_from_slice(&piece[..read]),
            Err(_) => self.gone = Some(Disconnect::Reset),
        }
        self.gone.is_none()
    }

    pub async fn receive_without_timeout(&mut self) -> bool {
        let waits = self.gone.is_none();
        waits && self.tcp.readable().await.is_ok() && self.receive().await
    }

    fn reset(&self) {
        let linger = Some(Duration::ZERO);
        let _ = socket2::SockRef::from(&self.tcp).set_linger(linger);
    }
}
