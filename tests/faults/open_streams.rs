//! HTTP/2 streams that agents open and do not finish, in a cgroup of 256 MiB: 60 connections with 1,000 requests each,
//! whose bodies never arrive and whose windows are closed.

use super::cgroup::Cgroup;
use super::fixture::{ProxyFixture, STREAM};
use super::script::Script;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const CGROUP: u64 = 256 << 20;
const CONNECTIONS: usize = 60;
const STREAMS: usize = 1000;
/// The proxy allows one open stream per 64 KiB of the cgroup.
const MOST: usize = (CGROUP >> 16) as usize;

/// Opens the streams and keeps those that were not refused until the task is dropped.
async fn attack(address: std::net::SocketAddr, refused: Arc<AtomicUsize>) {
    let tcp = TcpStream::connect(address).await.expect("connected");
    let mut builder = h2::client::Builder::new();
    let builder = builder
        .initial_window_size(0)
        .initial_connection_window_size(0);
    let Ok((mut agent, connection)) = builder.handshake::<_, bytes::Bytes>(tcp).await else {
        return;
    };
    let driver = tokio::spawn(connection);
    let mut open = JoinSet::new();
    for _ in 0..STREAMS {
        let request = http::Request::post("http://h/v1/chat/completions")
            .header("content-type", "application/json")
            .body(())
            .expect("a request");
        agent = match agent.ready().await {
            Ok(agent) => agent,
            Err(_) => break,
        };
        let Ok((response, body)) = agent.send_request(request, false) else {
            break;
        };
        let refused = Arc::clone(&refused);
        open.spawn(async move {
            let response = response.await;
            if response
                .as_ref()
                .is_err_and(|e| e.reason() == Some(h2::Reason::REFUSED_STREAM))
            {
                refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            std::future::pending::<()>().await;
            drop((response, body));
        });
    }
    std::future::pending::<()>().await;
    drop((driver, open));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_thousand_streams_without_a_body_do_not_end_the_process() {
    let Some(cgroup) = Cgroup::limited(CGROUP) else {
        return;
    };
    let fixture = ProxyFixture::with(|setup| {
        setup.command = cgroup.command(env!("CARGO_BIN_EXE_tokengauge"));
        setup.bounds = String::new();
        setup.http2_streams = STREAMS;
    })
    .await;
    fixture
        .backend
        .set_script(&Script::default().send(STREAM).receive_all());
    let refused = Arc::new(AtomicUsize::new(0));
    let mut agents = JoinSet::new();
    for _ in 0..CONNECTIONS {
        agents.spawn(attack(fixture.proxy(), Arc::clone(&refused)));
    }
    let end = Instant::now() + 2 * TIMEOUT;
    let all = CONNECTIONS * STREAMS;
    while refused.load(Ordering::Relaxed) < all - MOST {
        let came = refused.load(Ordering::Relaxed);
        assert!(Instant::now() < end, "{came} of {all} were refused");
        assert_eq!(fetch(fixture.process.admin, "/livez").await.status, 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let counted = fixture
        .metric("tokengauge_agent_streams_refused_total")
        .await;
    println!(
        "{all} streams: {counted} refused, {} KB resident, {} KB in the cgroup at most, {} files",
        fixture.resident() >> 10,
        cgroup.peak() >> 10,
        fixture.open_files()
    );
    assert!(counted as usize >= all - MOST);
    agents.shutdown().await;
    fixture.returns_to_idle("streams without a body").await;
    fixture.next_call_works().await;
}
