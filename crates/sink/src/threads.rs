//! The threads of the sinks: each has one, with a runtime of its own, so that no store can hold up traffic or another
//! store.

use crate::clickhouse::ClickHouse;
use crate::delivery::Delivery;
use crate::s3::S3;
use crate::settings::{Location, SinkSettings};
use crate::sink::{Row, SendError, Sink};
use crate::source::{LedgerSource, MemoryQueue, MemorySource, Source};
use crate::status::{SharedStatus, SinkMetrics, SinkStatus};
use crate::table::Origin;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokengauge_core::background::{self, BackgroundWork};
use tokengauge_meter::Subscriber;
use tokengauge_store::ledger::{Ledger, Reader};
use tokio::sync::watch;
use tokio::time::Instant;

/// A store of any kind.
#[derive(Debug)]
pub enum AnySink {
    /// ClickHouse.
    ClickHouse(Box<ClickHouse>),
    /// S3.
    S3(S3),
}

impl AnySink {
    /// A client for a store.
    ///
    /// # Errors
    /// Where its settings cannot be used; the text says why.
    pub fn new(location: &Location, origin: &Origin) -> io::Result<AnySink> {
        Ok(match location {
            Location::ClickHouse(settings) => {
                let client = ClickHouse::new(settings.clone(), origin);
                AnySink::ClickHouse(Box::new(client.map_err(io::Error::other)?))
            }
            Location::S3(settings) => {
                AnySink::S3(S3::new(settings, origin).map_err(io::Error::other)?)
            }
        })
    }
}

impl Sink for AnySink {
    async fn send(&self, rows: &[Row]) -> Result<(), SendError> {
        match self {
            AnySink::ClickHouse(sink) => sink.send(rows).await,
            AnySink::S3(sink) => sink.send(rows).await,
        }
    }

    async fn missing(&self, rows: Vec<Row>) -> Result<Vec<Row>, SendError> {
        match self {
            AnySink::ClickHouse(sink) => sink.missing(rows).await,
            AnySink::S3(sink) => sink.missing(rows).await,
        }
    }
}

/// The sinks of a running proxy.
#[derive(Debug, Default)]
pub struct Sinks {
    statuses: Vec<SharedStatus>,
    queues: Vec<Arc<MemoryQueue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    end: watch::Sender<Option<Instant>>,
}

impl Sinks {
    /// Starts a thread for each sink. They read the ledger where there is one, else queues, which are to be
    /// [subscribed](Sinks::subscribers).
    ///
    /// # Errors
    /// Where the settings of a sink cannot be used, or no thread can be started; the text names the sink.
    pub fn start(
        settings: &[SinkSettings],
        ledger: Option<(Arc<Ledger>, Arc<Reader>)>,
        origin: &Origin,
        metrics: impl Fn(&str) -> SinkMetrics,
        wall: fn() -> SystemTime,
    ) -> io::Result<Sinks> {
        let (end, ends) = watch::channel(None);
        let mut sinks = Sinks {
            statuses: Vec::new(),
            queues: Vec::new(),
            threads: Mutex::default(),
            end,
        };
        for one in settings {
            let named = |error: io::Error| io::Error::other(format!("sink {}: {error}", one.name));
            let source = sinks.source(one, ledger.as_ref(), wall);
            let status = SinkStatus {
                name: one.name.clone(),
                kind: one.kind().as_str().to_owned(),
                address: one.address(),
                durable: ledger.is_some(),
                ..SinkStatus::default()
            };
            let status = Arc::new(Mutex::new(status));
            let delivery = Delivery {
                name: one.name.clone(),
                sink: AnySink::new(&one.location, origin).map_err(named)?,
                source,
                batch_rows: one.batch_rows,
                batch_wait: one.batch_wait,
                metrics: metrics(&one.name),
                status: Arc::clone(&status),
                end: ends.clone(),
                wall,
                progress: Default::default(),
            };
            sinks.statuses.push(status);
            // A ledger keeps what a late sink has not read; a queue of bounded length loses it.
            let work = match ledger {
                Some(_) => BackgroundWork::WheneverIdle,
                None => BackgroundWork::Steady,
            };
            let thread = spawn(delivery, work).map_err(named)?;
            sinks.threads.lock().push(thread);
        }
        Ok(sinks)
    }

    fn source(
        &mut self,
        settings: &SinkSettings,
        ledger: Option<&(Arc<Ledger>, Arc<Reader>)>,
        wall: fn() -> SystemTime,
    ) -> Box<dyn Source> {
        match ledger {
            Some((ledger, reader)) => Box::new(LedgerSource {
                sink: settings.name.clone(),
                ledger: Arc::clone(ledger),
                reader: Arc::clone(reader),
                wall,
            }),
            None => {
                let queue = MemoryQueue::new(settings.queue);
                self.queues.push(Arc::clone(&queue));
                Box::new(MemorySource {
                    queue,
                    wall,
                    pending: 0,
                })
            }
        }
    }

    /// What finished calls must be given to: nothing where a ledger has them.
    pub fn subscribers(&self) -> Vec<Arc<dyn Subscriber>> {
        let queues = self.queues.iter();
        queues.map(|queue| Arc::clone(queue) as _).collect()
    }

    /// How they stand.
    pub fn statuses(&self) -> Vec<SinkStatus> {
        let statuses = self.statuses.iter();
        statuses.map(|status| status.lock().clone()).collect()
    }

    /// Lets the sinks send what waits, and end: within `within`, or what is under way is dropped. Whether all ended.
    /// Blocks.
    pub fn finish(&self, within: Duration) -> bool {
        /// How often it is looked whether they have ended.
        const LOOK: Duration = Duration::from_millis(10);
        /// For what they do once their time is over.
        const MARGIN: Duration = Duration::from_secs(1);
        let deadline = Instant::now() + within;
        self.end.send_replace(Some(deadline));
        let threads = std::mem::take(&mut *self.threads.lock());
        let ended = || threads.iter().all(JoinHandle::is_finished);
        while !ended() && Instant::now() < deadline + MARGIN {
            std::thread::sleep(LOOK);
        }
        ended()
    }
}

fn spawn(delivery: Delivery<AnySink>, work: BackgroundWork) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    background::spawn("sink", work, move || {
        runtime.block_on(delivery.run());
    })
}
