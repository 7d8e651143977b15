//! A running proxy, an upstream that does what a test tells it, and agents on bare sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge::config::{Config, Limits, Listener, ServerTls};
use tokengauge::observer::{CallObserver, CallPolicy, CallStart, ObservedCall, Observer};
use tokengauge::proxy::{Bound, Drained, Forwarder, Shutdown, serve};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Nothing here takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A proxy in front of one upstream.
pub struct Proxy {
    pub address: SocketAddr,
    pub shutdown: Shutdown,
    serving: JoinHandle<Drained>,
}

/// What a test may want otherwise.
pub struct Settings {
    pub limits: Limits,
    pub tls: Option<ServerTls>,
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            limits: Limits::default(),
            tls: None,
            drain_timeout: PATIENCE,
        }
    }
}

impl Proxy {
    pub fn start(upstream: SocketAddr, settings: Settings) -> Proxy {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let config =
            Config::sidecar(&format!("http://{upstream}"), any, any).expect("a configuration");
        let bound = Bound::bind(&Listener {
            address: any,
            tls: settings.tls,
        })
        .expect("bound");
        let address = bound.address();
        let forwarder =
            Arc::new(Forwarder::new(config.forwarding(), Arc::new(Blind)).expect("usable"));
        let shutdown = Shutdown::new();
        let handle = shutdown.clone();
        let serving = tokio::spawn(async move {
            serve(
                vec![bound],
                forwarder,
                &settings.limits,
                handle,
                settings.drain_timeout,
            )
            .await
        });
        Proxy {
            address,
            shutdown,
            serving,
        }
    }

    pub async fn agent(&self) -> Agent<TcpStream> {
        Agent::new(TcpStream::connect(self.address).await.expect("connected"))
    }

    /// Waits until serving is over.
    pub async fn drained(self) -> Drained {
        timeout(PATIENCE, self.serving)
            .await
            .expect("serving ends")
            .expect("no panic")
    }

    /// Waits until so many connections are open.
    pub async fn has_connections(&self, count: usize) {
        eventually(&format!("{count} connections"), || {
            self.shutdown.connections() == count
        })
        .await;
    }

    /// Waits until so many requests are under way.
    pub async fn has_requests(&self, count: usize) {
        eventually(&format!("{count} requests"), || {
            self.shutdown.requests() == count
        })
        .await;
    }
}

pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The agent's end of an HTTP/1 connection.
pub struct Agent<I> {
    io: I,
    read: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Agent<I> {
    pub fn new(io: I) -> Agent<I> {
        Agent {
            io,
            read: Vec::new(),
        }
    }

    pub async fn send(&mut self, text: &str) {
        self.io.write_all(text.as_bytes()).await.expect("written");
        self.io.flush().await.expect("flushed");
    }

    /// The same where the other side may have closed already.
    pub async fn try_send(&mut self, text: &str) {
        let _ = self.io.write_all(text.as_bytes()).await;
        let _ = self.io.flush().await;
    }

    pub async fn get(&mut self, path: &str) {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: agent.example\r\n\r\n"
        ))
        .await;
    }

    /// Reads up to and with `mark`; gives everything since the last call.
    pub async fn until(&mut self, mark: &str) -> String {
        loop {
            if let Some(at) = find(&self.read, mark.as_bytes()) {
                let rest = self.read.split_off(at + mark.len());
                return text(std::mem::replace(&mut self.read, rest));
            }
            let count = self.receive().await;
            assert_ne!(
                count,
                0,
                "closed before {mark:?}, after {:?}",
                text(self.read.clone())
            );
        }
    }

    /// Reads until the other side closes; a reset is a close too.
    pub async fn rest(&mut self) -> String {
        text(self.rest_bytes().await)
    }

    /// The same where it need not be text.
    pub async fn rest_bytes(&mut self) -> Vec<u8> {
        while self.receive().await > 0 {}
        std::mem::take(&mut self.read)
    }

    /// Reads HTTP/2 frames up to one whose kind `wanted` knows; false where a head or the
    /// end comes first.
    pub async fn http2_frame(&mut self, wanted: impl Fn(u8) -> bool) -> bool {
        const HEADERS: u8 = 1;
        loop {
            while self.read.len() >= 9 {
                let length = usize::from(self.read[1]) << 8 | usize::from(self.read[2]);
                let kind = self.read[3];
                if wanted(kind) || kind == HEADERS {
                    return wanted(kind);
                }
                if self.read.len() < 9 + length {
                    break;
                }
                self.read.drain(..9 + length);
            }
            if self.receive().await == 0 {
                return false;
            }
        }
    }

    async fn receive(&mut self) -> usize {
        let read = timeout(PATIENCE, self.io.read_buf(&mut self.read)).await;
        read.expect("something comes").unwrap_or(0)
    }
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

/// An upstream on bare sockets. `/hello` answers at once, `/late` when it is let; `/stream` sends `first`, and
/// `last` when it is let; `/tunnel` switches protocols and echoes; `/head` answers with
/// the head it got.
pub struct Upstream {
    pub address: SocketAddr,
    finish: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl Upstream {
    pub async fn start() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let finish = watch::Sender::new(false);
        let signal = finish.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(answer(tcp, signal.clone()));
            }
        });
        Upstream {
            address,
            finish,
            accepting,
        }
    }

    /// Lets every stream end, those to come too.
    pub fn finish(&self) {
        self.finish.send_replace(true);
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(tcp: TcpStream, mut finish: watch::Receiver<bool>) {
    let mut peer = Agent::new(tcp);
    loop {
        let head = match peer.request_head().await {
            Some(head) => head,
            None => return,
        };
        match head.split(' ').nth(1).expect("a target") {
            "/hello" => {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
                    .await
            }
            "/late" => {
                let _ = finish.wait_for(|finish| *finish).await;
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
                    .await
            }
            "/head" => {
                let length = head.len();
                peer.send(&format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}"
                ))
                .await;
            }
            "/stream" => {
                peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
                    .await;
                let _ = finish.wait_for(|finish| *finish).await;
                peer.send("4\r\nlast\r\n0\r\n\r\n").await;
            }
            "/tunnel" => {
                peer.send("HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\r\n").await;
                let (mut reader, mut writer) = peer.io.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                return;
            }
            other => panic!("no answer to {other}"),
        }
    }
}

impl Agent<TcpStream> {
    async fn request_head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                let rest = self.read.split_off(at + 4);
                return Some(text(std::mem::replace(&mut self.read, rest)));
            }
            // An idle connection of the proxy's pool may wait as long as it likes.
            let count = self.io.read_buf(&mut self.read).await.unwrap_or(0);
            if count == 0 {
                return None;
            }
        }
    }
}

/// Sees nothing and says the least.
struct Blind;

impl Observer for Blind {
    fn begin(&self, _start: CallStart<'_>) -> Arc<dyn ObservedCall> {
        Arc::new(Blind)
    }
}

impl CallObserver for Blind {}

impl CallPolicy for Blind {}
