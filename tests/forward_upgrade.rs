//! Upgraded connections are forwarded in both directions until they end.

use std::time::Duration;
use tokengauge_config::Timeouts;
use tokengauge_core::observer::{End, FailureKind, Side};
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::{Upstream, fields};

const UPGRADE: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: a\r\n\r\n";

async fn tunnel(setup: impl FnOnce(&mut Setup)) -> (Proxy, RawConnection, RawConnection) {
    let upstream = Upstream::bind().await;
    let mut settings = Setup::to(upstream.address);
    setup(&mut settings);
    let proxy = settings.start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(UPGRADE).await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    let host = format!("Host: {}", upstream.address);
    assert_eq!(
        fields(&head),
        [
            &host,
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Key: k"
        ]
    );
    backend.write(format!("{SWITCHED}early")).await;
    assert_eq!(agent.read_head().await, SWITCHED);
    assert_eq!(agent.read_exact(5).await, b"early");
    (proxy, agent, backend)
}

#[tokio::test]
async fn both_sides_talk_at_once_and_the_meter_hears_them() {
    let (proxy, mut agent, mut backend) = tunnel(|_| {}).await;
    for n in 0..20 {
        let (question, response) = (format!("q{n:02}"), format!("a{n:02}"));
        agent.write(&question).await;
        backend.write(&response).await;
        assert_eq!(backend.read_exact(3).await, question.as_bytes());
        assert_eq!(agent.read_exact(3).await, response.as_bytes());
    }
    drop(agent);
    backend.closed().await;
    drop(backend);
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.ended(), call.status()),
        (Some(End::Complete), Some(101))
    );
    let questions: String = (0..20).map(|n| format!("q{n:02}")).collect();
    let answers: String = (0..20).map(|n| format!("a{n:02}")).collect();
    assert_eq!(call.tunnel(Side::Agent), questions.as_bytes());
    assert_eq!(
        call.tunnel(Side::Upstream),
        format!("early{answers}").as_bytes()
    );
}

#[tokio::test]
async fn a_side_that_is_through_may_still_listen() {
    let (proxy, mut agent, mut backend) = tunnel(|_| {}).await;
    agent.write("last").await;
    tokio::io::AsyncWriteExt::shutdown(&mut agent.io)
        .await
        .unwrap();
    assert_eq!(backend.read_to_end().await, b"last");
    backend.write("goodbye").await;
    drop(backend);
    assert_eq!(agent.read_to_end().await, b"goodbye");
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.ended(), Some(End::Complete));
    assert_eq!(call.tunnel_ends(), [Side::Agent, Side::Upstream]);
}

#[tokio::test]
async fn a_side_that_is_lost_ends_the_other() {
    let (proxy, mut agent, backend) = tunnel(|_| {}).await;
    backend.reset();
    agent.closed().await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::UpstreamReset)
    );
    let (proxy, agent, mut backend) = tunnel(|_| {}).await;
    agent.reset();
    backend.closed().await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::ClientCancelled)
    );
}

#[tokio::test]
async fn a_silent_tunnel_ends_at_its_limit() {
    let idle = Duration::from_secs(2);
    let (proxy, mut agent, mut backend) = tunnel(|setup| {
        setup.timeouts = Timeouts {
            idle,
            ..setup.timeouts
        }
    })
    .await;
    for _ in 0..6 {
        tokio::time::sleep(idle / 5).await;
        agent.write("x").await;
    }
    assert_eq!(backend.read_to_end().await, b"xxxxxx");
    agent.closed().await;
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Failed(FailureKind::IdleTimeout))
    );
}

#[tokio::test]
async fn a_tunnel_continues_while_the_proxy_drains_until_it_is_cut() {
    let (proxy, mut agent, mut backend) = tunnel(|_| {}).await;
    proxy.shutdown.begin();
    agent.write("more").await;
    assert_eq!(backend.read_exact(4).await, b"more");
    proxy.shutdown.now();
    backend.closed().await;
    agent.closed().await;
    proxy.recorder.only_call().await;
}

#[tokio::test]
async fn an_upstream_that_does_not_switch_is_just_answered() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(UPGRADE).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        .await;
    assert!(
        agent
            .read_head()
            .await
            .starts_with("HTTP/1.1 403 Forbidden\r\n")
    );
    assert_eq!(agent.read_exact(2).await, b"no");
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Complete)
    );
}

#[tokio::test]
async fn a_protocol_switch_that_was_not_requested_is_an_error() {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend.write(SWITCHED).await;
    let head = agent.read_head().await;
    assert!(
        head.starts_with("HTTP/1.1 502 Bad Gateway\r\n") && head.contains("upstream_protocol"),
        "{head}"
    );
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Failed(FailureKind::Protocol))
    );
}
