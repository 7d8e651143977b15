//! Limits of the listener on agents and their connections.

use http_body_util::BodyExt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokengauge_config as config;
use tokengauge_proxy::BoundListener;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{http2, none};
use tokengauge_test_support::canned::CannedUpstream;
use tokengauge_test_support::proxy::Setup;
use tokengauge_test_support::skip::skipped;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn requests_of_one_connection_are_answered_one_after_the_other() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = proxy.agent().await;
    for _ in 0..3 {
        agent.get("/hello").await;
        assert!(
            agent
                .text_until("hello")
                .await
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
    }
    proxy.has_connections(1).await;
    proxy.has_requests(0).await;
}

#[tokio::test]
async fn nothing_is_added_to_a_response_and_the_case_of_names_is_kept() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let mut agent = proxy.agent().await;
    agent
        .write("GET /head HTTP/1.1\r\nHost: agent.example\r\nX-CamelCase: 1\r\nx-lower: 2\r\n\r\n")
        .await;
    let head = agent.text_until("\r\n\r\n").await;
    assert!(!head.to_ascii_lowercase().contains("date:"), "{head}");
    let seen = agent.text_until("\r\n\r\n").await;
    assert!(
        seen.contains("\r\nX-CamelCase: 1\r\nx-lower: 2\r\n"),
        "{seen}"
    );
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_is_cut_off() {
    let upstream = CannedUpstream::start().await;
    let head_timeout = Duration::from_secs(2);
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.head_timeout = head_timeout)
        .start()
        .await;

    let begun = Instant::now();
    let silent = proxy.agent().await;
    let (mut trickling, mut later) = (proxy.agent().await, proxy.agent().await);
    later.get("/hello").await;
    later.text_until("hello").await;
    for part in ["GET /he", "llo HTTP/1.1\r\n", "Host: h\r\n", "X-A: 1\r\n"] {
        trickling.write(part).await;
        sleep(head_timeout / 10).await;
    }
    for mut agent in [silent, trickling] {
        assert_eq!(agent.text_to_end().await, "");
    }
    assert!(begun.elapsed() >= head_timeout, "only after the timeout");

    // A connection that has been answered may be silent for longer. Its timeout begins with its next head.
    sleep(head_timeout).await;
    proxy.has_connections(1).await;
    let begun = Instant::now();
    later.write("GET /hel").await;
    assert_eq!(later.text_to_end().await, "");
    assert!(begun.elapsed() >= head_timeout, "only after the timeout");
    proxy.has_connections(0).await;
}

#[tokio::test]
async fn a_head_over_http2_that_came_in_time_counts_when_it_is_looked_at_late() {
    let upstream = CannedUpstream::start().await;
    let head_timeout = Duration::from_millis(500);
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.head_timeout = head_timeout)
        .start()
        .await;
    let (connected, is_connected) = tokio::sync::oneshot::channel();
    let address = proxy.address;
    let agent = tokio::task::spawn_blocking(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut agent = http2(address).await;
            connected.send(()).expect("somebody waits");
            sleep(head_timeout / 4).await;
            let request = http::Request::get(format!("http://{address}/hello")).body(none());
            let response = agent.send_request(request.expect("a request")).await;
            response.map(|response| response.status().as_u16())
        })
    });
    is_connected.await.expect("connected");
    proxy.has_connections(1).await;
    // The proxy gets no CPU until the limit has passed.
    std::thread::sleep(head_timeout * 3 / 2);
    assert_eq!(agent.await.expect("no panic").ok(), Some(200));
}

#[tokio::test]
async fn a_body_may_come_slower_than_a_head() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.head_timeout = Duration::from_millis(200))
        .start()
        .await;
    let mut agent = proxy.agent().await;
    agent.get("/stream").await;
    agent.text_until("first").await;
    sleep(Duration::from_millis(500)).await;
    upstream.finish();
    agent.text_until("last").await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_with_431() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.head_bytes = 16 * 1024)
        .start()
        .await;
    let mut agent = proxy.agent().await;
    let filler = "a".repeat(15 * 1024);
    agent
        .write(format!(
            "GET /hello HTTP/1.1\r\nHost: h\r\nX-A: {filler}\r\n\r\n"
        ))
        .await;
    assert!(
        agent.text_until("hello").await.starts_with("HTTP/1.1 200 "),
        "below the bound"
    );

    let filler = "a".repeat(17 * 1024);
    agent
        .write(format!(
            "GET /hello HTTP/1.1\r\nHost: h\r\nX-A: {filler}\r\n\r\n"
        ))
        .await;
    assert!(agent.text_to_end().await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn as_many_fields_as_a_gateway_may_add_are_taken_and_more_answered_with_431() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let request = |count: usize| {
        let fields: String = (1..count)
            .map(|number| format!("X-{number}: {number}\r\n"))
            .collect();
        format!("GET /hello HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
    };
    let mut agent = proxy.agent().await;
    agent.write(&request(99)).await;
    assert!(agent.text_until("hello").await.starts_with("HTTP/1.1 200 "));
    agent.write(&request(150)).await;
    assert!(agent.text_to_end().await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn a_malformed_head_is_answered_with_400() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let heads = [
        "GET /hello HTTP/1.1\r\nHost: h\r\nX-A: a\u{1}b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX-A: a\0b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX-A: a\u{7f}b\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX-A: a\rb\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX A: a\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: h\r\nX-A : a\r\n\r\n",
        "GET /hel\u{1}lo HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /hello HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST /hello HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
    ];
    for head in heads {
        let mut agent = proxy.agent().await;
        agent.write(head).await;
        let response = agent.text_to_end().await;
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{head:?} was answered with {response:?}"
        );
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_while_all_are_in_use() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.connections = 2)
        .start()
        .await;
    let mut first = proxy.agent().await;
    let mut second = proxy.agent().await;
    for agent in [&mut first, &mut second] {
        agent.get("/stream").await;
        agent.text_until("first").await;
    }
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut agent = proxy.agent().await;
        agent.get("/hello").await;
        waiting.push(agent);
    }
    let early = timeout(Duration::from_millis(300), waiting[0].text_until("hello")).await;
    assert!(early.is_err(), "not served while two others are there");
    assert_eq!(proxy.shutdown.connections(), 2);

    drop(first);
    for agent in &mut waiting {
        let response = agent.text_until("hello").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(proxy.shutdown.connections() <= 2);
    }
    upstream.finish();
    second.text_until("last").await;
}

/// Returns the agents that are served, and those whose connections were closed to make room.
#[tokio::test]
async fn at_the_limit_the_longest_idle_connection_makes_room() {
    const LIMIT: usize = 20;
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.connections = LIMIT)
        .start()
        .await;
    let mut idle = Vec::new();
    let silent = proxy.agent().await;
    proxy.has_connections(1).await;
    for _ in 1..LIMIT {
        let mut agent = proxy.agent().await;
        agent.get("/hello").await;
        agent.text_until("hello").await;
        idle.push(agent);
    }
    let mut fresh = Vec::new();
    for _ in 0..LIMIT / 2 {
        let mut agent = proxy.agent().await;
        let asked = Instant::now();
        agent.get("/hello").await;
        agent.text_until("hello").await;
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "{:?}",
            asked.elapsed()
        );
        fresh.push(agent);
    }
    assert_eq!(proxy.shutdown.idle_connections_closed(), LIMIT as u64 / 2);
    let mut rest = idle.split_off(LIMIT / 2 - 1);
    for mut closed in idle.into_iter().chain([silent]) {
        assert_eq!(closed.text_to_end().await, "");
    }
    for open in rest.iter_mut().chain(&mut fresh) {
        open.get("/hello").await;
        open.text_until("hello").await;
    }
}

#[tokio::test]
async fn an_idle_connection_of_http2_makes_room_and_one_in_use_does_not() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.connections = 2)
        .start()
        .await;
    let get = |path: &str| {
        let request = http::Request::get(format!("http://{}{path}", proxy.address));
        request.body(none()).expect("a request")
    };
    let (mut used, mut idle) = (http2(proxy.address).await, http2(proxy.address).await);
    let stream = used.send_request(get("/stream")).await.expect("an answer");
    let hello = idle.send_request(get("/hello")).await.expect("an answer");
    hello.into_body().collect().await.expect("a body");
    let mut agent = proxy.agent().await;
    agent.get("/hello").await;
    agent.text_until("hello").await;
    assert!(
        idle.send_request(get("/hello")).await.is_err(),
        "it was closed"
    );
    upstream.finish();
    let body = stream.into_body().collect().await.expect("it goes on");
    assert!(body.to_bytes().ends_with(b"last"));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_the_configured_time() {
    let upstream = CannedUpstream::start().await;
    let idle_timeout = Duration::from_millis(500);
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.idle_timeout = idle_timeout)
        .start()
        .await;
    let mut agent = proxy.agent().await;
    agent.get("/hello").await;
    agent.text_until("hello").await;
    let begun = Instant::now();
    assert_eq!(agent.text_to_end().await, "");
    assert!(begun.elapsed() >= idle_timeout / 2, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let listener = |address| config::Listener { address, tls: None };
    let taken =
        BoundListener::bind(&listener(SocketAddr::from(([127, 0, 0, 1], 0)))).expect("bound");
    assert_ne!(taken.address().port(), 0);
    let said = BoundListener::bind(&listener(taken.address()))
        .expect_err("in use")
        .to_string();
    assert_eq!(
        said,
        format!(
            "cannot listen on {}: another process listens there",
            taken.address()
        )
    );
    let said = BoundListener::bind(&listener(SocketAddr::from(([192, 0, 2, 1], 0))))
        .expect_err("not ours")
        .to_string();
    assert!(
        said.contains("192.0.2.1:0") && said.contains("does not have that address"),
        "{said}"
    );
}

#[tokio::test]
async fn both_families_are_served_on_the_unspecified_address() {
    let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0));
    let Ok(bound) = BoundListener::bind(&config::Listener {
        address: any,
        tls: None,
    }) else {
        return skipped("this machine has no IPv6");
    };
    let four = SocketAddr::from(([127, 0, 0, 1], bound.address().port()));
    timeout(TIMEOUT, TcpStream::connect(four))
        .await
        .expect("no hang")
        .expect("connected");
}
