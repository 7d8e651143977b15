//! Paced streams while `/metrics` is read.

use crate::load_streams::{QUIET, paced};
use crate::results::{RunResult, percentiles};
use crate::run::Run;
use crate::wire::now;
use anyhow::{Context, anyhow, ensure};
use rustix::process::setpriority_process;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two reads: a hundred times as often as Prometheus does.
const PERIOD: Duration = Duration::from_millis(100);
/// After which a read is given up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nanoseconds that the reads took, and the bytes of the last.
#[derive(Default)]
struct Scrapes {
    took: Vec<u64>,
    bytes: usize,
}

/// 50 paced streams, with reads of `/metrics` at the same time or without.
pub async fn scraped(run: &Run<'_>, scraped: bool) -> anyhow::Result<RunResult> {
    let admin = run.running.admin().context("no /metrics")?;
    let scraper = scraped.then(|| Scraper::start(admin));
    let mut result = paced(run, QUIET).await?;
    let scrapes = scraper.map_or(Ok(Scrapes::default()), Scraper::end)?;
    result.scrape = percentiles(scrapes.took);
    result.scrape_bytes = scrapes.bytes;
    Ok(result)
}

/// Reads `/metrics` on a thread of its own, behind the agents' in the queue for their core: agents that waited until
/// megabytes are read would note that as a latency of the proxy.
struct Scraper {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Scrapes>>,
}

impl Scraper {
    fn start(admin: SocketAddr) -> Scraper {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            // Where this is not allowed, the agents wait for it.
            let _ = setpriority_process(None, 19);
            let (mut scrapes, mut buffer) = (Scrapes::default(), vec![0; 64 << 10]);
            while !ended.load(Ordering::Relaxed) {
                let start = now();
                scrapes.bytes = scrape(admin, &mut buffer)?;
                let took = now() - start;
                scrapes.took.push(took);
                thread::sleep(PERIOD.saturating_sub(Duration::from_nanos(took)));
            }
            Ok(scrapes)
        });
        Scraper { over, thread }
    }

    fn end(self) -> anyhow::Result<Scrapes> {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the thread that reads /metrics panicked"))?
    }
}

/// Reads it once. Gives the bytes of the answer.
fn scrape(admin: SocketAddr, buffer: &mut [u8]) -> anyhow::Result<usize> {
    const SUCCESS: &[u8] = b"HTTP/1.1 200";
    let mut socket = TcpStream::connect(admin)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut bytes = 0;
    loop {
        match socket.read(buffer)? {
            0 => return Ok(bytes),
            read => {
                ensure!(
                    bytes > 0 || buffer[..read].starts_with(SUCCESS),
                    "no answer of /metrics"
                );
                bytes += read;
            }
        }
    }
}
