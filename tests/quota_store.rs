//! An unreachable quota store over the real binary: no call waits for it, and each proxy follows its configured
//! fallback. tests/real/test_quota_store.py uses a real quota store.

use crate::process::{Process, SteppedBackend};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_config::ServerTls;
use tokengauge_net::tls::Acceptor;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::http_client::{TestResponse, request_with};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

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

    fn config(&self, quota_store: SocketAddr, keys: &str, tables: &str) -> PathBuf {
        self.config_of(&format!("redis://{quota_store}"), keys, tables)
    }

    fn config_of(&self, url: &str, keys: &str, tables: &str) -> PathBuf {
        let path = self.folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [quota_store]\nurl = \"{url}\"\n{keys}\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"engine\"\n{tables}\n",
            self.upstream.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// An address without a listener.
async fn nobody() -> SocketAddr {
    tokengauge_test_support::port::nowhere()
}

async fn ask(process: &Process) -> TestResponse {
    let headers = [("x-tokengauge-session", "s")];
    request_with(process.addresses()[0], "POST", "/hello", &headers).await
}

async fn status(process: &Process) -> u16 {
    ask(process).await.status
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

async fn reachable(process: &Process) {
    let end = Instant::now() + TIMEOUT;
    while metric(process, "tokengauge_quota_store_fallback").await != 0.0 {
        assert!(Instant::now() < end, "the store is taken for away");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const QUOTA: &str = "[[quota]]\nname = \"q\"\nrequests_per_minute = 60\nconcurrent = 20";

#[tokio::test]
async fn no_call_waits_for_a_store_that_never_answers() {
    let fixture = Fixture::new().await;
    let quota_store = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = quota_store.local_addr().expect("an address");
    // The store's connections stay open, and nothing is read or written.
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((tcp, _)) = quota_store.accept().await {
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
    assert_eq!(
        metric(&process, "tokengauge_quota_store_fallback").await,
        0.0
    );
}

#[tokio::test]
async fn without_a_store_each_process_has_its_share_of_a_limit() {
    let fixture = Fixture::new().await;
    let keys = "lease = \"100ms\"\nreplicas = 10";
    let config = fixture.config(
        nobody().await,
        keys,
        &format!("ratelimit_headers = true\n{QUOTA}"),
    );
    let process = Process::start(&config).await;
    fallback(&process).await;
    let begin = Instant::now();
    let first = ask(&process).await;
    for left in [
        "limit-requests: 6",
        "remaining-requests: 5",
        "limit-concurrent: 2",
    ] {
        let expected = format!("x-tokengauge-ratelimit-{left}");
        assert!(first.head.contains(&expected), "{expected}: {}", first.head);
    }
    let mut admitted = u32::from(first.status == 200);
    for _ in 0..20 {
        admitted += u32::from(status(&process).await == 200);
    }
    // A tenth of the quota of 60, and one more call every ten seconds.
    let most = 8.0 + begin.elapsed().as_secs_f64() / 10.0;
    assert!((6.0..=most).contains(&f64::from(admitted)), "{admitted}");
    let mut response = ask(&process).await;
    while response.status == 200 {
        assert!(begin.elapsed() < TIMEOUT, "no call is refused");
        response = ask(&process).await;
    }
    assert!(
        response
            .body
            .contains("6 requests a minute (the share of this process while"),
        "{}",
        response.body
    );
    let refused = "tokengauge_quota_refused_total{quota=\"q\",resource=\"requests\"}";
    assert!(metric(&process, refused).await >= f64::from(21 - admitted));
    assert!(metric(&process, "tokengauge_quota_store_fallback_decisions_total").await >= 20.0);
    let failed = "tokengauge_quota_store_requests_total{result=\"failed\"}";
    assert!(metric(&process, failed).await >= 1.0);
    process.line("the quota store does not answer").await;
}

#[tokio::test]
async fn without_a_store_all_or_no_calls_are_admitted_as_configured() {
    let fixture = Fixture::new().await;
    let quota_store = nobody().await;
    let config = fixture.config(quota_store, "lease = \"100ms\"\non_error = \"open\"", QUOTA);
    let process = Process::start(&config).await;
    fallback(&process).await;
    for _ in 0..70 {
        assert_eq!(status(&process).await, 200);
    }
    let config = fixture.config(
        quota_store,
        "lease = \"100ms\"\non_error = \"closed\"",
        QUOTA,
    );
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
    let begin = Instant::now();
    let mut admitted = 0_u32;
    while status(&process).await == 200 {
        admitted += 1;
        assert!(begin.elapsed() < TIMEOUT, "no call is refused");
    }
    // The quota of 60, and one more call for each second that passed.
    let most = 61.0 + begin.elapsed().as_secs_f64();
    assert!((60.0..=most).contains(&f64::from(admitted)), "{admitted}");
    let shadow = "tokengauge_quota_shadow_refused_total{quota=\"q\",resource=\"quota_store\"}";
    assert!(metric(&process, shadow).await >= 60.0);
}

/// Announces an answer of 2^62 bytes to every command, and sends bytes for as long as they are read.
async fn quota_store_without_an_end() -> (SocketAddr, mpsc::UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let (taken, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut sent = 0;
            let mut piece = format!("${}\r\n", 1_u64 << 62).into_bytes();
            while tcp.write_all(&piece).await.is_ok() {
                sent += piece.len();
                piece = vec![b'x'; 64 * 1024];
            }
            let _ = taken.send(sent);
        }
    });
    (address, received)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_announces_an_endless_answer_is_left() {
    const BUFFERS: usize = 16 << 20;
    let fixture = Fixture::new().await;
    let (address, mut taken) = quota_store_without_an_end().await;
    let quota = "[[quota]]\nname = \"q\"\nper = \"session\"\nrequests_per_minute = 60\n";
    let config = fixture.config(address, "timeout = \"30s\"", quota);
    let process = Process::start(&config).await;
    for _ in 0..3 {
        let one = tokio::time::timeout(TIMEOUT, taken.recv()).await;
        let one = one.expect("it is left in time").expect("a number");
        assert!(one < BUFFERS, "{one} bytes were taken of one answer");
    }
    assert_eq!(status(&process).await, 200);
}

/// Reads a command of the protocol; `None` at the end of the connection.
async fn command(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<Vec<String>> {
    let mut line = String::new();
    reader
        .read_line(&mut line)
        .await
        .ok()
        .filter(|read| *read > 0)?;
    let parts: usize = line.trim().strip_prefix('*')?.parse().ok()?;
    let mut words = Vec::new();
    for _ in 0..parts {
        line.clear();
        reader.read_line(&mut line).await.ok()?;
        let length: usize = line.trim().strip_prefix('$')?.parse().ok()?;
        let mut word = vec![0; length + 2];
        reader.read_exact(&mut word).await.ok()?;
        word.truncate(length);
        words.push(String::from_utf8(word).ok()?);
    }
    Some(words)
}

/// A quota store behind TLS that accepts every command, and a channel with the commands.
async fn quota_store_with_tls(
    authority: &Authority,
) -> (SocketAddr, mpsc::UnboundedReceiver<Vec<String>>) {
    let (certificate, key) = authority.issue("store", "127.0.0.1");
    let tls = ServerTls {
        certificate,
        key,
        client_ca: None,
    };
    let acceptor = Acceptor::new(&tls).expect("usable");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let (commands, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(tcp).await else {
                continue;
            };
            let commands = commands.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(words) = command(&mut stream).await {
                    let response = match words[0].as_str() {
                        "SCRIPT" => format!("$40\r\n{}\r\n", "a".repeat(40)),
                        _ => "+OK\r\n".to_owned(),
                    };
                    let _ = commands.send(words);
                    if stream.write_all(response.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, received)
}

#[tokio::test]
async fn a_store_is_reached_by_tls_with_a_password_of_a_file() {
    let fixture = Fixture::new().await;
    let authority = Authority::new();
    let (address, mut received) = quota_store_with_tls(&authority).await;
    let password = fixture.folder.path().join("password");
    std::fs::write(&password, "of a file\n").expect("written");
    // Nothing is retried, however long the first connection takes.
    let keys = format!(
        "timeout = \"30s\"\nlease = \"2s\"\npassword_file = {password:?}\ntls = {{ ca = {:?} }}",
        authority.file
    );
    let url = format!("rediss://limits@{address}/3");
    let process = Process::start(&fixture.config_of(&url, &keys, QUOTA)).await;
    let mut commands = Vec::new();
    while !commands
        .iter()
        .any(|words: &Vec<String>| words[0] == "PING")
    {
        let next = tokio::time::timeout(TIMEOUT, received.recv()).await;
        commands.push(next.expect("in time").expect("a command"));
    }
    assert_eq!(commands[0], ["AUTH", "limits", "of a file"]);
    assert!(commands.contains(&vec!["SELECT".to_owned(), "3".to_owned()]));
    let loads = commands.iter().filter(|words| words[0] == "SCRIPT");
    assert_eq!(loads.count(), 5);
    reachable(&process).await;

    // The proxy does not talk to a server whose certificate is from another authority.
    let other = Authority::new();
    let keys = format!(
        "timeout = \"30s\"\nlease = \"100ms\"\ntls = {{ ca = {:?} }}",
        other.file
    );
    let process = Process::start(&fixture.config_of(&url, &keys, QUOTA)).await;
    fallback(&process).await;
    process.line("set `tls.ca` to trust another one").await;
}
