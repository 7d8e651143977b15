//! Paced streams while `/metrics` is scraped.

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

/// Scrape interval, a hundredth of Prometheus' usual one.
const PERIOD: Duration = Duration::from_millis(100);
/// Scrape timeout.
const PATIENCE: Duration = Duration::from_secs(10);

/// Durations of the scrapes in nanoseconds, and the size of the last one in bytes.
#[derive(Default)]
struct Scrapes {
    took: Vec<u64>,
    bytes: usize,
}

pub async fn scraped(run: &Run<'_>, scraped: bool) -> anyhow::Result<RunResult> {
    let admin = run.running.admin().context("no /metrics")?;
    let scraper = scraped.then(|| Scraper::start(admin));
    let mut result = paced(run, QUIET).await?;
    let scrapes = scraper.map_or(Ok(Scrapes::default()), Scraper::end)?;
    result.scrape = percentiles(scrapes.took);
    result.scrape_bytes = scrapes.bytes;
    Ok(result)
}

/// Scrapes `/metrics` on a thread with a lower priority than the agents on its core. Agents that waited for a read of
/// megabytes would count that as latency of the proxy.
struct Scraper {
    over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Scrapes>>,
}

impl Scraper {
    fn start(admin: SocketAddr) -> Scraper {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = thread::spawn(move || {
            // If the system refuses, the agents wait for the scrapes.
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

/// Scrapes once. Returns the size of the answer in bytes.
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
                    "no answer from /metrics"
                );
                bytes += read;
            }
        }
    }
}
