//! Bytes are forwarded unchanged and without delay.

use tokengauge_core::observer::End;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::{Upstream, fields};

async fn proxy() -> (Upstream, Proxy) {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    (upstream, proxy)
}

#[tokio::test]
async fn heads_keep_their_case_order_and_values() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST //v1/%7Echat?q=%3a&&x= HTTP/1.1\r\nHost: proxy.example\r\nX-API-Key: k\r\nuser-AGENT:  a  b\r\nX-Twice: 1\r\nx-other: é\r\nX-TWICE: 2\r\nContent-Length: 3\r\n\r\nabc")
        .await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    assert!(
        head.starts_with("POST //v1/%7Echat?q=%3a&&x= HTTP/1.1\r\n"),
        "{head}"
    );
    let host = format!("Host: {}", upstream.address);
    let expected = [
        &host,
        "X-API-Key: k",
        "user-AGENT: a  b",
        "X-Twice: 1",
        "X-TWICE: 2",
        "x-other: é",
        "Content-Length: 3",
    ];
    assert_eq!(fields(&head), expected);
    assert_eq!(backend.read_exact(3).await, b"abc");
    backend.write("HTTP/1.1 299 Very Fine\r\nX-ReQuest-ID: 7\r\nset-cookie: a\r\nSET-COOKIE: b\r\ncontent-length: 2\r\nDate: then\r\n\r\nok").await;
    let head = agent.read_head().await;
    assert!(head.starts_with("HTTP/1.1 299 Very Fine\r\n"), "{head}");
    assert_eq!(
        fields(&head),
        [
            "X-ReQuest-ID: 7",
            "set-cookie: a",
            "SET-COOKIE: b",
            "content-length: 2",
            "Date: then"
        ]
    );
    assert_eq!(agent.read_exact(2).await, b"ok");
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.request(), call.response()),
        (b"abc".to_vec(), b"ok".to_vec())
    );
    assert_eq!(
        (call.status(), call.ended()),
        (Some(299), Some(End::Complete))
    );
    assert!(call.sent().is_some());
}

#[tokio::test]
async fn a_chunk_leaves_before_the_next_is_there() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    agent.read_head().await;
    for n in 0..50 {
        let chunk = format!("data: {n:03}\n\n");
        backend
            .write(format!("{:X}\r\n{chunk}\r\n", chunk.len()))
            .await;
        assert_eq!(
            agent.read_until(b"\n\n\r\n").await,
            format!("B\r\n{chunk}\r\n").as_bytes()
        );
    }
    backend.write("0\r\n\r\n").await;
    assert_eq!(agent.read_until(b"0\r\n\r\n").await, b"0\r\n\r\n");
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.chunks().len(), 50);
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn an_upload_leaves_piece_by_piece_and_keeps_its_framing() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await.to_ascii_lowercase();
    assert!(
        head.contains("transfer-encoding: chunked\r\n") && !head.contains("content-length"),
        "{head}"
    );
    for piece in ["5\r\nfirst\r\n", "6\r\nsecond\r\n"] {
        agent.write(piece).await;
        assert_eq!(backend.read_exact(piece.len()).await, piece.as_bytes());
    }
    agent.write("0\r\n\r\n").await;
    assert_eq!(backend.read_exact(5).await, b"0\r\n\r\n");
    backend.write("HTTP/1.1 204 No Content\r\n\r\n").await;
    assert!(
        agent
            .read_head()
            .await
            .starts_with("HTTP/1.1 204 No Content\r\n")
    );
    let call = proxy.recorder.only_call().await;
    assert_eq!(call.request(), b"firstsecond");
    assert!(call.sent().is_some());
}

#[tokio::test]
async fn a_body_that_ends_with_its_connection_comes_whole() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nhello")
        .await;
    drop(backend);
    assert!(agent.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(
        agent.read_until(b"0\r\n\r\n").await,
        b"5\r\nhello\r\n0\r\n\r\n"
    );
    assert_eq!(
        proxy.recorder.only_call().await.ended(),
        Some(End::Complete)
    );
}

#[tokio::test]
async fn heads_without_a_body_keep_its_length_and_their_connection() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let mut backend = None;
    for (method, status, length) in [
        ("HEAD", "200 OK", "content-length: 1234\r\n"),
        ("GET", "304 Not Modified", "content-length: 99\r\n"),
        ("GET", "204 No Content", ""),
        ("PUT", "200 OK", "Content-Length: 0\r\n"),
    ] {
        let announced = if method == "PUT" {
            "Content-Length: 0\r\n"
        } else {
            ""
        };
        agent
            .write(format!(
                "{method} / HTTP/1.1\r\nHost: h\r\n{announced}X: y\r\n\r\n"
            ))
            .await;
        if backend.is_none() {
            backend = Some(upstream.accept().await);
        }
        let backend = backend.as_mut().unwrap();
        let host = format!("Host: {}\r\n", upstream.address);
        assert_eq!(
            backend.read_head().await,
            format!("{method} / HTTP/1.1\r\n{host}{announced}X: y\r\n\r\n")
        );
        backend
            .write(format!("HTTP/1.1 {status}\r\n{length}X: y\r\n\r\n"))
            .await;
        let head = agent.read_head().await;
        assert_eq!(head, format!("HTTP/1.1 {status}\r\n{length}X: y\r\n\r\n"));
    }
    let calls = proxy.recorder.ended_calls(4).await;
    assert_eq!(
        calls.iter().map(|call| call.reused()).collect::<Vec<_>>(),
        [[false], [true], [true], [true]]
    );
    assert!(
        calls
            .iter()
            .all(|call| call.ended() == Some(End::Complete) && call.chunks().is_empty())
    );
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTrailer: Content-Digest\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nContent-Digest: 1\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    assert!(
        head.contains("TE: trailers\r\n") && head.contains("Trailer: Content-Digest\r\n"),
        "{head}"
    );
    let body = String::from_utf8(backend.read_until(b"\r\n\r\n").await).unwrap();
    assert_eq!(
        body.to_ascii_lowercase(),
        "2\r\nhi\r\n0\r\ncontent-digest: 1\r\n\r\n"
    );
    backend.write("HTTP/1.1 200 OK\r\nTrailer: x-took\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-took: 5\r\n\r\n").await;
    agent.read_head().await;
    let body = String::from_utf8(agent.read_until(b"\r\n\r\n").await).unwrap();
    assert_eq!(
        body.to_ascii_lowercase(),
        "2\r\nok\r\n0\r\nx-took: 5\r\n\r\n"
    );
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.response(), call.ended()),
        (b"ok".to_vec(), Some(End::Complete))
    );
}

/// An upstream that treats trailers as header fields could take the agent for another one.
#[tokio::test]
async fn only_safe_trailers_of_a_request_are_forwarded() {
    const UNSAFE: [&str; 9] = [
        "connection",
        "upgrade",
        "cookie",
        "x-api-key",
        "x-forwarded-for",
        "authorization",
        "transfer-encoding",
        "x-tokengauge-user",
        "x-mine",
    ];
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let names = UNSAFE.join(", ");
    let fields: String = UNSAFE.iter().map(|name| format!("{name}: 1\r\n")).collect();
    agent.write(format!("POST / HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nTrailer: {names}, x-amz-checksum-crc32\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{fields}x-amz-checksum-crc32: 2\r\n\r\n")).await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let body = String::from_utf8(backend.read_until(b"\r\n\r\n").await).unwrap();
    assert_eq!(body, "2\r\nhi\r\n0\r\nx-amz-checksum-crc32: 2\r\n\r\n");
}

#[tokio::test]
async fn an_agent_that_expects_100_continue_waits_for_the_upstreams() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    assert!(
        backend
            .read_head()
            .await
            .contains("Expect: 100-continue\r\n")
    );
    backend.write("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(agent.read_head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    agent.write("body").await;
    assert_eq!(backend.read_exact(4).await, b"body");
    backend
        .write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await;
    assert!(agent.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(proxy.recorder.only_call().await.request(), b"body");
}

#[tokio::test]
async fn an_upstream_that_refuses_what_was_announced_spares_the_upload() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    backend
        .write("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
        .await;
    assert!(
        agent
            .read_head()
            .await
            .starts_with("HTTP/1.1 401 Unauthorized\r\n")
    );
    assert_eq!(agent.read_exact(2).await, b"no");
    let call = proxy.recorder.only_call().await;
    assert_eq!((call.sent(), call.ended()), (None, Some(End::Complete)));
}

#[tokio::test]
async fn an_upstream_that_knows_no_100_continue_gets_the_body_all_the_same() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    assert_eq!(agent.read_head().await, "HTTP/1.1 100 Continue\r\n\r\n");
    agent.write("body").await;
    assert_eq!(backend.read_exact(4).await, b"body");
}

#[tokio::test]
async fn a_response_may_stream_during_the_upload() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nab")
        .await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    assert_eq!(backend.read_exact(2).await, b"ab");
    backend
        .write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n12")
        .await;
    agent.read_head().await;
    assert_eq!(agent.read_exact(2).await, b"12");
    agent.write("cd").await;
    assert_eq!(backend.read_exact(2).await, b"cd");
    backend.write("34").await;
    assert_eq!(agent.read_exact(2).await, b"34");
    agent.write("ef").await;
    assert_eq!(backend.read_exact(2).await, b"ef");
    backend.write("56").await;
    assert_eq!(agent.read_exact(2).await, b"56");
    let call = proxy.recorder.only_call().await;
    assert_eq!(
        (call.request(), call.response()),
        (b"abcdef".to_vec(), b"123456".to_vec())
    );
    assert_eq!(call.ended(), Some(End::Complete));
}

#[tokio::test]
async fn an_absolute_target_follows_the_route() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("GET http://127.0.0.1:1/elsewhere?x HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    assert!(head.starts_with("GET /elsewhere?x HTTP/1.1\r\n"), "{head}");
    assert_eq!(fields(&head), [format!("Host: {}", upstream.address)]);
}

#[tokio::test]
async fn no_request_opens_a_tunnel_to_another_host() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write(format!(
            "CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n",
            upstream.address
        ))
        .await;
    let head = agent.read_head().await;
    assert!(
        head.starts_with("HTTP/1.1 400 Bad Request\r\n")
            && head.contains("x-tokengauge-error: bad_request\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn control_characters_in_a_head_are_refused() {
    let (_upstream, proxy) = proxy().await;
    for head in [
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\x01b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\nX: a\x7fb\r\n\r\n",
    ] {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(head).await;
        assert!(
            agent
                .read_head()
                .await
                .starts_with("HTTP/1.1 400 Bad Request\r\n")
        );
    }
    assert!(proxy.recorder.calls().is_empty());
}

#[tokio::test]
async fn hop_by_hop_fields_stay_on_their_hop() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: 5\r\nX-Mine: 1\r\nTE: gzip\r\nX-Kept: 1\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    assert_eq!(
        fields(&head),
        [&format!("Host: {}", upstream.address), "X-Kept: 1"]
    );
    backend.write("HTTP/1.1 200 OK\r\nConnection: close\r\nKeep-Alive: 1\r\nContent-Length: 0\r\nX-Kept: 2\r\nDate: now\r\n\r\n").await;
    assert_eq!(
        fields(&agent.read_head().await),
        ["Content-Length: 0", "X-Kept: 2", "Date: now"]
    );
}

#[tokio::test]
async fn a_prefix_is_replaced_by_a_base_path() {
    let upstream = Upstream::bind().await;
    let proxy = Setup {
        prefix: "/openai",
        base_path: "/api",
        ..Setup::to(upstream.address)
    }
    .start()
    .await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent
        .write("GET /openai/v1/%2F/models?x HTTP/1.1\r\nHost: h\r\n\r\n")
        .await;
    let mut backend = upstream.accept().await;
    assert!(
        backend
            .read_head()
            .await
            .starts_with("GET /api/v1/%2F/models?x HTTP/1.1\r\n")
    );
    assert_eq!(proxy.recorder.calls()[0].uri, "/openai/v1/%2F/models?x");
}

#[tokio::test]
async fn what_an_agent_sends_ahead_has_its_turn_after_the_answer() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n").await;
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    backend.write(format!("{head}1\r\na\r\n")).await;
    agent.read_until(b"a\r\n").await;
    // Send the request in two parts, the first of which is buffered.
    agent.write("GET /2 HTTP/1.1\r\nHo").await;
    backend.write("1\r\nb\r\n").await;
    agent.read_until(b"b\r\n").await;
    agent.write("st: h\r\n\r\n").await;
    backend.write("0\r\n\r\n").await;
    agent.read_until(b"0\r\n\r\n").await;
    // The next request uses this connection or another.
    let (mut next, head) = tokio::select! {
        mut next = upstream.accept() => {
            let head = next.read_head().await;
            (next, head)
        }
        head = backend.read_head() => (backend, head),
    };
    assert!(head.starts_with("GET /2 "), "{head}");
    next.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        .await;
    agent.read_until(b"ok").await;
}
