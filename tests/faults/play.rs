//! What one end of a connection does, step by step, as data.

use std::io::ErrorKind;
use std::time::Duration;
use tokengauge_test_support::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Whoever takes nothing for so long is not written to any more.
const STUCK: Duration = Duration::from_secs(5);

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    /// The same so often.
    Repeat(Vec<u8>, usize),
    /// Byte by byte, each in a packet of its own.
    Trickle(Vec<u8>),
    Wait(Duration),
    /// Until so many bytes have come.
    Hear(usize),
    /// Until the other side ends.
    Listen,
    /// No more is written; reading goes on.
    HalfClose,
    Close,
    Reset,
}

/// Steps in a row.
#[derive(Clone, Debug, Default)]
pub struct Play(pub Vec<Step>);

impl Play {
    pub fn send(self, bytes: impl AsRef<[u8]>) -> Play {
        self.then(Step::Send(bytes.as_ref().to_vec()))
    }

    pub fn repeat(self, bytes: impl AsRef<[u8]>, times: usize) -> Play {
        self.then(Step::Repeat(bytes.as_ref().to_vec(), times))
    }

    pub fn trickle(self, bytes: impl AsRef<[u8]>) -> Play {
        self.then(Step::Trickle(bytes.as_ref().to_vec()))
    }

    pub fn wait(self, millis: u64) -> Play {
        self.then(Step::Wait(Duration::from_millis(millis)))
    }

    pub fn hear(self, bytes: usize) -> Play {
        self.then(Step::Hear(bytes))
    }

    pub fn listen(self) -> Play {
        self.then(Step::Listen)
    }

    pub fn half_close(self) -> Play {
        self.then(Step::HalfClose)
    }

    pub fn close(self) -> Play {
        self.then(Step::Close)
    }

    pub fn reset(self) -> Play {
        self.then(Step::Reset)
    }

    fn then(mut self, step: Step) -> Play {
        self.0.push(step);
        self
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    Closed,
    Reset,
}

/// One end of a connection, and all that came over it.
pub struct End {
    tcp: TcpStream,
    pub heard: Vec<u8>,
    pub gone: Option<Gone>,
}

impl End {
    pub fn new(tcp: TcpStream) -> End {
        let _ = tcp.set_nodelay(true);
        End {
            tcp,
            heard: Vec::new(),
            gone: None,
        }
    }

    /// Does as the play says. `false` where that ended the connection. A write that
    /// fails is no failure here: the other side may leave when it likes.
    pub async fn play(&mut self, play: &Play) -> bool {
        for step in &play.0 {
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
                Step::Hear(bytes) => while self.heard.len() < *bytes && self.hear().await {},
                Step::Listen => self.listen().await,
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

    /// Writes, and reads what comes meanwhile: whoever answers a flood is not held up.
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
                Ok((0, 0)) => self.gone = Some(Gone::Closed),
                Ok((written, read)) => {
                    bytes = &bytes[written..];
                    self.heard.extend_from_slice(&piece[..read]);
                }
                Err(error) => {
                    if error.kind() != ErrorKind::TimedOut {
                        self.read_what_came().await;
                    }
                    self.gone = Some(Gone::Reset);
                    return;
                }
            }
        }
    }

    /// A connection that takes no more may still hold what the other side said last.
    async fn read_what_came(&mut self) {
        if self.gone.is_none() {
            let _ = tokio::time::timeout(STUCK, self.tcp.read_to_end(&mut self.heard)).await;
        }
    }

    /// Reads until the other side ends.
    pub async fn listen(&mut self) {
        while self.hear().await {}
    }

    /// Reads something; `false` where there is nothing more.
    pub async fn hear(&mut self) -> bool {
        if self.gone.is_some() {
            return false;
        }
        let mut piece = [0; 16 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.tcp.read(&mut piece)).await;
        match read.expect("something comes, or the end") {
            Ok(0) => self.gone = Some(Gone::Closed),
            Ok(read) => self.heard.extend_from_slice(&piece[..read]),
            Err(_) => self.gone = Some(Gone::Reset),
        }
        self.gone.is_none()
    }

    /// The same without a limit, for a connection that nobody needs now.
    pub async fn hear_for_ever(&mut self) -> bool {
        let waits = self.gone.is_none();
        waits && self.tcp.readable().await.is_ok() && self.hear().await
    }

    fn reset(&self) {
        let linger = Some(Duration::ZERO);
        let _ = socket2::SockRef::from(&self.tcp).set_linger(linger);
    }
}
