//! Agents that ask too much, beside the streams that are looked at: who they are, and what
//! they do. They and their backend are processes that run when no other wants the load's
//! core: what is shown is what they cost a peer, not what they cost those who look.

use crate::peer::GREEDY;
use crate::process::{Cores, Processes, behind_all, end_with_parent};
use crate::wire::Ask;
use anyhow::ensure;
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::future::pending;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, interval, sleep, sleep_until};

/// Who is there beside the streams that are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trouble {
    Nobody,
    SlowReaders,
    NonReaders,
    TinyChunks,
    CountedPrompts,
    LongPrompts,
}

/// Bytes that a slow reader takes ten times a second: 1 KB/s.
const SIP: usize = 102;
/// What a slow reader's kernel holds for it.
const SMALL_BUFFER: u32 = 4096;
/// Events of one write of a flood.
const FLOOD: u32 = 48;
/// Of a flood, and of a stream of tiny chunks: more than come while anybody looks.
const ENDLESS: u32 = 1_000_000_000;
/// Between two events that come byte by byte, which are 330 bytes: 5,000 chunks a second.
const TINY_US: u64 = 66_000;
/// Bytes of a prompt whose tokens are counted.
const COUNTED: usize = 1 << 20;
/// Of a prompt that is longer than is read for counting.
const LONG: usize = 100 << 20;
/// Bytes a second of each prompt: four are a network of 1 Gbit/s.
const UPLOAD: usize = 30 << 20;
/// Bytes of a prompt that are written at once.
const BLOCK: usize = 64 * 1024;
const WORDS: &str = " Nobody waits for what another asks.";

impl Trouble {
    pub const ALL: [Trouble; 6] = [
        Trouble::Nobody,
        Trouble::SlowReaders,
        Trouble::NonReaders,
        Trouble::TinyChunks,
        Trouble::CountedPrompts,
        Trouble::LongPrompts,
    ];

    /// As the tables say it.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Nobody => "nobody",
            Trouble::SlowReaders => "20 agents that read 1 KB/s of a flood",
            Trouble::NonReaders => "20 agents that never read a flood",
            Trouble::TinyChunks => "4 streams of 5,000 one-byte chunks a second",
            Trouble::CountedPrompts => "4 prompts of 1 MB at once, to be counted, over and over",
            Trouble::LongPrompts => "4 prompts of 100 MB at once, over and over",
        }
    }

    fn number(self) -> usize {
        match self {
            Trouble::Nobody => 0,
            Trouble::SlowReaders | Trouble::NonReaders => 20,
            Trouble::TinyChunks | Trouble::CountedPrompts | Trouble::LongPrompts => 4,
        }
    }

    /// Begins it in a process of its own; it goes on until that is dropped.
    pub fn begin(self, address: SocketAddr, cores: Cores) -> anyhow::Result<Processes> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = self.to_possible_value();
        let name = name.as_ref().map_or("", PossibleValue::get_name);
        command.args(["--trouble", name, "--to", &address.to_string()]);
        let mut command = behind_all(&command);
        command.stdin(Stdio::piped());
        Processes::start(command, cores.load, cores.load)
    }

    /// Is that process, until its parent ends.
    pub fn be(self, address: SocketAddr) -> anyhow::Result<()> {
        end_with_parent();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        LocalSet::new().block_on(&runtime, async {
            let mut under_way = self.spawn(address);
            match under_way.join_next().await {
                Some(ended) => ended?,
                None => pending().await,
            }
        })
    }

    fn spawn(self, address: SocketAddr) -> JoinSet<anyhow::Result<()>> {
        let mut under_way = JoinSet::new();
        let request = self.ask().request_to(GREEDY, "", &self.prompt());
        let request: Rc<[u8]> = request.into();
        for number in 0..self.number() {
            let request = Rc::clone(&request);
            under_way.spawn_local(async move {
                // Not in step: agents are not.
                sleep(Duration::from_millis(7) * number as u32).await;
                self.go_on(address, &request).await
            });
        }
        under_way
    }

    /// How the backend shall answer each of its requests.
    fn ask(self) -> Ask {
        let endless = Ask {
            events: ENDLESS,
            per_write: 1,
            ..Ask::default()
        };
        match self {
            Trouble::Nobody => Ask::default(),
            Trouble::SlowReaders | Trouble::NonReaders => Ask {
                per_write: FLOOD,
                ..endless
            },
            Trouble::TinyChunks => Ask {
                interval_us: TINY_US,
                per_chunk: 1,
                ..endless
            },
            Trouble::CountedPrompts | Trouble::LongPrompts => Ask {
                events: 1,
                untold: true,
                ..endless
            },
        }
    }

    /// What its prompts go on with.
    fn prompt(self) -> String {
        let size = match self {
            Trouble::CountedPrompts => COUNTED,
            Trouble::LongPrompts => LONG,
            _ => 0,
        };
        WORDS.repeat(size / WORDS.len())
    }

    async fn go_on(self, address: SocketAddr, request: &[u8]) -> anyhow::Result<()> {
        match self {
            Trouble::Nobody => Ok(()),
            Trouble::SlowReaders | Trouble::NonReaders => self.hardly_read(address, request).await,
            Trouble::TinyChunks => {
                let mut stream = connect(address, None).await?;
                stream.write_all(request).await?;
                let mut piece = vec![0; BLOCK];
                while stream.read(&mut piece).await? > 0 {}
                Ok(())
            }
            Trouble::CountedPrompts | Trouble::LongPrompts => loop {
                upload(connect(address, None).await?, request).await?;
            },
        }
    }

    async fn hardly_read(self, address: SocketAddr, request: &[u8]) -> anyhow::Result<()> {
        let mut stream = connect(address, Some(SMALL_BUFFER)).await?;
        stream.write_all(request).await?;
        let mut sips = interval(Duration::from_millis(100));
        loop {
            sips.tick().await;
            if self == Trouble::SlowReaders {
                stream.read_exact(&mut [0; SIP]).await?;
            }
        }
    }
}

async fn connect(address: SocketAddr, receive_buffer: Option<u32>) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(size) = receive_buffer {
        socket.set_recv_buffer_size(size)?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Sends a request at the pace of a network and reads its short answer to the end.
async fn upload(mut stream: TcpStream, request: &[u8]) -> anyhow::Result<()> {
    let (begun, mut sent) = (Instant::now(), 0);
    for block in request.chunks(BLOCK) {
        sleep_until(begun + Duration::from_secs_f64(sent as f64 / UPLOAD as f64)).await;
        stream.write_all(block).await?;
        sent += block.len();
    }
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read_buf(&mut answer).await?;
        ensure!(read > 0, "the answer to a prompt broke off");
    }
    ensure!(
        answer.starts_with(b"HTTP/1.1 200"),
        "a prompt was refused: {}",
        String::from_utf8_lossy(&answer)
            .lines()
            .next()
            .unwrap_or_default()
    );
    Ok(())
}
