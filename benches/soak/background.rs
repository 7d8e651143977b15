//! Load other than the calls: Prometheus scrapes, requests to the API and its event
//! stream, configuration reloads, and slow connections.

use crate::backend::Backend;
use crate::proxy::{self, Proxy, configuration};
use crate::random::Random;
use crate::report::Report;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const API_PATHS: &[&str] = &[
    "/api/v1/calls?limit=50",
    "/api/v1/calls?since=1m&outcome=complete&limit=100",
    "/api/v1/sessions?since=1h&sort=cost&limit=20",
    "/api/v1/models?since=1h",
    "/api/v1/workloads",
    "/api/v1/groups?by=model,outcome&since=1h",
    "/api/v1/timeseries?metric=tps&step=1m&since=1h",
    "/api/v1/capacity",
    "/api/v1/streams",
    "/api/v1/slos",
    "/api/v1/about",
    "/api/v1/openapi.json",
    "/readyz",
    "/",
];

/// Counts responses of the API with status 200.
pub const API_RESPONSES: &str = "API answers";
/// Counts requests that the API ended with 503 at its time limit.
pub const API_TIMEOUTS: &str = "API timeouts";

/// Counters of losses, panics and refusals, which must stay 0, because their limits are far above this traffic.
pub const ZERO_COUNTERS: &[(&str, &[&str])] = &[
    ("tokengauge_meter_panics_total", &[]),
    ("tokengauge_observer_panics_total", &[]),
    ("tokengauge_meter_dropped_calls_total", &[]),
    ("tokengauge_meter_skipped_bodies_total", &[]),
    ("tokengauge_ledger_lost_records_total", &[]),
    ("tokengauge_quota_refused_total", &[]),
    ("tokengauge_budget_blocked_total", &[]),
    ("tokengauge_series_collapsed_total", &[]),
    (
        "tokengauge_export_failures_total",
        &["exporter=\"call_log\""],
    ),
];

/// Scrapes every five seconds, as Prometheus does.
pub async fn scrape_metrics(admin: SocketAddr, report: Arc<Report>) {
    loop {
        match proxy::scrape(admin).await {
            Ok(series) => {
                report.count("scrapes");
                for (metric, labels) in ZERO_COUNTERS {
                    let value = proxy::sum(&series, metric, labels);
                    if value > 0.0 {
                        report.once(&format!("{metric} {labels:?} is {value}"));
                    }
                }
            }
            Err(error) => report.violation(format!("a scrape failed: {error:#}")),
        }
        sleep(Duration::from_secs(5)).await;
    }
}

/// Requests one of [`API_PATHS`] every second or two.
pub async fn query_api(admin: SocketAddr, mut random: Random, report: Arc<Report>) {
    loop {
        let path = random.of(API_PATHS);
        query(admin, path, &report).await;
        sleep(Duration::from_millis(random.between(500, 2500))).await;
    }
}

/// Requests every path twice at once, so that lazily opened connections and files exist before any comparison.
pub async fn query_all_endpoints(admin: SocketAddr, report: &Arc<Report>) {
    let mut requests = tokio::task::JoinSet::new();
    for path in API_PATHS.iter().chain(API_PATHS) {
        let report = Arc::clone(report);
        requests.spawn(async move { query(admin, path, &report).await });
    }
    requests.join_all().await;
}

async fn query(admin: SocketAddr, path: &str, report: &Report) {
    match proxy::ask(admin, path).await {
        Ok((200, body)) => {
            let json = path.starts_with("/api/");
            if json && serde_json::from_str::<serde::de::IgnoredAny>(&body).is_err() {
                report.violation(format!("{path} is not JSON: {body:.200}"));
            }
            report.count(API_RESPONSES);
        }
        // On a busy machine, at most one of many requests may exceed the limit of 5 s.
        Ok((503, body)) if body.contains("took longer") => report.count(API_TIMEOUTS),
        Ok((status, body)) => report.violation(format!("{path} answers {status}: {body:.200}")),
        Err(error) => report.violation(format!("{path}: {error:#}")),
    }
}

/// Subscribes to the event stream for a while, disconnects, and subscribes again.
pub async fn subscribe_events(admin: SocketAddr, mut random: Random, report: Arc<Report>) {
    loop {
        let stay = Duration::from_millis(random.between(500, 8000));
        let read = timeout(stay, async {
            let mut stream = TcpStream::connect(admin).await?;
            let request = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(request).await?;
            let mut bytes = vec![0; 65536];
            let mut events = 0;
            while let 1.. = stream.read(&mut bytes).await? {
                events += 1;
                if events == 1 {
                    report.count("listeners to events");
                }
            }
            std::io::Result::Ok(())
        });
        if let Ok(ended) = read.await {
            report.violation(format!("/api/v1/events ended by itself: {ended:?}"));
        }
        sleep(Duration::from_millis(random.between(100, 2000))).await;
    }
}

/// Opens connections, sends a part of a request head or nothing, and waits until the proxy
/// closes them.
pub async fn open_slow_connections(proxy: SocketAddr, mut random: Random, report: Arc<Report>) {
    loop {
        let half = "POST /one/v1/chat/completions HTTP/1.1\r\nhost: soak\r\nx-slow: ";
        let part = &half[..random.between(0, half.len() as u64) as usize];
        // The timeout for a head is 10 s.
        let closed = timeout(Duration::from_secs(40), async {
            let mut stream = TcpStream::connect(proxy).await?;
            for byte in part.as_bytes() {
                stream.write_all(&[*byte]).await?;
                sleep(Duration::from_millis(100)).await;
            }
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await
        });
        match closed.await {
            Ok(_) => report.count("slow connections closed"),
            Err(_) => report.violation(format!(
                "a connection that sent {part:?} is open after 40 s"
            )),
        }
        sleep(Duration::from_millis(random.between(100, 1500))).await;
    }
}

/// Writes a new configuration every few seconds, one in four of them invalid. Two of three
/// are announced by SIGHUP; the proxy finds the others by watching the file.
pub async fn reload_configuration(
    proxy: &Proxy,
    backend: Backend,
    mut random: Random,
    report: Arc<Report>,
) {
    for generation in 1.. {
        sleep(Duration::from_millis(random.between(8_000, 14_000))).await;
        let file = proxy.folder.join("proxy.toml");
        let usable = generation % 4 != 0;
        let text = if usable {
            configuration(&proxy.folder, backend, generation)
        } else {
            "listen = \"nowhere\"\n".to_owned()
        };
        if let Err(error) = std::fs::write(&file, text) {
            report.violation(format!("{}: {error}", file.display()));
        }
        // The proxy looks at the file every five seconds.
        if generation % 3 != 0 {
            proxy.hang_up();
        }
        report.count(if usable {
            "configurations"
        } else {
            "wrong configurations"
        });
    }
}
