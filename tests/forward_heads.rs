//! Heads that the proxy rewrites, and heads that it refuses.

use http::Request;
use http_body_util::BodyExt;
use tokengauge_test_support::agent::{http2, none, refusal};
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokengauge_test_support::upstream::{Upstream, fields};

async fn proxy() -> (Upstream, Proxy) {
    let upstream = Upstream::bind().await;
    let proxy = Setup::to(upstream.address).start().await;
    (upstream, proxy)
}

async fn forwarded(
    upstream: &Upstream,
    proxy: &Proxy,
    request: &str,
) -> (RawConnection, RawConnection, String) {
    let mut agent = RawConnection::connect(proxy.address).await;
    agent.write(request).await;
    let mut backend = upstream.accept().await;
    let head = backend.read_head().await;
    (agent, backend, head)
}

async fn answered(request: &str, response: &str) -> (RawConnection, String) {
    let (upstream, proxy) = proxy().await;
    let (mut agent, mut backend, _) = forwarded(&upstream, &proxy, request).await;
    backend.write(response).await;
    let head = agent.read_head().await;
    (agent, head)
}

const GET: &str = "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n";

#[tokio::test]
async fn a_body_in_chunks_leaves_with_every_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "POST"] {
        let (upstream, proxy) = proxy().await;
        let request = format!(
            "{method} /v1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
        );
        let (mut agent, mut backend, head) = forwarded(&upstream, &proxy, &request).await;
        assert!(
            fields(&head).contains(&"Transfer-Encoding: chunked"),
            "{head}"
        );
        let body = backend.read_until(b"0\r\n\r\n").await;
        assert_eq!(body, b"4\r\nbody\r\n0\r\n\r\n", "{method}");
        backend
            .write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        assert!(agent.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
        let call = proxy.recorder.only_call().await;
        assert_eq!(call.request(), b"body", "{method}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_over_http2_leaves_with_a_get() {
    let (upstream, proxy) = proxy().await;
    let mut agent = http2(proxy.address).await;
    let body = http_body_util::StreamBody::new(futures_util::stream::iter([Ok::<
        _,
        std::convert::Infallible,
    >(
        http_body::Frame::data("body".into()),
    )]));
    let request = Request::get("http://h/v1").body(body.map_err(Into::into).boxed());
    let response = tokio::spawn(agent.send_request(request.unwrap()));
    let mut backend = upstream.accept().await;
    backend.read_head().await;
    assert_eq!(
        backend.read_until(b"0\r\n\r\n").await,
        b"4\r\nbody\r\n0\r\n\r\n"
    );
    backend
        .write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        .await;
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
}

#[tokio::test]
async fn a_transfer_coding_that_is_not_known_is_refused() {
    for (coding, status) in [
        ("gzip, chunked", "501"),
        ("identity, chunked", "501"),
        ("chunked, chunked", "501"),
        ("chunked;a=b, chunked", "501"),
    ] {
        let (_upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        let request =
            format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: {coding}\r\n\r\n0\r\n\r\n");
        agent.write(request).await;
        let (head, message) = refusal(&mut agent).await;
        let line = format!("HTTP/1.1 {status} ");
        assert!(head.starts_with(&line), "{coding}: {head}");
        assert!(
            head.contains("x-tokengauge-error: unsupported_coding\r\n"),
            "{head}"
        );
        assert!(message.contains("`chunked`"), "{message}");
    }
    for coding in ["gzip, chunked", "gzip", "chunked, identity", "x"] {
        let response =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        let (_, head) = answered(GET, &response).await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{coding}: {head}");
        assert!(
            head.contains("x-tokengauge-error: upstream_protocol\r\n"),
            "{coding}: {head}"
        );
    }
}

#[tokio::test]
async fn interim_heads_are_rewritten() {
    let (mut agent, head) = answered(
        GET,
        "HTTP/1.0 103 Early Hints\nLink: </a>\nTransfer-Encoding: chunked\nConnection: x-hop\nX-Hop: 1\n\
         Content-Length: 3\n\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    assert_eq!(head, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
    assert!(agent.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn only_the_protocols_of_the_route_are_requested() {
    for (upgrade, passes) in [
        ("Upgrade: websocket", true),
        ("Upgrade: WebSocket", true),
        ("Upgrade: h2c", false),
        ("Upgrade: h2c, \u{ff}", false),
        ("Upgrade: \"h2c\"", false),
        ("Upgrade: h2c/2", false),
        ("Upgrade: websocket, h2c", false),
        ("Upgrade: websocket\r\nUpgrade: h2c", false),
        ("Upgrade: TLS/1.0", false),
    ] {
        let (upstream, proxy) = proxy().await;
        let request = format!(
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\n{upgrade}\r\n\
             HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
        );
        let (_, _, head) = forwarded(&upstream, &proxy, &request).await;
        let head = head.to_ascii_lowercase();
        assert_eq!(
            head.contains("\r\nupgrade: websocket\r\n"),
            passes,
            "{head}"
        );
        assert_eq!(head.contains("upgrade"), passes, "{head}");
        assert!(!head.contains("http2-settings"), "{head}");
    }
}

#[tokio::test]
async fn a_switch_to_a_protocol_that_may_not_be_asked_for_is_an_error() {
    let (_, head) = answered(
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
}

#[tokio::test]
async fn a_host_or_target_that_is_none_is_refused() {
    for request in [
        "GET / HTTP/1.1\r\nHost: a/../b?c#d@e\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a,b\\c\r\n\r\n",
        "GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET foo HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET foo:80 HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET ftp://h/x HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let (_upstream, proxy) = proxy().await;
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(request).await;
        let head = agent.read_head().await;
        assert!(head.starts_with("HTTP/1.1 400 "), "{request:?}: {head}");
    }
    for request in [
        "GET / HTTP/1.1\r\nHost: my_service.ns-1.svc:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n",
    ] {
        let (upstream, proxy) = proxy().await;
        forwarded(&upstream, &proxy, request).await;
    }
}

#[tokio::test]
async fn equal_lengths_leave_as_one() {
    let (upstream, proxy) = proxy().await;
    let request = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok";
    let (mut agent, mut backend, head) = forwarded(&upstream, &proxy, request).await;
    let found = fields(&head).into_iter();
    let found: Vec<_> = found.filter(|field| field.contains("ength")).collect();
    assert_eq!(found, ["Content-Length: 2"], "{head}");
    backend
        .write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok")
        .await;
    let head = agent.read_head().await;
    assert_eq!(fields(&head), ["Content-Length: 2"], "{head}");
}

#[tokio::test]
async fn a_204_names_no_length() {
    let response = "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nX-A: b\r\n\r\n";
    let (_, head) = answered(GET, response).await;
    assert_eq!(fields(&head), ["X-A: b"], "{head}");
}

#[tokio::test]
async fn a_path_behind_a_prefix_has_one_slash() {
    let upstream = Upstream::bind().await;
    let mut setup = Setup::to(upstream.address);
    setup.prefix = "/c";
    let proxy = setup.start().await;
    let request = "GET /c//evil/x?a=//b HTTP/1.1\r\nHost: h\r\n\r\n";
    let (_, _, head) = forwarded(&upstream, &proxy, request).await;
    assert!(head.starts_with("GET /evil/x?a=//b HTTP/1.1\r\n"), "{head}");
}

#[tokio::test]
async fn a_head_never_exceeds_its_limit() {
    let upstream = Upstream::bind().await;
    let mut setup = Setup::to(upstream.address);
    setup.limits.head_bytes = 64 * 1024;
    let proxy = setup.start().await;
    let request = |size: usize| {
        let fields: String = (0..size / 1_000)
            .map(|at| format!("X-{at:03}: {}\r\n", "a".repeat(1_000 - 9)))
            .collect();
        format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
    };
    forwarded(&upstream, &proxy, &request(60_000)).await;
    for size in [67_000, 80_000, 100_000] {
        let mut agent = RawConnection::connect(proxy.address).await;
        agent.write(request(size)).await;
        let head = agent.read_head().await;
        assert!(head.starts_with("HTTP/1.1 431 "), "{size}: {head}");
    }
}

#[tokio::test]
async fn the_host_that_was_asked_for_is_the_one_of_the_target() {
    let upstream = Upstream::bind().await;
    let mut setup = Setup::to(upstream.address);
    setup.forwarded = true;
    let proxy = setup.start().await;
    let request = "GET http://target.example/x HTTP/1.1\r\nHost: field.example\r\n\r\n";
    let (_, _, head) = forwarded(&upstream, &proxy, request).await;
    assert!(
        head.contains("x-forwarded-host: target.example\r\n"),
        "{head}"
    );
    let mut agent = http2(proxy.address).await;
    let request = Request::get("http://authority.example/x").header("host", "field.example");
    let request = agent.send_request(request.body(none()).unwrap());
    let asked = tokio::spawn(request);
    let head = upstream.accept().await.read_head().await;
    assert!(
        head.contains("x-forwarded-host: authority.example\r\n"),
        "{head}"
    );
    asked.abort();
}

#[tokio::test]
async fn messages_that_come_byte_by_byte_leave_as_they_came() {
    let (upstream, proxy) = proxy().await;
    let mut agent = RawConnection::connect(proxy.address).await;
    let mut backend = None;
    // Twice on one connection: the second head arrives on a connection that has served a request.
    for target in ["/one", "/two"] {
        let body = "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
        let request = format!(
            "PUT {target} HTTP/1.1\r\nHost: h\r\nX-Case: y\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        for byte in request.as_bytes() {
            agent.write([*byte]).await;
            tokio::task::yield_now().await;
        }
        let backend = match &mut backend {
            Some(backend) => backend,
            none => none.insert(upstream.accept().await),
        };
        let head = backend.read_head().await;
        assert!(head.starts_with(&format!("PUT {target} HTTP/1.1\r\n")));
        assert!(head.contains("\r\nX-Case: y\r\n"), "{head}");
        let content = |raw: Vec<u8>| {
            let mut decoder = tokengauge_proxy::ChunkedDecoder::default();
            decoder.read(&raw).expect("chunks").payload
        };
        assert_eq!(content(backend.read_until(b"0\r\n\r\n").await), "onetwo");
        let response = format!(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 Fine\r\nX-Case: z\r\n\
             Transfer-Encoding: chunked\r\n\r\n{body}"
        );
        for byte in response.as_bytes() {
            backend.write([*byte]).await;
            tokio::task::yield_now().await;
        }
        assert!(agent.read_head().await.starts_with("HTTP/1.1 103 "));
        let head = agent.read_head().await;
        assert_eq!(
            head,
            "HTTP/1.1 200 Fine\r\nX-Case: z\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        assert_eq!(content(agent.read_until(b"0\r\n\r\n").await), "onetwo");
    }
}
