//! A quota store that cannot be reached, over the real binary: no call waits for it, and each proxy does as it was told.
//! With a real store: tests/real/test_quota_store.py.

use crate::process::{Process, SteppedBackend};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::request_with;
use tokio::net::TcpListener;

struct Fixture {
    folder: TempDir,
    upstream: SteppedBackend,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture {
            folder: tempfile::tempdir().expect("a folder"),
            upstream: SteppedBackend::start().await,
        }
    }

    fn config(&self, store: SocketAddr, keys: &str, tables: &str) -> PathBuf {
        let path = self.folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [quota_store]\nurl = \"redis://{store}\"\n{keys}\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"engine\"\n{tables}\n",
            self.upstream.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// An address that nobody listens on.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    listener.local_addr().expect("an address")
}

async fn status(process: &Process) -> u16 {
    let headers = [("x-tokengauge-session", "s")];
    let answer = request_with(process.addresses()[0], "POST", "/hello", &headers).await;
    answer.status
}

async fn metric(process: &Process, series: &str) -> f64 {
    process.metrics().await.get(series).copied().unwrap_or(-1.0)
}

async fn fallback(process: &Process) {
    let end = Instant::now() + TIMEOUT;
    while metric(process, "tokengauge_quota_store_fallback").await < 1.0 {
        assert!(Instant::now() < end, "the store is taken for reachable");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const QUOTA: &str = "[[quota]]\nname = \"q\"\nrequests_per_minute = 60\nconcurrent = 20";

#[tokio::test]
async fn no_call_waits_for_a_store_that_never_answers() {
    let fixture = Fixture::new().await;
    let store = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = store.local_addr().expect("an address");
    // Its connections stay open, and nothing is read or written.
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((tcp, _)) = store.accept().await {
            open.push(tcp);
        }
    });
    let quota = "[[quota]]\nname = \"q\"\nrequests_per_minute = 60";
    let config = fixture.config(address, "timeout = \"1h\"\nlease = \"1m\"", quota);
    let process = Process::start(&config).await;
    let begin = Instant::now();
    for _ in 0..5 {
        assert_eq!(status(&process).await, 200, "one lease on credit");
    }
    assert!(begin.elapsed() < TIMEOUT);
    assert_eq!(metric(&process, "tokengauge_quota_store_fallback").await, 0.0);
}

#[tokio::test]
async fn without_a_store_each_process_has_its_share_of_a_limit() {
    let fixture = Fixture::new().await;
    let keys = "lease = \"100ms\"\nreplicas = 10";
    let config = fixture.config(nobody().await, keys, QUOTA);
    let process = Process::start(&config).await;
    fallback(&process).await;
    let mut admitted = 0;
    for _ in 0..20 {
        admitted += u32::from(status(&process).await == 200);
    }
    // 60 ÷ 10, and what comes meanwhile.
    assert!((6..=8).contains(&admitted), "{admitted}");
    let refused = "tokengauge_quota_refused_total{quota=\"q\",resource=\"requests\"}";
    assert!(metric(&process, refused).await >= 12.0);
    assert!(metric(&process, "tokengauge_quota_store_fallback_decisions_total").await >= 20.0);
    let failed = "tokengauge_quota_store_requests_total{result=\"failed\"}";
    assert!(metric(&process, failed).await >= 1.0);
    process.line("the quota store does not answer").await;
}

#[tokio::test]
async fn without_a_store_all_or_no_calls_are_admitted_where_that_is_said() {
    let fixture = Fixture::new().await;
    let store = nobody().await;
    let config = fixture.config(store, "lease = \"100ms\"\non_error = \"open\"", QUOTA);
    let process = Process::start(&config).await;
    fallback(&process).await;
    for _ in 0..70 {
        assert_eq!(status(&process).await, 200);
    }
    let config = fixture.config(store, "lease = \"100ms\"\non_error = \"closed\"", QUOTA);
    let process = Process::start(&config).await;
    fallback(&process).await;
    assert_eq!(status(&process).await, 429);
    let refused = "tokengauge_quota_refused_total{quota=\"q\",resource=\"quota_store\"}";
    assert_eq!(metric(&process, refused).await, 1.0);
}

#[tokio::test]
async fn in_shadow_mode_a_store_that_is_away_changes_nothing() {
    let fixture = Fixture::new().await;
    let keys = "lease = \"100ms\"\non_error = \"closed\"\nmode = \"shadow\"";
    let config = fixture.config(nobody().await, keys, QUOTA);
    let process = Process::start(&config).await;
    fallback(&process).await;
    let mut admitted = 0;
    for _ in 0..65 {
        admitted += u32::from(status(&process).await == 200);
    }
    assert!((60..=64).contains(&admitted), "{admitted}");
    let shadow = "tokengauge_quota_shadow_refused_total{quota=\"q\",resource=\"quota_store\"}";
    assert!(metric(&process, shadow).await >= 60.0);
}
