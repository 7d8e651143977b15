//! Agents that use TLS, HTTP/2, or both.

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;
use tokengauge_config::{ClientTls, Protocol, ServerTls};
use tokengauge_net::tls::Connector;
use tokengauge_proxy::DrainSummary;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::canned::CannedUpstream;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::proxy::{Proxy, Setup};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;

fn with_tls(authority: &Authority, client_ca: Option<&Authority>) -> ServerTls {
    let (certificate, key) = authority.issue("server", "localhost");
    let client_ca = client_ca.map(|authority| authority.file.clone());
    ServerTls {
        certificate,
        key,
        client_ca,
    }
}

async fn connect(proxy: &Proxy, authority: &Authority, protocol: Protocol) -> TlsStream<TcpStream> {
    let tls = ClientTls {
        ca: Some(authority.file.clone()),
        ..ClientTls::default()
    };
    let connector = Connector::new(&tls, protocol).expect("usable");
    let tcp = TcpStream::connect(proxy.address).await.expect("connected");
    connector
        .connect(tcp, "localhost")
        .await
        .expect("a handshake")
}

type Http2 = SendRequest<Empty<Bytes>>;

/// An HTTP/2 connection, and a task that ends with it.
async fn http2<I>(io: I) -> (Http2, tokio::task::JoinHandle<hyper::Result<()>>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(io);
    let builder = http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(io).await.expect("a preface");
    (sender, tokio::spawn(connection))
}

async fn get(sender: &mut Http2, path: &str) -> hyper::Result<Response<Incoming>> {
    let request = Request::get(format!("http://agent.example{path}"))
        .body(Empty::new())
        .expect("a request");
    sender.ready().await?;
    timeout(TIMEOUT, sender.send_request(request))
        .await
        .expect("an answer")
}

async fn read(response: Response<Incoming>) -> Bytes {
    let body = timeout(TIMEOUT, response.into_body().collect())
        .await
        .expect("an end");
    body.expect("a whole body").to_bytes()
}

async fn frame(response: &mut Response<Incoming>) -> Bytes {
    let frame = timeout(TIMEOUT, response.frame())
        .await
        .expect("a frame")
        .expect("more");
    frame.expect("no error").into_data().expect("data")
}

#[tokio::test]
async fn http1_over_tls() {
    let (authority, upstream) = (Authority::new(), CannedUpstream::start().await);
    let proxy = Setup::to(upstream.address)
        .listener_tls(with_tls(&authority, None))
        .start()
        .await;
    let mut agent = RawConnection::new(connect(&proxy, &authority, Protocol::Http1).await);
    for _ in 0..2 {
        agent.get("/hello").await;
        assert!(
            agent
                .text_until("hello")
                .await
                .starts_with("HTTP/1.1 200 OK\r\n")
        );
    }
}

#[tokio::test]
async fn http2_by_alpn_and_by_prior_knowledge() {
    let (authority, upstream) = (Authority::new(), CannedUpstream::start().await);
    let proxy = Setup::to(upstream.address)
        .listener_tls(with_tls(&authority, None))
        .start()
        .await;
    let tls = connect(&proxy, &authority, Protocol::Auto).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (mut sender, _) = http2(tls).await;
    answers_http2(&mut sender).await;

    let plain = Setup::to(upstream.address).start().await;
    let (mut sender, _) = http2(TcpStream::connect(plain.address).await.expect("connected")).await;
    answers_http2(&mut sender).await;
}

async fn answers_http2(sender: &mut Http2) {
    let response = get(sender, "/hello").await.expect("answered");
    assert_eq!(
        (response.status(), response.version()),
        (StatusCode::OK, Version::HTTP_2)
    );
    assert!(!response.headers().contains_key("date"));
    assert_eq!(read(response).await, "hello");
}

#[tokio::test]
async fn agents_need_a_certificate_if_the_settings_require_it() {
    let (authority, agents, upstream) = (
        Authority::new(),
        Authority::new(),
        CannedUpstream::start().await,
    );
    let proxy = Setup::to(upstream.address)
        .listener_tls(with_tls(&authority, Some(&agents)))
        .start()
        .await;

    let mut unknown = RawConnection::new(connect(&proxy, &authority, Protocol::Http1).await);
    // A TLS 1.3 client learns of a refusal only with the first record after its handshake.
    let _ = unknown
        .try_write("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n")
        .await;
    assert_eq!(unknown.text_to_end().await, "");

    let tls = ClientTls {
        ca: Some(authority.file.clone()),
        identity: Some(agents.issue("agent", "agent")),
        server_name: None,
    };
    let connector = Connector::new(&tls, Protocol::Http1).expect("usable");
    let tcp = TcpStream::connect(proxy.address).await.expect("connected");
    let mut known = RawConnection::new(
        connector
            .connect(tcp, "localhost")
            .await
            .expect("a handshake"),
    );
    known.get("/hello").await;
    assert!(
        known
            .text_until("hello")
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_agents_while_a_stream_runs_on() {
    let (authority, upstream) = (Authority::new(), CannedUpstream::start().await);
    let proxy = Setup::to(upstream.address)
        .listener_tls(with_tls(&authority, None))
        .start()
        .await;
    let stream = connect(&proxy, &authority, Protocol::Http1).await;
    let shown =
        |tls: &TlsStream<TcpStream>| tls.get_ref().1.peer_certificates().expect("one")[0].to_vec();
    let old = shown(&stream);
    let mut agent = RawConnection::new(stream);
    agent.get("/stream").await;
    agent.text_until("first").await;

    authority.issue("server", "localhost");
    sleep(Duration::from_millis(1100)).await;
    assert_ne!(
        shown(&connect(&proxy, &authority, Protocol::Http1).await),
        old
    );

    upstream.finish();
    agent.text_until("last\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a_client_without_tls_gets_nothing_and_disturbs_no_other() {
    let (authority, upstream) = (Authority::new(), CannedUpstream::start().await);
    let proxy = Setup::to(upstream.address)
        .listener_tls(with_tls(&authority, None))
        .limits(|limits| limits.head_timeout = Duration::from_secs(2))
        .start()
        .await;
    let mut silent = proxy.agent().await;
    let mut plain = proxy.agent().await;
    plain.get("/hello").await;
    plain.read_to_end().await;
    assert!(
        silent.read_to_end().await.is_empty(),
        "given up after the head timeout"
    );
    let mut agent = RawConnection::new(connect(&proxy, &authority, Protocol::Http1).await);
    agent.get("/hello").await;
    agent.text_until("hello").await;
    proxy.has_connections(1).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_with_431_on_http2_too() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address)
        .limits(|limits| limits.head_bytes = 16 * 1024)
        .start()
        .await;
    let (mut sender, _) = http2(TcpStream::connect(proxy.address).await.expect("connected")).await;
    // The first answer announces the limit, which a well-behaved client observes.
    let request = |length: usize| {
        let request = Request::get("http://agent.example/hello").header("x-a", "a".repeat(length));
        request.body(Empty::<Bytes>::new()).expect("a request")
    };
    let response = sender
        .send_request(request(12 * 1024))
        .await
        .expect("answered");
    assert_eq!(response.status(), StatusCode::OK);
    let response = sender
        .send_request(request(20 * 1024))
        .await
        .expect("answered");
    assert_eq!(
        response.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
    let response = get(&mut sender, "/hello")
        .await
        .expect("the connection is as good as before");
    assert_eq!(read(response).await, "hello");
}

#[tokio::test]
async fn streams_of_one_connection_are_counted_apart() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let (mut sender, _) = http2(TcpStream::connect(proxy.address).await.expect("connected")).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut response = get(&mut sender, "/stream").await.expect("answered");
        assert_eq!(frame(&mut response).await, "first");
        streams.push(response);
    }
    assert_eq!(
        (proxy.shutdown.connections(), proxy.shutdown.requests()),
        (1, 5)
    );
    drop(streams.pop());
    proxy.has_requests(4).await;
    upstream.finish();
    for response in streams {
        assert_eq!(read(response).await, "last");
    }
    proxy.has_requests(0).await;
    proxy.has_connections(1).await;
}

#[tokio::test]
async fn http2_agents_get_goaway_and_their_streams_end() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let (mut sender, connection) =
        http2(TcpStream::connect(proxy.address).await.expect("connected")).await;
    let mut response = get(&mut sender, "/stream").await.expect("answered");
    assert_eq!(frame(&mut response).await, "first");
    let (_idle, idle_connection) =
        http2(TcpStream::connect(proxy.address).await.expect("connected")).await;

    proxy.has_connections(2).await;
    proxy.shutdown.begin();
    let closed = timeout(TIMEOUT, idle_connection)
        .await
        .expect("closed at once");
    closed.expect("no panic").expect("without an error");
    sleep(Duration::from_millis(100)).await;
    assert!(get(&mut sender, "/hello").await.is_err(), "no new request");
    upstream.finish();
    assert_eq!(read(response).await, "last");
    timeout(TIMEOUT, connection)
        .await
        .expect("closed")
        .expect("no panic")
        .expect("without an error");
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 0 });
}

#[tokio::test]
async fn http2_streams_that_outlast_the_drain_timeout_are_reset() {
    let upstream = CannedUpstream::start().await;
    let drain_timeout = Duration::from_millis(300);
    let proxy = Setup::to(upstream.address)
        .drain_timeout(drain_timeout)
        .start()
        .await;
    let (mut sender, _) = http2(TcpStream::connect(proxy.address).await.expect("connected")).await;
    let mut response = get(&mut sender, "/stream").await.expect("answered");
    assert_eq!(frame(&mut response).await, "first");
    let shutdown = proxy.shutdown.clone();
    shutdown.begin();
    assert_eq!(proxy.drained().await, DrainSummary { aborted: 1 });
    let end = timeout(TIMEOUT, response.frame()).await.expect("an end");
    end.expect("not a clean one")
        .expect_err("a cut stream does not look whole");
    assert_eq!((shutdown.connections(), shutdown.requests()), (0, 0));
}

#[tokio::test]
async fn a_control_character_in_a_field_of_http2_resets_that_stream() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    for (value, is_reset) in [
        (b"a-b", false),
        (b"a\nb", true),
        (b"a\0b", true),
        (b"a\x01b", true),
    ] {
        let mut tcp = TcpStream::connect(proxy.address).await.expect("connected");
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await
            .expect("written");
        // :method GET, :scheme http, :path /hello, :authority h, x-a
        let pseudo = [&[0x82, 0x86, 0x04, 6][..], b"/hello", &[0x41, 1, b'h']].concat();
        let head = [&pseudo[..], &[0x00, 3], b"x-a", &[3], value].concat();
        let length = u8::try_from(head.len()).expect("short");
        tcp.write_all(&[&[0, 0, length, 1, 5, 0, 0, 0, 1], &head[..]].concat())
            .await
            .expect("written");
        let (reset_stream, go_away) = (3, 7);
        let reset = RawConnection::new(tcp)
            .http2_frame(|kind| kind == reset_stream || kind == go_away)
            .await;
        assert_eq!(reset, is_reset, "{value:?}");
    }
    proxy.has_requests(0).await;
}
