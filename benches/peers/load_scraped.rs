//! Paced streams while `/metrics` is read.

use crate::client::Connection;
use crate::load_streams::{QUIET, paced};
use crate::results::{RunResult, percentiles};
use crate::run::Run;
use crate::wire::now;
use anyhow::Context;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Between two reads: a hundred times as often as Prometheus does.
const PERIOD: Duration = Duration::from_millis(100);

/// Nanoseconds that the reads took, and the bytes of the last.
#[derive(Default)]
struct Scrapes {
    took: Vec<u64>,
    bytes: usize,
}

/// 50 paced streams, with reads of `/metrics` at the same time or without.
pub async fn scraped(run: &Run<'_>, scraped: bool) -> anyhow::Result<RunResult> {
    let admin = run.running.admin().context("no /metrics")?;
    let (mut reading, scrapes) = (JoinSet::new(), Rc::new(RefCell::default()));
    if scraped {
        reading.spawn_local(scrape(admin, Rc::clone(&scrapes)));
    }
    let mut result = paced(run, QUIET).await?;
    if let Some(ended) = reading.try_join_next() {
        ended??;
    }
    let Scrapes { took, bytes } = scrapes.take();
    result.scrape = percentiles(took);
    result.scrape_bytes = bytes;
    Ok(result)
}

async fn scrape(admin: SocketAddr, scrapes: Rc<RefCell<Scrapes>>) -> anyhow::Result<()> {
    let mut period = interval(PERIOD);
    period.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        let start = now();
        let text = Connection::open(admin).await?.get("/metrics").await?;
        let mut scrapes = scrapes.borrow_mut();
        scrapes.took.push(now() - start);
        scrapes.bytes = text.len();
    }
}
