//! One process takes over from another while streams run, as in a rolling restart.

use crate::process::{Listener, Process, SteppedBackend};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::net::TcpStream;
use tokio::process::Command;

const STREAMS: usize = 200;

async fn start(folder: &Path, name: &str, upstream: SocketAddr, threads: usize) -> Process {
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{upstream}\"\n[[route]]\nupstream = \"u\"\n"
    );
    let file = folder.join(name);
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["run", "--config"]).arg(file);
    command.env("TOKIO_WORKER_THREADS", threads.to_string());
    Process::start_by(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_two_hundred_streams_drops_none_of_them() {
    restart_under_streams(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_on_one_core_drops_none_of_them() {
    restart_under_streams(1).await;
}

async fn restart_under_streams(threads: usize) {
    let upstream = SteppedBackend::start().await;
    let folder = TempDir::new().expect("a folder");
    let old = start(folder.path(), "old.toml", upstream.address, threads).await;
    let new = start(folder.path(), "new.toml", upstream.address, threads).await;
    let (before, after) = (old.addresses()[0], new.addresses()[0]);
    assert_eq!(fetch(old.admin, "/readyz").await.status, 200);
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        streams.push(Listener::open(before, "", format!("old{number}")).await);
    }
    upstream.next();
    old.signal(Signal::TERM);
    let end = Instant::now() + TIMEOUT;
    while fetch(old.admin, "/readyz").await.status == 200 {
        assert!(Instant::now() < end, "still ready");
    }
    assert_eq!(fetch(old.admin, "/readyz").await.body, "draining\n");
    assert_eq!(
        fetch(old.admin, "/livez").await.status,
        200,
        "draining is not a fault"
    );
    while TcpStream::connect(before).await.is_ok() {
        assert!(Instant::now() < end, "somebody new comes in");
    }
    // New agents connect to the new process.
    for number in 0..STREAMS {
        streams.push(Listener::open(after, "", format!("new{number}")).await);
    }
    upstream.next();
    for stream in &mut streams {
        stream.step(2).await;
    }
    upstream.end();
    for stream in streams {
        let (id, body) = stream.whole().await;
        assert_eq!(body, SteppedBackend::whole(&id, 2));
    }
    assert!(
        old.ended().await.success(),
        "by itself, once the last one is over"
    );
    assert_eq!(fetch(after, "/hello").await.body, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_stuck_is_no_reason_to_be_restarted() {
    // Accepts connections and never answers.
    let stuck = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let folder = TempDir::new().expect("a folder");
    let process = start(
        folder.path(),
        "a.toml",
        stuck.local_addr().expect("an address"),
        1,
    )
    .await;
    let address = process.addresses()[0];
    let mut waiting = Vec::new();
    for _ in 0..50 {
        waiting.push(tokio::spawn(async move { fetch(address, "/hello").await }));
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    for path in ["/livez", "/readyz", "/metrics"] {
        let asked = Instant::now();
        assert_eq!(fetch(process.admin, path).await.status, 200, "{path}");
        assert!(asked.elapsed().as_secs() < 10, "{path}");
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
