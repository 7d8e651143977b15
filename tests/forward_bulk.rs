//! Large bodies and many calls are forwarded without being kept in memory.

use std::process::Command;
use std::sync::Arc;
use tokengauge_core::observer::{CallObserver, CallPolicy, CallStart, ObservedCall, Observer};
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::Setup;
use tokengauge_test_support::upstream::Upstream;

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

const MB: usize = 1 << 20;

#[test]
fn memory_does_not_grow_with_a_body_and_little_with_a_stream() {
    // Run in a separate process, because memory is counted for the whole process and other tests run in this one.
    let this = std::env::current_exe().expect("a path");
    let child = Command::new(this)
        .args([
            "forward_bulk::in_a_process_of_its_own",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    assert!(
        said.contains("bytes of memory for each open stream"),
        "{said}"
    );
}

#[tokio::test]
#[ignore = "run by the test above as a process of its own"]
async fn in_a_process_of_its_own() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address)
        .start_unobserved(Arc::new(NoopObserver))
        .await;
    upload(&upstream, proxy.address, MB).await;
    let before = resident();
    upload(&upstream, proxy.address, 100 * MB).await;
    download(&upstream, proxy.address, 100 * MB).await;
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 * MB, "grew by {grown} bytes");

    let streams = 150;
    let mut open = Vec::new();
    let before = resident();
    for _ in 0..streams {
        open.push(open_stream(&upstream, proxy.address).await);
    }
    for _ in 0..3 {
        for (agent, backend) in &mut open {
            let event = format!("{:x}\r\n{}\r\n", 300, "x".repeat(300));
            backend.write(&event).await;
            agent.read_exact(event.len()).await;
        }
    }
    let each = resident().saturating_sub(before) / streams;
    println!("{each} bytes of memory for each open stream, the test's own ends included");
    assert!(each < 40 * 1024, "{each} bytes for each stream");
}

async fn open_stream(
    upstream: &Upstream,
    proxy: std::net::SocketAddr,
) -> (RawConnection, RawConnection) {
    let mut agent = RawConnection::connect(proxy).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    agent.read_head().await;
    (agent, backend)
}

async fn upload(upstream: &Upstream, proxy: std::net::SocketAddr, length: usize) {
    let mut agent = RawConnection::connect(proxy).await;
    agent
        .write(format!(
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    pour(&mut agent, &mut backend, length).await;
    backend
        .write("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
        .await;
    agent.read_until(b"ok").await;
}

async fn download(upstream: &Upstream, proxy: std::net::SocketAddr, length: usize) {
    let mut agent = RawConnection::connect(proxy).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
        ))
        .await;
    agent.read_head().await;
    pour(&mut backend, &mut agent, length).await;
}

/// Sends this number of bytes from one end to the other and checks each.
async fn pour(from: &mut RawConnection, to: &mut RawConnection, length: usize) {
    let piece: Vec<u8> = (0..=255).cycle().take(64 * 1024).collect();
    let pieces = length / piece.len();
    let sending = async {
        for _ in 0..pieces {
            from.write(&piece).await;
        }
    };
    let receiving = async {
        for _ in 0..pieces {
            assert!(to.read_exact(piece.len()).await == piece);
        }
    };
    tokio::join!(sending, receiving);
}

struct NoopObserver;

impl Observer for NoopObserver {
    fn begin(&self, _: CallStart<'_>) -> Arc<dyn ObservedCall> {
        Arc::new(NoopObserver)
    }
}

impl CallObserver for NoopObserver {}

impl CallPolicy for NoopObserver {}
