//! Many connections to the admin address and to the injection webhook of the real binary: health checks and further
//! requests must still be answered.

use crate::process::Process;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_config::{ClientTls, Protocol};
use tokengauge_net::tls::Connector;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::http_client::{exchange, fetch};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// More than the connection limit.
const MANY: usize = 300;
/// Deadline for a health check on a slow machine. It must be shorter than 10 s, after which silent connections are
/// closed and make room.
const HEALTHY: Duration = Duration::from_secs(6);

async fn many(address: SocketAddr, begin: &str) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..MANY {
        let mut tcp = TcpStream::connect(address).await.expect("connected");
        // The connection may already be closed to make room.
        let _ = tcp.write_all(begin.as_bytes()).await;
        all.push(tcp);
    }
    all
}

async fn proxy() -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    let text = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\nmetrics_listen = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\nupstream = \"u\"\n";
    std::fs::write(&file, text).expect("written");
    (Process::start(&file).await, folder)
}

#[tokio::test]
async fn health_and_metrics_are_answered_despite_300_idle_connections() {
    let (process, _folder) = proxy().await;
    for begin in ["", "G", "GET /livez HTTP/1.1\r\nhost: a\r\nx-a: b"] {
        let held = many(process.admin, begin).await;
        for path in ["/livez", "/readyz", "/metrics"] {
            let began = Instant::now();
            let response = timeout(HEALTHY, fetch(process.admin, path)).await;
            let response = response.unwrap_or_else(|_| panic!("{path} beside {begin:?}"));
            assert_eq!(response.status, 200, "{path}");
            println!("{path} beside {MANY} x {begin:?}: {:?}", began.elapsed());
        }
        let metrics = process.metrics().await;
        assert!(metrics["tokengauge_admin_connections"] <= 128.0);
        println!(
            "{} descriptors, {} MB",
            metrics["process_open_fds"],
            metrics["process_resident_memory_bytes"] / 1e6
        );
        drop(held);
    }
    let evicted = "tokengauge_admin_connections_closed_total{reason=\"evicted\"}";
    assert!(process.metrics().await[evicted] > 3.0 * (MANY - 64) as f64 - 100.0);
}

#[tokio::test]
async fn health_is_answered_despite_300_event_streams_and_unread_answers() {
    let (process, _folder) = proxy().await;
    for path in ["/api/v1/events", "/metrics", "/api/v1/openapi.json"] {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(20);
        let held = many(process.admin, &request).await;
        let began = Instant::now();
        let response = timeout(HEALTHY, fetch(process.admin, "/livez")).await;
        assert_eq!(response.expect("in time").status, 200, "{path}");
        println!("/livez during {MANY} x {path}: {:?}", began.elapsed());
        drop(held);
    }
}

#[tokio::test]
async fn the_metrics_address_answers_despite_300_connections_and_has_separate_slots() {
    let (process, _folder) = proxy().await;
    let line = process.line("metrics on ").await;
    let address: SocketAddr = line["metrics on ".len()..].parse().expect("an address");
    let unread = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20);
    for begin in ["", "GET /livez HTTP/1.1\r\nhost: a\r\nx-a: b", &unread] {
        let held = many(address, begin).await;
        let asked = begin.lines().count();
        for (address, path) in [
            (address, "/livez"),
            (address, "/readyz"),
            (process.admin, "/api/v1/calls"),
        ] {
            let began = Instant::now();
            let response = timeout(HEALTHY, fetch(address, path)).await;
            let response = response.unwrap_or_else(|_| panic!("{path} beside {asked} lines"));
            assert_eq!(response.status, 200, "{path}");
            println!(
                "{path} beside {MANY} x {asked} lines: {:?}",
                began.elapsed()
            );
        }
        let metrics = process.metrics().await;
        assert!(metrics["tokengauge_admin_connections"] <= 96.0 + 2.0);
        println!(
            "{} descriptors, {} MB",
            metrics["process_open_fds"],
            metrics["process_resident_memory_bytes"] / 1e6
        );
        drop(held);
    }
}

struct Webhook {
    address: SocketAddr,
    connector: Connector,
    child: Child,
    _authority: Authority,
}

impl Webhook {
    async fn start() -> Webhook {
        let authority = Authority::new();
        let (certificate, key) = authority.issue("webhook", "localhost");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .args([
                "inject",
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--certificate",
            ])
            .arg(certificate)
            .arg("--key")
            .arg(key)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = loop {
            let line = timeout(TIMEOUT, lines.next_line()).await.expect("a line");
            let line = line.expect("read").expect("it listens");
            if let Some(address) = line.strip_prefix("listening on ") {
                break address.parse().expect("an address");
            }
        };
        let client = ClientTls {
            ca: Some(authority.file.clone()),
            ..ClientTls::default()
        };
        Webhook {
            address,
            connector: Connector::new(&client, Protocol::Http1).expect("usable"),
            child,
            _authority: authority,
        }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        self.connect_from([127, 0, 0, 1]).await
    }

    async fn connect_from(&self, address: [u8; 4]) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("an address");
        let tcp = socket.connect(self.address).await.expect("connected");
        let stream = self.connector.connect(tcp, "localhost").await;
        stream.expect("TLS")
    }

    async fn review(&self) -> String {
        let asked = async {
            let mut stream = self.connect().await;
            let request = review(2) + "{}";
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await.expect("read");
            String::from_utf8(response).expect("text")
        };
        timeout(HEALTHY, asked).await.expect("in time")
    }
}

fn review(length: usize) -> String {
    format!(
        "POST /mutate HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    )
}

#[tokio::test]
async fn the_webhook_answers_despite_300_idle_connections() {
    let webhook = Webhook::start().await;
    // Connections that stop before the TLS handshake and during it.
    for begin in ["", "\x16\x03\x01\x02\x00"] {
        let held = many(webhook.address, begin).await;
        let response = async { exchange(webhook.connect().await, "GET", "/livez", &[]).await };
        let response = timeout(HEALTHY, response).await.expect("in time");
        assert_eq!(response.status, 200);
        drop(held);
    }
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(webhook.connect().await);
    }
    let response = webhook.review().await;
    assert!(
        response.starts_with("HTTP/1.1 400"),
        "it was read: {response}"
    );
    assert!(response.contains("AdmissionReview"), "{response}");
}

#[tokio::test]
async fn the_webhook_answers_despite_reviews_that_never_end() {
    const BODY: usize = 2 << 20;
    let webhook = Webhook::start().await;
    let (mut held, mut refused) = (Vec::new(), 0);
    for _ in 0..6 {
        let mut stream = webhook.connect_from([127, 0, 0, 2]).await;
        let mut request = review(BODY).into_bytes();
        request.resize(BODY - 1, b' ');
        // A refused connection closes before the whole request is written.
        if stream.write_all(&request).await.is_ok() {
            let mut response = [0; 12];
            let read = timeout(Duration::from_secs(8), stream.read(&mut response)).await;
            refused += usize::from(read.is_ok() && response.ends_with(b"503"));
        } else {
            refused += 1;
        }
        held.push(stream);
    }
    assert!(refused >= 4, "3 MiB are for one source: {refused}");
    let response = webhook.review().await;
    assert!(
        response.starts_with("HTTP/1.1 400"),
        "it was read: {response}"
    );
}

/// Reviews from many sources at once whose parsed form would be many times their size.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_webhook_stays_within_its_memory_for_any_review() {
    const MEMORY: u64 = 64 << 10;
    let webhook = Arc::new(Webhook::start().await);
    let most = format!("[{}]", vec!["{\"a\":1}"; 24_000].join(","));
    let too_many = format!("[{}]", vec!["{}"; 900_000].join(","));
    let mut asked = Vec::new();
    for host in 2..34 {
        for body in [&most, &too_many] {
            let (webhook, body) = (Arc::clone(&webhook), body.clone());
            asked.push(tokio::spawn(async move {
                let mut stream = webhook.connect_from([127, 0, 0, host]).await;
                let request = review(body.len()) + &body;
                // The server refuses some requests before they are written completely.
                let _ = stream.write_all(request.as_bytes()).await;
                let _ = stream.read(&mut [0; 12]).await;
            }));
        }
    }
    for one in asked {
        timeout(TIMEOUT, one)
            .await
            .expect("in time")
            .expect("no panic");
    }
    let id = webhook.child.id().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("Linux tells");
    let kilobytes = |name: &str| -> u64 {
        let value = status.lines().find_map(|line| line.strip_prefix(name));
        let value = value.and_then(|line| line.trim().strip_suffix(" kB"));
        value.expect("kilobytes").parse().expect("a number")
    };
    // Subtract the pages of the program file: tens of megabytes in an unoptimized build.
    let highest = kilobytes("VmHWM:") - kilobytes("RssFile:");
    println!("at most {highest} kB resident");
    assert!(highest < MEMORY, "{highest} kB");
    assert!(webhook.review().await.starts_with("HTTP/1.1 400"));
}
