//! Finished calls at a constant rate into a ledger and real warehouses, which are unreachable for a while: number and
//! age of waiting calls, and CPU time.
//!
//! ```console
//! $ cargo bench --bench sinks                                   # only the ledger, to compare with
//! $ cargo bench --bench sinks -- --clickhouse http://127.0.0.1:8123 --seconds 600 --away 300
//! $ cargo bench --bench sinks -- --s3 http://127.0.0.1:8333 --bucket llm --prefix load
//! ```
//!
//! The table and the bucket must exist (`tokengauge export sink ddl --apply`). The S3 keys come from the AWS
//! environment variables. Connections to warehouses pass a relay in this program, which closes them while the
//! warehouses are unreachable. The exit code is 1 if calls are lost or not stored within the duration of the run and a
//! minute.

#[path = "../tests/warehouse/load.rs"]
mod load;

use clap::Parser;
use load::Load;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokengauge_sink::{Location, S3Settings, SinkStatus};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Write calls into a ledger, send them to stores, and print one line of JSON.
#[derive(Debug, Parser)]
struct Options {
    /// URL of a ClickHouse without a password, over HTTP
    #[arg(long, value_name = "URL")]
    clickhouse: Option<http::Uri>,
    /// URL of an S3 server without TLS
    #[arg(long, value_name = "URL", requires = "bucket")]
    s3: Option<http::Uri>,
    /// Bucket of the S3 server
    #[arg(long)]
    bucket: Option<String>,
    /// Prefix of object names
    #[arg(long, default_value = "load")]
    prefix: String,
    /// Calls per second
    #[arg(long, default_value_t = 5_000)]
    rate: usize,
    /// Duration of the load in seconds
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds in the middle of the run during which the stores are unreachable
    #[arg(long, default_value_t = 0)]
    away: u64,
    /// Folder whose `ledger.sqlite` is continued and kept [default: a temporary one]
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Added by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let away = watch::Sender::new(false);
    let warehouses = warehouses(&options, |target| {
        runtime.block_on(relay(target, away.subscribe()))
    });
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = options.folder.as_deref().unwrap_or(temporary.path());
    let load = Load::start(folder, warehouses);
    let complete = run(&options, &load, &away);
    if complete && load.sinks.finish(Duration::from_secs(5)) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The warehouses of the options, at the addresses of their relays.
fn warehouses(options: &Options, relayed: impl Fn(String) -> SocketAddr) -> Vec<Location> {
    let address = |url: &http::Uri| {
        let target = url.authority().expect("a URL with a host").to_string();
        format!("http://{}", relayed(target))
    };
    let clickhouse = options.clickhouse.iter();
    let clickhouse = clickhouse.map(|url| load::clickhouse(&address(url)));
    let s3 = options.s3.iter().map(|url| {
        Location::S3(S3Settings {
            url: Some(address(url).parse().expect("a URL")),
            bucket: options.bucket.clone().expect("required with it"),
            prefix: options.prefix.clone(),
            region: Some("us-east-1".to_owned()),
            keys: None,
            tls: Default::default(),
            timeout: Duration::from_secs(30),
        })
    });
    clickhouse.chain(s3).collect()
}

/// Makes the calls, waits until they are stored, and prints the observations. Returns whether every call is stored.
fn run(options: &Options, load: &Load, away: &watch::Sender<bool>) -> bool {
    let (began, cpu) = (Instant::now(), load::cpu());
    let (mut longest, mut waiting, mut lag) = (Duration::ZERO, 0, 0.0_f64);
    let leaves = (options.seconds - options.away.min(options.seconds)) / 2;
    for second in 0..options.seconds {
        away.send_replace((leaves..leaves + options.away).contains(&second));
        let start = began + Duration::from_secs(second);
        longest = longest.max(load.second(options.rate, start));
        for sink in load.sinks.statuses() {
            waiting = waiting.max(sink.waiting);
            lag = lag.max(sink.lag_seconds);
        }
    }
    away.send_replace(false);
    let written = load.written();
    let generated = began.elapsed();
    let at_the_end = load.sinks.statuses();
    let complete = drained(load, Duration::from_secs(options.seconds + 60));
    let sinks = load.sinks.statuses();
    let lost = load.lost() + sinks.iter().map(|sink| sink.lost).sum::<u64>();
    println!(
        "{}",
        json!({
            "calls": written,
            "calls_lost": lost,
            "seconds": generated.as_secs_f64(),
            "cpu_seconds_per_million_calls": (load::cpu() - cpu).as_secs_f64() * 1e6 / written as f64,
            "longest_hand_over_seconds": longest.as_secs_f64(),
            "waiting_at_most": waiting,
            "lag_seconds_at_most": lag,
            "lag_seconds_when_the_last_call_came": at_the_end.iter().map(|sink| sink.lag_seconds).fold(0.0, f64::max),
            "drained_after_seconds": (began.elapsed() - generated).as_secs_f64(),
            "batches": sinks.iter().map(|sink| sink.batches).sum::<u64>(),
        })
    );
    complete && lost == 0
}

/// Waits until no call waits. Returns false if that takes longer than `patience`.
fn drained(load: &Load, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    let done = |sink: SinkStatus| sink.waiting == 0 && sink.failing == 0;
    while !load.sinks.statuses().into_iter().all(done) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Forwards connections to `target`. While `away` is set, it closes open and new connections.
async fn relay(target: String, away: watch::Receiver<bool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let Ok((client, _)) = listener.accept().await else {
                continue;
            };
            tokio::spawn(pass(client, target.clone(), away.clone()));
        }
    });
    address
}

async fn pass(mut client: TcpStream, target: String, mut away: watch::Receiver<bool>) {
    if *away.borrow_and_update() {
        return;
    }
    let Ok(mut warehouse) = TcpStream::connect(target).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut warehouse) => {}
        _ = away.wait_for(|away| *away) => {}
    }
}
