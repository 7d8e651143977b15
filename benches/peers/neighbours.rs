//! Agents that load a peer while other streams are measured. These agents and their backend are processes with idle
//! priority on the load's core. Figures therefore show their effect on the peer, not on the load client.

use crate::cores::Cores;
use crate::peer::NOISY_PATH;
use crate::process::{Processes, end_with_parent, with_idle_priority};
use crate::wire::StreamRequest;
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

/// Behaviour of the other agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Neighbours {
    None,
    SlowReaders,
    NonReaders,
    TinyChunks,
    CountedPrompts,
    LongPrompts,
}

/// Bytes that a slow reader reads ten times a second: 1 KB/s.
const SLOW_READ_BYTES: usize = 102;
const SMALL_RECEIVE_BUFFER: u32 = 4096;
const FLOOD_EVENTS_PER_WRITE: u32 = 48;
/// Events of a flood or of a stream of tiny chunks, more than a run needs.
const ENDLESS_EVENTS: u32 = 1_000_000_000;
/// Microseconds between events of 330 bytes, with each byte in its own chunk: 5,000 chunks a second.
const TINY_CHUNKS_INTERVAL_US: u64 = 66_000;
const COUNTED_PROMPT_BYTES: usize = 1 << 20;
/// Bytes of a prompt that is longer than the meter reads.
const LONG_PROMPT_BYTES: usize = 100 << 20;
/// Bytes per second of each prompt; four prompts fill a network of 1 Gbit/s.
const UPLOAD_BYTES_PER_SECOND: usize = 30 << 20;
/// Bytes of a prompt in each write.
const BLOCK: usize = 64 * 1024;
const WORDS: &str = " Every stream has its own reader.";

impl Neighbours {
    pub const ALL: [Neighbours; 6] = [
        Neighbours::None,
        Neighbours::SlowReaders,
        Neighbours::NonReaders,
        Neighbours::TinyChunks,
        Neighbours::CountedPrompts,
        Neighbours::LongPrompts,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Neighbours::None => "none",
            Neighbours::SlowReaders => "20 agents that read 1 KB/s of a flood",
            Neighbours::NonReaders => "20 agents that never read a flood",
            Neighbours::TinyChunks => "4 streams of 5,000 one-byte chunks a second",
            Neighbours::CountedPrompts => "4 prompts of 1 MB at once, to be counted, over and over",
            Neighbours::LongPrompts => "4 prompts of 100 MB at once, over and over",
        }
    }

    fn number(self) -> usize {
        match self {
            Neighbours::None => 0,
            Neighbours::SlowReaders | Neighbours::NonReaders => 20,
            Neighbours::TinyChunks | Neighbours::CountedPrompts | Neighbours::LongPrompts => 4,
        }
    }

    /// Starts the agents in a separate process that ends on drop.
    pub fn start(self, address: SocketAddr, cores: Cores) -> anyhow::Result<Processes> {
        let mut command = Command::new(std::env::current_exe()?);
        let name = self.to_possible_value();
        let name = name.as_ref().map_or("", PossibleValue::get_name);
        command.args(["--neighbours", name, "--to", &address.to_string()]);
        let mut command = with_idle_priority(&command);
        command.stdin(Stdio::piped());
        Processes::start(command, cores.load, cores.load)
    }

    /// The agents' process, which runs until its parent ends.
    pub fn run(self, address: SocketAddr) -> anyhow::Result<()> {
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
        let request: Rc<[u8]> = self
            .stream_request()
            .request_to(NOISY_PATH, "", &self.prompt())
            .into();
        for number in 0..self.number() {
            let request = Rc::clone(&request);
            under_way.spawn_local(async move {
                // Agents start at different times.
                sleep(Duration::from_millis(7) * number as u32).await;
                self.send_requests(address, &request).await
            });
        }
        under_way
    }

    fn stream_request(self) -> StreamRequest {
        let endless = StreamRequest {
            events: ENDLESS_EVENTS,
            per_write: 1,
            ..StreamRequest::default()
        };
        match self {
            Neighbours::None => StreamRequest::default(),
            Neighbours::SlowReaders | Neighbours::NonReaders => StreamRequest {
                per_write: FLOOD_EVENTS_PER_WRITE,
                ..endless
            },
            Neighbours::TinyChunks => StreamRequest {
                interval_us: TINY_CHUNKS_INTERVAL_US,
                per_chunk: 1,
                ..endless
            },
            Neighbours::CountedPrompts | Neighbours::LongPrompts => StreamRequest {
                events: 1,
                without_usage: true,
                ..endless
            },
        }
    }

    fn prompt(self) -> String {
        let size = match self {
            Neighbours::CountedPrompts => COUNTED_PROMPT_BYTES,
            Neighbours::LongPrompts => LONG_PROMPT_BYTES,
            _ => 0,
        };
        WORDS.repeat(size / WORDS.len())
    }

    async fn send_requests(self, address: SocketAddr, request: &[u8]) -> anyhow::Result<()> {
        match self {
            Neighbours::None => Ok(()),
            Neighbours::SlowReaders | Neighbours::NonReaders => {
                self.read_slowly(address, request).await
            }
            Neighbours::TinyChunks => {
                let mut stream = connect(address, None).await?;
                stream.write_all(request).await?;
                let mut piece = vec![0; BLOCK];
                while stream.read(&mut piece).await? > 0 {}
                Ok(())
            }
            Neighbours::CountedPrompts | Neighbours::LongPrompts => loop {
                upload(connect(address, None).await?, request).await?;
            },
        }
    }

    async fn read_slowly(self, address: SocketAddr, request: &[u8]) -> anyhow::Result<()> {
        let mut stream = connect(address, Some(SMALL_RECEIVE_BUFFER)).await?;
        stream.write_all(request).await?;
        let mut reads = interval(Duration::from_millis(100));
        loop {
            reads.tick().await;
            if self == Neighbours::SlowReaders {
                stream.read_exact(&mut [0; SLOW_READ_BYTES]).await?;
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

/// Sends a request at the rate of a network and reads its short answer to the end.
async fn upload(mut stream: TcpStream, request: &[u8]) -> anyhow::Result<()> {
    let (begun, mut sent) = (Instant::now(), 0);
    for block in request.chunks(BLOCK) {
        sleep_until(begun + Duration::from_secs_f64(sent as f64 / UPLOAD_BYTES_PER_SECOND as f64))
            .await;
        stream.write_all(block).await?;
        sent += block.len();
    }
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n0\r\n\r\n") {
        let read = stream.read_buf(&mut response).await?;
        ensure!(read > 0, "the answer to a prompt ended early");
    }
    ensure!(
        response.starts_with(b"HTTP/1.1 200"),
        "a prompt was refused: {}",
        String::from_utf8_lossy(&response)
            .lines()
            .next()
            .unwrap_or_default()
    );
    Ok(())
}
