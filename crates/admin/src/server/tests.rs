//! Peers that stall, and more connections than slots.

use super::*;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream;
use std::convert::Infallible;
use std::net::IpAddr;
use tokengauge_config::ServerTls;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const HANGS: Duration = Duration::from_secs(20);

/// Long enough for well-behaved peers on a busy machine.
const SHORT: Timeouts = Timeouts {
    head: Duration::from_secs(1),
    idle: Duration::from_secs(1),
    stalled: Duration::from_secs(1),
};

struct Server {
    address: SocketAddr,
    slots: Arc<Slots>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn endless() -> Body {
    let piece = || async { Some((Ok::<_, Infallible>(Bytes::from(vec![b'x'; 65_536])), ())) };
    Body::from_stream(stream::unfold((), move |()| piece()))
}

fn service() -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/other", get(|| async { "other\n" }))
        .route("/hold", get(std::future::pending::<&str>))
        .route("/endless", get(endless))
        .route("/body", post(|body: Bytes| async move { body }))
}

impl Server {
    async fn start(timeouts: Timeouts, tls: Option<Arc<Acceptor>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let slots = Arc::<Slots>::default();
        let limits = ServerLimits {
            timeouts,
            slots: Arc::clone(&slots),
        };
        let never = std::future::pending();
        let task = serve_within(limits, listener, service(), tls, never);
        Server {
            address,
            slots,
            task: tokio::spawn(task),
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    async fn send(&self, bytes: &str) -> TcpStream {
        let mut tcp = self.connect().await;
        tcp.write_all(bytes.as_bytes()).await.expect("written");
        tcp
    }

    async fn ask(&self, path: &str) -> String {
        let mut tcp = self.send(&request(path)).await;
        head(&mut tcp).await
    }

    async fn has_open(&self, count: usize) {
        self.has(count, Slots::open).await;
    }

    async fn has(&self, count: usize, counted: fn(&Slots) -> usize) {
        let reached = async {
            while counted(&self.slots) != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = timeout(HANGS, reached).await;
        reached.unwrap_or_else(|_| panic!("{}, not {count}", counted(&self.slots)));
    }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n")
}

async fn head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(HANGS, tcp.read_u8()).await.expect("an answer");
        head.push(byte.expect("a whole head"));
    }
    String::from_utf8(head).expect("text")
}

async fn closed(tcp: &mut TcpStream) -> Duration {
    let began = Instant::now();
    let ended = async {
        let mut piece = [0; 65_536];
        while !matches!(tcp.read(&mut piece).await, Ok(0) | Err(_)) {}
    };
    timeout(HANGS, ended).await.expect("it is closed");
    began.elapsed()
}

#[tokio::test]
async fn silent_connections_make_room_for_those_that_ask() {
    let server = Server::start(TIMEOUTS, None).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(server.connect().await);
    }
    for path in ["/livez", "/other"] {
        assert!(server.ask(path).await.starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(server.slots.open() <= 64, "{}", server.slots.open());
    assert!(server.slots.closed(Closed::Evicted) >= 300 - 64);
    closed(&mut silent[0]).await;
}

#[tokio::test]
async fn health_is_answered_while_all_others_have_requests_in_progress() {
    let server = Server::start(TIMEOUTS, None).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(server.send(&request("/hold")).await);
    }
    // Until its request has been read, a connection may be evicted.
    server.has(64, Slots::busy).await;
    for _ in 0..100 {
        let response = server.ask("/livez").await;
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
    let refused = server.ask("/other").await;
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(refused.contains("connection: close"), "{refused}");
    assert_eq!(server.slots.closed(Closed::Refused), 1);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(server.connect().await);
    }
    assert!(server.ask("/livez").await.starts_with("HTTP/1.1 200"));
    assert!(server.slots.open() <= 128, "{}", server.slots.open());
    drop((held, silent));
    server.has_open(0).await;
    assert!(server.ask("/other").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn whoever_sends_no_request_is_disconnected() {
    let server = Server::start(SHORT, None).await;
    let mut silent = server.connect().await;
    let mut half = server.send("GET /livez HTTP/1.1\r\n").await;
    for tcp in [&mut silent, &mut half] {
        closed(tcp).await;
    }
    let mut trickling = server.connect().await;
    let began = Instant::now();
    while trickling.write_all(b"G").await.is_ok() {
        assert!(began.elapsed() < HANGS, "it is never closed");
        sleep(Duration::from_millis(20)).await;
    }
    let mut idle = server.send(&request("/livez")).await;
    head(&mut idle).await;
    closed(&mut idle).await;
    assert!(server.slots.closed(Closed::Timeout) >= 3);
    server.has_open(0).await;
}

#[tokio::test]
async fn bodies_that_do_not_come_and_answers_that_are_not_read_are_cut() {
    let server = Server::start(SHORT, None).await;
    let mut body = server
        .send("POST /body HTTP/1.1\r\nhost: test\r\ncontent-length: 1000000\r\n\r\nbegin")
        .await;
    let mut chunked = server
        .send("POST /body HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        .await;
    let unread = server.send(&request("/endless")).await;
    server.has(3, Slots::busy).await;
    for tcp in [&mut body, &mut chunked] {
        closed(tcp).await;
    }
    server.has_open(0).await;
    assert_eq!(server.slots.closed(Closed::Timeout), 3);
    drop(unread);
}

#[tokio::test]
async fn an_answer_that_is_read_goes_on_for_longer_than_any_limit() {
    let server = Server::start(SHORT, None).await;
    let mut reader = server.send(&request("/endless")).await;
    head(&mut reader).await;
    let until = Instant::now() + 3 * SHORT.stalled;
    let mut piece = vec![0; 65_536];
    while Instant::now() < until {
        let read = timeout(HANGS, reader.read(&mut piece)).await;
        assert_ne!(read.expect("it goes on").expect("read"), 0, "it was cut");
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingpong";

#[tokio::test]
async fn http2_without_a_request_is_disconnected_whatever_else_it_says() {
    for begins in [&b""[..], PREFACE] {
        let slots = Arc::<Slots>::default();
        let (client, served) = http2(&slots, SHORT);
        let (mut answers, mut client) = tokio::io::split(client);
        let reading =
            tokio::spawn(
                async move { tokio::io::copy(&mut answers, &mut tokio::io::sink()).await },
            );
        client.write_all(begins).await.expect("written");
        let began = Instant::now();
        while !served.is_finished() {
            assert!(began.elapsed() < HANGS, "it is never closed");
            if !begins.is_empty() {
                let _ = client.write_all(PING).await;
            }
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(slots.closed(Closed::Timeout), 1);
        assert_eq!(slots.open(), 0);
        reading.abort();
    }
}

fn http2(slots: &Arc<Slots>, timeouts: Timeouts) -> (tokio::io::DuplexStream, JoinHandle<()>) {
    let (client, io) = tokio::io::duplex(65_536);
    let (ending, ended) = watch::channel(false);
    let connection = Connection {
        slot: slots.admit(IpAddr::from([10, 0, 0, 1])),
        service: service(),
        timeouts,
        ending: ended,
    };
    let served = tokio::spawn(async move {
        connection.http2(io).await;
        drop(ending);
    });
    (client, served)
}

#[tokio::test]
async fn http2_is_answered_stream_by_stream() {
    let (client, _served) = http2(&Arc::default(), TIMEOUTS);
    let (sender, connection) = h2::client::handshake(client).await.expect("HTTP/2");
    tokio::spawn(connection);
    for _ in 0..100 {
        let mut sender = sender.clone().ready().await.expect("room");
        let request = http::Request::get("http://test/livez").body(());
        let (response, _) = sender
            .send_request(request.expect("a request"), true)
            .expect("sent");
        let response = timeout(HANGS, response).await.expect("in time");
        let (head, mut body) = response.expect("an answer").into_parts();
        assert_eq!(head.status, 200);
        assert_eq!(body.data().await.expect("a body").expect("read"), "ok\n");
    }
}

#[tokio::test]
async fn http2_whose_answers_have_no_window_is_cut() {
    for path in ["/endless", "/other"] {
        let slots = Arc::<Slots>::default();
        let (client, served) = http2(&slots, SHORT);
        let handshake = h2::client::Builder::new()
            .initial_window_size(0)
            .handshake::<_, Bytes>(client);
        let (sender, connection) = handshake.await.expect("HTTP/2");
        tokio::spawn(connection);
        let mut sender = sender.ready().await.expect("room");
        let request = http::Request::get(format!("http://test{path}")).body(());
        let (response, _) = sender
            .send_request(request.expect("a request"), true)
            .expect("sent");
        let response = timeout(HANGS, response).await.expect("in time");
        let _unread = response.expect("an answer");
        timeout(HANGS, served)
            .await
            .expect("it is cut")
            .expect("no panic");
        assert_eq!(slots.closed(Closed::Timeout), 1, "{path}");
    }
}

#[tokio::test]
async fn a_tls_handshake_that_does_not_come_is_given_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("issued");
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let tls = ServerTls {
        certificate: write("certificate.pem", issued.cert.pem()),
        key: write("key.pem", issued.signing_key.serialize_pem()),
        client_ca: None,
    };
    let acceptor = Arc::new(Acceptor::new(&tls).expect("usable"));
    let server = Server::start(SHORT, Some(acceptor)).await;
    for begins in ["", "\x16\x03\x01"] {
        let mut tcp = server.send(begins).await;
        closed(&mut tcp).await;
    }
    server.has_open(0).await;
    assert_eq!(server.slots.closed(Closed::Timeout), 2);
}

#[tokio::test]
async fn each_source_has_its_share_and_all_together_theirs() {
    let slots = Arc::<Slots>::default();
    let admit = |host: u8| slots.admit(IpAddr::from([10, 0, 0, host]));
    let busy = |slot: slots::Slot| (slot.activity.begin(), slot);
    let mut open: Vec<_> = (0..64).map(|_| busy(admit(1))).collect();
    assert!(admit(1).reserved, "its share has requests under way");
    assert!(!admit(2).reserved, "another's has room");
    for host in 2..=4 {
        open.extend((0..64).map(|_| busy(admit(host))));
    }
    assert!(open.iter().all(|(_, slot)| !slot.reserved));
    assert!(admit(5).reserved, "all have requests under way");
    drop(open.pop());
    assert!(!admit(5).reserved);
    let host = |last: &str| Source::of(format!("2001:db8:1:2:{last}").parse().expect("IPv6"));
    assert_eq!(host(":1"), host("ffff:1:2:3"), "one host has many of these");
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("IPv6");
    assert_eq!(Source::of(mapped), Source::of(IpAddr::from([10, 0, 0, 1])));
}
