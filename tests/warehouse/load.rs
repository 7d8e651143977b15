//! Writes finished calls at a rate into a ledger with a sink, without a proxy.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokengauge_core::cells::{Counter, Gauge};
use tokengauge_core::observer::{CallStart, End, Observer};
use tokengauge_meter::settings::Measure;
use tokengauge_meter::{Meter, Subscriber};
use tokengauge_sink::{
    ClickHouseSettings, Location, Origin, Secret, SinkMetrics, SinkQueues, SinkSettings, Sinks,
};
use tokengauge_store::ledger::{Ledger, LedgerMetrics, Limits, Settings};

pub struct Load {
    pub sinks: Sinks,
    meter: Arc<Meter>,
    metrics: LedgerMetrics,
}

impl Load {
    /// Stores calls in `ledger.sqlite` of the folder, which may exist, and sends them to the warehouses.
    pub fn start(folder: &Path, warehouses: Vec<Location>) -> Load {
        let settings: Vec<_> = warehouses.into_iter().map(sink).collect();
        let metrics = LedgerMetrics::new(
            (Counter::default(), Gauge::default()),
            |_| Counter::default(),
            Counter::default(),
            Gauge::default(),
            Gauge::default(),
        );
        let kept = Settings {
            path: folder.join("ledger.sqlite"),
            limits: Limits {
                age: Duration::from_secs(86_400),
                bytes: 4 << 30,
            },
            sinks: settings.iter().map(|sink| sink.name.clone()).collect(),
            clock: Instant::now,
            wall: SystemTime::now,
        };
        let queues = SinkQueues::new(&settings);
        let ledger = Ledger::start(kept, metrics.clone(), queues.subscribers()).expect("starts");
        let reader = ledger.reader(Instant::now, Duration::from_secs(60));
        let sinks = Sinks::start(
            &settings,
            &queues,
            Some((Arc::clone(&ledger), reader)),
            &Origin::default(),
            |_| sink_metrics(),
            SystemTime::now,
        );
        let subscribers: Vec<Arc<dyn Subscriber>> = vec![ledger];
        Load {
            sinks: sinks.expect("starts"),
            meter: Meter::new(Measure::default(), subscribers),
            metrics,
        }
    }

    /// Makes the calls of the second that begins at `start`. Returns the longest time that handing over a call took.
    pub fn second(&self, calls: usize, start: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        for number in 0..calls {
            let due = start + Duration::from_secs(1).mul_f64(number as f64 / calls as f64);
            if let Some(early) = due.checked_duration_since(Instant::now())
                && early > Duration::from_millis(2)
            {
                std::thread::sleep(early);
            }
            let now = Instant::now();
            self.call(now);
            longest = longest.max(now.elapsed());
        }
        longest
    }

    fn call(&self, now: Instant) {
        let call = self.meter.begin(CallStart {
            received: now,
            started_at: SystemTime::now(),
            method: &http::Method::POST,
            uri: &http::Uri::from_static("/v1/chat/completions"),
            headers: &http::HeaderMap::new(),
            peer: None,
            port: None,
            route: &"route".into(),
            upstream: &"upstream".into(),
            dialect: None,
            workload: None,
            inject_usage: false,
            variant: None,
        });
        call.ended(now, End::Complete);
    }

    pub fn written(&self) -> usize {
        assert!(self.meter.flush(Duration::from_secs(20)), "flushed");
        self.metrics.written.value() as usize
    }

    pub fn lost(&self) -> u64 {
        self.metrics.lost.values().map(Counter::value).sum()
    }
}

/// A ClickHouse table without a password.
pub fn clickhouse(url: &str) -> Location {
    Location::ClickHouse(ClickHouseSettings {
        url: url.parse().expect("a URL"),
        database: "default".to_owned(),
        table: "tokengauge_calls".to_owned(),
        user: None,
        password: Secret::Variable("CLICKHOUSE_PASSWORD"),
        tls: Default::default(),
        timeout: Duration::from_secs(30),
    })
}

fn sink(location: Location) -> SinkSettings {
    let name = match &location {
        Location::ClickHouse(_) => "clickhouse",
        Location::S3(_) => "s3",
    };
    SinkSettings {
        name: name.to_owned(),
        location,
        batch_rows: 5_000,
        batch_wait: Duration::from_millis(500),
        queue: 100_000,
    }
}

fn sink_metrics() -> SinkMetrics {
    SinkMetrics::new(
        Default::default(),
        (Counter::default(), Counter::default()),
        |_| Counter::default(),
        |_| Counter::default(),
    )
}

pub fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}
